"""Recurrent, convolutional and other networks as a user writes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """A network that returns class scores, with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores: Any = self.network(x)
        # transformers returns an object with the scores, other libraries return them.
        scores = getattr(scores, "logits", scores)
        return functional.cross_entropy(scores.flatten(0, -2), labels.flatten())


class Reproduction(nn.Module):
    """A network that reproduces its input, with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return functional.mse_loss(self.network(x), x)


class LstmClassifier(nn.Module):
    """Two LSTM layers over tokens."""

    def __init__(self, words: int = 64, features: int = 32, classes: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(words, features)
        self.lstm = nn.LSTM(features, features, num_layers=2, batch_first=True)
        self.out = nn.Linear(features, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.table(tokens))
        scores: Tensor = self.out(last[-1])
        return scores


class KeywordSpotter(nn.Module):
    """A GRU over frames of 40 mel bins."""

    def __init__(self, mels: int = 40, features: int = 48, words: int = 10) -> None:
        super().__init__()
        self.gru = nn.GRU(mels, features, batch_first=True)
        self.out = nn.Linear(features, words)

    def forward(self, frames: Tensor) -> Tensor:
        _, last = self.gru(frames)
        scores: Tensor = self.out(last[-1])
        return scores


def _twice(inner: int, outer: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (inner, outer):
        layers += [nn.Conv2d(before, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Segmentation: two steps down, two steps up, with the features of the same size joined."""

    def __init__(self, features: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.first, self.second = _twice(3, features), _twice(features, 2 * features)
        self.bottom = _twice(2 * features, 4 * features)
        self.up2 = nn.ConvTranspose2d(4 * features, 2 * features, 2, stride=2)
        self.join2 = _twice(4 * features, 2 * features)
        self.up1 = nn.ConvTranspose2d(2 * features, features, 2, stride=2)
        self.join1 = _twice(2 * features, features)
        self.out = nn.Conv2d(features, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        first = self.first(image)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.up2(self.bottom(functional.max_pool2d(second, 2)))
        x = self.up1(self.join2(torch.cat((second, x), 1)))
        # One row of scores for each pixel.
        scores: Tensor = self.out(self.join1(torch.cat((first, x), 1)))
        return scores.permute(0, 2, 3, 1)


class _Residual(nn.Module):
    """Two dilated convolutions that see the past only, and a shortcut."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.first = nn.Conv1d(inner, outer, 3, dilation=dilation)
        self.second = nn.Conv1d(outer, outer, 3, dilation=dilation)
        self.shortcut = nn.Conv1d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first(functional.pad(x, (self.past, 0))))
        y = functional.relu(self.second(functional.pad(y, (self.past, 0))))
        return functional.relu(y + self.shortcut(x))


class TemporalConvolutions(nn.Module):
    """Dilated causal convolutions over a series (Bai et al. 2018)."""

    def __init__(self, series: int = 6, features: int = 24, classes: int = 5) -> None:
        super().__init__()
        dilations = (1, 2, 4, 8)
        inner = (series, *[features] * (len(dilations) - 1))
        blocks = (_Residual(i, features, d) for i, d in zip(inner, dilations, strict=True))
        self.blocks = nn.Sequential(*blocks)
        self.out = nn.Linear(features, classes)

    def forward(self, series: Tensor) -> Tensor:
        scores: Tensor = self.out(self.blocks(series)[:, :, -1])
        return scores


def convolutional_autoencoder() -> nn.Module:
    """Images of 32 × 32 pixels through 8 channels of 8 × 8."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.SiLU()),
        *(nn.Conv2d(16, 8, 3, stride=2, padding=1), nn.SiLU()),
        *(nn.ConvTranspose2d(8, 16, 2, stride=2), nn.SiLU()),
        nn.ConvTranspose2d(16, 3, 2, stride=2),
    )


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained correction of low rank."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.lora_A = nn.Linear(linear.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        correction: Tensor = self.lora_B(self.lora_A(x))
        return functional.linear(x, self.weight, self.bias) + correction


def add_adapters(module: nn.Module, rank: int) -> None:
    """Give all linear layers adapters, in place, and freeze everything else.

    A layer whose weight is an embedding's table too gets none.
    """
    module.requires_grad_(requires_grad=False)
    tables = {id(each.weight) for each in module.modules() if isinstance(each, nn.Embedding)}
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and id(child.weight) not in tables:
                setattr(parent, name, LoraLinear(child, rank))
