"""Record small exported networks with PyTorch, and what PyTorch makes of one step of each.

Run ``python -m tests.references.record_exported_networks`` with PyTorch. For each network it writes
``exported/NAME.pt2`` and, where it can be trained here, ``exported/NAME.npz`` with the inputs, the
loss, the gradients, the buffers after one step, and all weights after three steps of SGD on the
same inputs.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from networks.kinds import LEARNING_RATE
from tests.support.paths import REFERENCES, ROOT

FOLDER = REFERENCES / "exported"
STEPS = 3
_NOT_TRAINED = {
    *("predictions", "unsupported", "dropped"),
    *("not_products", "merged_in_place", "random_paths"),
    *("inexact", "dropped_repeated", "scalar_input", "one_prediction"),
    *("tied_transposed", "frozen_view"),
    *("filled_reshaped", "shared_in_place", "kept_in_place"),
}


class Convolutional(nn.Module):
    """Windows of all kinds, operations in place, a shortcut, and concatenations as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6, momentum=0.2)
        self.depthwise = nn.Conv2d(6, 6, (3, 1), padding="same", groups=6)
        self.grown = nn.ModuleList([nn.Conv2d(6, 3, 1), nn.Conv2d(9, 3, 1)])
        self.dropout = nn.Dropout(0.0)
        self.classifier = nn.Linear(12 * 4, 5)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.stem(image)), inplace=True)
        shortcut = x
        x = self.depthwise(x)
        x += shortcut
        x = functional.max_pool2d(x, 3, stride=2, ceil_mode=True)
        found = [x]
        for layer in self.grown:
            found.append(layer(torch.cat(found, 1)))
        x = functional.avg_pool2d(torch.cat(found, dim=1), 3, stride=1, padding=1)
        x = self.dropout(functional.adaptive_avg_pool2d(x, 2)).flatten(1)
        return functional.cross_entropy(self.classifier(x), labels)


class Sequences(nn.Module):
    """A transformer's block on tokens; its output layer is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.wide, self.narrow = nn.Linear(8, 12), nn.Linear(12, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.norm(x)
        heads = [
            layer(y).view(2, 5, 2, 4).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        y = functional.scaled_dot_product_attention(*heads)
        x = x + y.transpose(1, 2).reshape(2, 5, 8)
        x = x + self.narrow(functional.gelu(self.wide(x)))
        return functional.cross_entropy(self.head(x).view(-1, 11), following)


class Waves(nn.Module):
    """One axis, a squared error, and parameters that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Conv1d(2, 4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Conv1d(4, 4, 3, stride=2, padding=1)
        self.output = nn.Linear(4, 3)
        for parameter in (*self.frozen.parameters(), self.norm.weight, self.second.bias):
            parameter.requires_grad_(False)

    def forward(self, wave: Tensor, target: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.frozen(wave)))
        x = self.second(x).sigmoid()
        return functional.mse_loss(self.output(x.mean(-1)), target)


class BackwardBeyondNorm(nn.Module):
    """A gradient that goes through a batch norm whose own parameters are frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 3)
        for parameter in (*self.norm.parameters(), *self.last.parameters()):
            parameter.requires_grad_(False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.last(self.norm(self.first(x))), labels)


class Activations(nn.Module):
    """Every activation, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(8))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        activations = (
            nn.ReLU6(inplace=True),
            nn.Hardtanh(-0.5, 0.75),
            nn.LeakyReLU(0.2),
            nn.SiLU(inplace=True),
            nn.Hardswish(),
            nn.Hardsigmoid(),
            nn.Sigmoid(),
            nn.GELU(),
        )
        for layer, activation in zip(self.layers, activations, strict=True):
            x = x + activation(layer(x))
        return functional.cross_entropy(x, labels)


class Norms(nn.Module):
    """Other norms, scaled channels, products, and an image that grows again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.groups = nn.GroupNorm(3, 6)
        self.grow = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.larger = nn.Upsample(scale_factor=(1, 2))
        self.rows = nn.RMSNorm(8)
        self.gate = nn.Linear(8, 8)
        self.frozen.eval()
        nn.init.uniform_(self.frozen.weight)
        nn.init.uniform_(self.frozen.bias)
        nn.init.uniform_(self.frozen.running_mean)
        nn.init.uniform_(self.frozen.running_var, 0.5, 2.0)

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        x = self.frozen(self.first(image))
        scale = functional.relu(self.squeeze(functional.adaptive_avg_pool2d(x, 1)))
        x = functional.hardsigmoid(self.excite(scale)) * x
        x = self.larger(self.grow(self.groups(x)))
        x = self.rows(x.mean((2, 3)).view(-1, 8))
        return functional.mse_loss(self.gate(x) * x, target)

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.frozen.eval()
        return self


class Views(nn.Module):
    """Parts, transposes and repetitions of tensors, and attention that needs copies."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 8, 2, stride=2), nn.LayerNorm(8)
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, 8))
        self.place = nn.Parameter(0.1 * torch.randn(1, 10, 8))
        self.all, self.out = nn.Linear(8, 24), nn.Linear(8, 3)
        self.gamma = nn.Parameter(torch.rand(8))

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        x = self.first(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(2, -1, -1), self.norm(x)), dim=1) + self.place
        x = functional.relu(x, inplace=True)
        query, key, value = self.all(x).reshape(2, 10, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.gamma * y.transpose(1, 2).reshape(2, 10, 8)
        even, odd = x[:, 1::2], x[:, 2::2]
        left, right = even[:, :4].split([5, 3], dim=-1)
        x = x[:, 0] + odd[:, 1]
        x = x + functional.gelu(torch.cat((right, left), -1)[:, 2])
        return functional.cross_entropy(self.out(x), labels)


class InPlace(nn.Module):
    """Operations in place on tensors that have other views."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.first(x)
        view = x.view(2, 2, 4).transpose(0, 1)
        functional.relu(x, inplace=True)
        y = self.second(view.transpose(0, 1).reshape(4, 4)).flatten(1)
        functional.relu(y, inplace=True)
        return functional.cross_entropy(x + y, labels)


class Classifier(nn.Module):
    """Two layers of LSTM over tokens; the last hidden state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 5)
        self.lstm = nn.LSTM(5, 6, num_layers=2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.table(tokens))
        return functional.cross_entropy(self.head(hidden[-1]), labels)


class Keywords(nn.Module):
    """Two layers of GRU over mel frames."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(40, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, frames: Tensor, labels: Tensor) -> Tensor:
        states, _ = self.gru(frames)
        return functional.cross_entropy(self.head(states[:, -1]), labels)


class Recurrent(nn.Module):
    """Both directions, all states, a learned initial state, and cells one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.0)
        self.start = nn.Parameter(torch.randn(1, 1, 5))
        self.gru = nn.GRU(8, 5, bias=False)
        self.relu = nn.RNN(5, 4, nonlinearity="relu", batch_first=True, bidirectional=True)
        self.lstm_cell, self.gru_cell = nn.LSTMCell(3, 5), nn.GRUCell(5, 5)
        self.tanh_cell = nn.RNNCell(5, 5, bias=False)
        self.head = nn.Linear(26, 3)

    def forward(self, wave: Tensor, labels: Tensor) -> Tensor:
        x, (hidden, cells) = self.both(wave.transpose(0, 1))
        found = [hidden[-2], hidden[-1], cells[-1]]
        y, _ = self.gru(x, self.start.expand(-1, 2, -1))
        _, states = self.relu(y.transpose(0, 1))
        found.append(states.transpose(0, 1).reshape(2, 8))
        state = (x.new_zeros(2, 5), torch.zeros(2, 5).to(wave.device).detach())
        passed = []
        for step in range(3):
            state = self.lstm_cell(wave[:, step], state)
            passed.append(state[0])
        last = self.tanh_cell(self.gru_cell(torch.stack(passed, 1).mean(1)), state[1])
        found += [last[:, :1], y[-1]]
        return functional.cross_entropy(self.head(torch.cat(found, 1)), labels)


class Temporal(nn.Module):
    """Dilated convolutions, causal ones too, and zeros at the sides."""

    def __init__(self) -> None:
        super().__init__()
        self.causal = nn.ModuleList(nn.Conv1d(3, 3, 2, dilation=2**level) for level in range(3))
        self.apart = nn.Conv1d(3, 3, 3, padding="same", dilation=2, groups=3, bias=False)
        self.image = nn.Conv2d(1, 4, (3, 2), padding=(1, 0), stride=(1, 2), dilation=(1, 3))
        self.norm = nn.LayerNorm(14)
        self.head = nn.Linear(12, 3)

    def forward(self, wave: Tensor, labels: Tensor) -> Tensor:
        x = wave
        for layer in self.causal:
            x = x + torch.tanh(layer(functional.pad(x, (layer.dilation[0], 0))))
        x = self.apart(x) + x
        x = self.norm(functional.pad(x, (1, 2, 0, 1)))
        x = functional.pad(self.image(x[:, None]), (0, -1, 1, 0))
        return functional.cross_entropy(self.head(x.flatten(1)[:, 30:42]), labels)


class ChangedCopy(nn.Module):
    """An operation in place on a tensor of which a copy is read later."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        copy = x.clone()
        functional.relu(x, inplace=True)
        return functional.cross_entropy(x + copy, labels)


class NormTwice(nn.Module):
    """A batch norm that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.norm(self.norm(self.layer(x))), labels)


class Predictions(nn.Module):
    """No loss: the forward pass returns predictions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.LayerNorm(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        predictions: Tensor = self.head(self.body(x))
        return predictions


class Stopped(nn.Module):
    """Layers whose gradients are stopped, one of them entirely."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            y = self.first(x)
            z = self.third(x).t()
        loss = functional.cross_entropy(self.second(x).detach() + y + self.second(x), labels)
        x = self.third(x).relu()
        loss = loss + functional.mse_loss(x[:, :2], (x * z.t()).detach()[:, 1:3])
        return loss + (x @ self.second.weight.detach()).square().mean()


class ComposedFunctions(nn.Module):
    """Operations that consist of others, and norms without scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 8, 3, padding=1))
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.free = nn.ModuleList(
            (nn.BatchNorm2d(8, affine=False), nn.GroupNorm(2, 4, affine=False))
        )
        self.table = nn.Parameter(torch.rand(2, 5))
        self.out = nn.Linear(12, 3)
        self.register_buffer("places", torch.tensor([[4, 0, 0], [1, 3, -1]]), persistent=False)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        numbers = torch.zeros(1, 1, 6, 6)
        for place, rows in enumerate((slice(0, -2), slice(-2, None))):
            numbers[:, :, rows] = place + 0.5
        x = functional.avg_pool2d(self.first(image), 3, 2, 1, count_include_pad=False) * numbers
        x = self.free[0](functional.selu(x)) + functional.instance_norm(self.second(x))
        x = functional.glu(functional.celu(functional.channel_shuffle(x, 2), 0.5), 1)
        x = self.free[1](functional.pixel_unshuffle(functional.pixel_shuffle(x, 2), 2))
        x = torch.addcmul(x, x, functional.softplus(x, beta=2.0), value=0.5)
        x = torch.addcdiv(x, torch.roll(x, (1, -1), (2, 3)), x.exp() + 1)
        x = functional.layer_norm(functional.normalize(x, dim=1), x.shape[2:])
        x = (
            x
            + x.var(1, keepdim=True).expand_as(x)
            + functional.logsigmoid(x).std(dim=(2, 3), keepdim=True)
        )
        x = torch.swapaxes(x, 1, 3).flatten(1).reshape(x.shape[0], -1, 6)
        x = (
            x * self.table[:, self.places].reshape(2, 6)[:1]
            + self.table.index_select(1, self.places[0])[0].sum()
        )
        attended = functional.scaled_dot_product_attention(
            x[:, None],
            x[:, None],
            x[:, None],
            attn_mask=self.table[:1, :1].expand(x.shape[1], x.shape[1]),
        )
        x = torch.cat((x, attended[:, 0]), -1)
        return functional.cross_entropy(self.out(functional.layer_norm(x, (12,))).mean(1), labels)


class ComposedLosses(nn.Module):
    """Losses that consist of other operations."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.other = nn.Linear(6, 5), nn.Linear(6, 5)
        self.register_buffer("weight", torch.rand(5) + 0.5)

    def forward(self, x: Tensor, labels: Tensor, target: Tensor) -> Tensor:
        f = functional
        one, two = self.body(x), self.other(x)
        shares, logarithms = target.softmax(1), f.log_softmax(one, 1)
        loss = f.cross_entropy(one, labels, label_smoothing=0.1) + f.cross_entropy(two, shares)
        loss = loss + 0.1 * f.cross_entropy(two, labels, reduction="sum")
        loss = loss + f.kl_div(logarithms, shares, reduction="batchmean")
        loss = loss + f.kl_div(logarithms, f.log_softmax(target, 1), log_target=True)
        loss = loss + f.cross_entropy(one @ two.t(), torch.arange(4))
        loss = loss + f.l1_loss(one, two) + f.smooth_l1_loss(one, target, beta=0.5)
        loss = loss + f.huber_loss(two, target, reduction="sum") + f.mse_loss(one, two)
        loss = loss + f.triplet_margin_loss(one, two, target) - f.cosine_similarity(one, two).mean()
        loss = loss + f.pairwise_distance(one, two).mean()
        loss = loss + f.binary_cross_entropy(one.sigmoid(), shares)
        loss = loss + f.binary_cross_entropy_with_logits(two, shares, pos_weight=self.weight)
        return loss + f.binary_cross_entropy_with_logits(one, torch.ones_like(one))


class Unsupported(nn.Module):
    """Three operations that cannot be trained here, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dilated = nn.MaxPool2d(3, dilation=2)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        x = self.dilated(image).flatten(1)
        x = x.cumprod(1)
        x = x.cumprod(1)
        return functional.cross_entropy(x[:, :3], labels)


class Attending(nn.Module):
    """Attention in all its forms: grouped heads, masks, cross attention, three axes, a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.out = nn.Linear(8, 3)
        self.register_buffer("seen", torch.rand(6, 6) < 0.6)
        self.register_buffer("bias", torch.randn(2, 1, 6).masked_fill(torch.rand(6) < 0.3, -9.0))
        self.seen[2] = False
        self.bias[0, 0, 1] = -torch.inf

    def forward(
        self, x: Tensor, memory: Tensor, padding: Tensor, shown: Tensor, labels: Tensor
    ) -> Tensor:
        attend = functional.scaled_dot_product_attention

        def key_and_value(rows: Tensor) -> tuple[Tensor, ...]:
            layers = (self.key, self.value)
            return tuple(layer(rows).unflatten(-1, (2, 2)).transpose(1, 2) for layer in layers)

        key, value = key_and_value(x)
        y = self.query(x).unflatten(-1, (4, 2)).transpose(1, 2)
        y = attend(y, key, value, is_causal=True, enable_gqa=True)
        y = attend(y, key, value, self.seen, scale=2.0, enable_gqa=True)
        y = attend(y[:, 2:], key, value, self.bias)
        y = attend(y, key, value, padding)
        key, value = key_and_value(memory)
        y = attend(y, key, value, shown)
        y = attend(y, key, value, is_causal=True).transpose(1, 2).flatten(2)
        whole = self.query(x)
        x = torch.cat((y, y), 2) + attend(whole, whole, x, padding[:, 0])
        return functional.cross_entropy(self.out(x[:, -1]), labels)


class Selected(nn.Module):
    """Rows of activations at places that an input states, in another order than the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        rows = self.layer(x).tanh().index_select(1, places)
        return functional.cross_entropy(self.out(rows[:, 0] - 2 * rows[:, 1]), labels)


class TiedTransposed(nn.Module):
    """A decoder whose weight is the transposed one of the encoder, in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)
        self.decoder.weight = nn.Parameter(self.encoder.weight.t())

    def forward(self, x: Tensor) -> Tensor:
        return functional.mse_loss(self.decoder(self.encoder(x).tanh()), x)


class FrozenView(nn.Module):
    """A frozen layer that reads a part of another's trained weight, in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 2)
        self.second.weight = nn.Parameter(self.first.weight[1:3], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x).mean() - self.second(x).mean()).square()


class Beside(nn.Module):
    """Weights that lie beside each other, and among each other, in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(6, 8)
        self.first, self.second, self.third = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(8, 3)
        self.first.weight = nn.Parameter(whole[:3, :4])
        self.second.weight = nn.Parameter(whole[:3, 4:])
        self.third.weight = nn.Parameter(whole[3:])

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = self.first(x[:, :4]) * self.second(x[:, 4:]) + self.third(x)
        return functional.cross_entropy(y, labels)


class ChangedHeads(nn.Module):
    """Attention whose keys are repeated for groups of queries, and then changed."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        query = self.query(x).view(2, 5, 4, 2).transpose(1, 2)
        heads = [self.key(each).view(2, 5, 2, 2).transpose(1, 2) for each in (x, -x)]
        key, value = (each[:, :, None].expand(2, 2, 2, 5, 2).reshape(2, 4, 5, 2) for each in heads)
        key[:, 0] = 0.5
        y = functional.scaled_dot_product_attention(query, key, value)
        return functional.cross_entropy(self.out(y.transpose(1, 2).flatten(2))[:, 0], labels)


class Decoder(nn.Module):
    """A block of today's language models: grouped causal attention, RMS norms, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 12)
        self.norms = nn.ModuleList(nn.RMSNorm(12) for _ in range(3))
        self.query, self.out = nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False)
        self.key, self.value = nn.Linear(12, 6, bias=False), nn.Linear(12, 6, bias=False)
        self.gate, self.up = nn.Linear(12, 20, bias=False), nn.Linear(12, 20, bias=False)
        self.down, self.head = nn.Linear(20, 12, bias=False), nn.Linear(12, 13, bias=False)

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        x = self.table(tokens)
        y = self.norms[0](x)
        query, key, value = (
            layer(y).view(2, 7, -1, 3).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(2, 7, 12))
        y = self.norms[1](x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        logits = self.head(self.norms[2](x))
        return functional.cross_entropy(logits.view(-1, 13), following)


class Dropped(nn.Module):
    """Attention that drops weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        for _ in range(2):
            y = self.layer(x).view(2, 5, 2, 2).transpose(1, 2)
            y = functional.scaled_dot_product_attention(y, y, y, dropout_p=0.25, is_causal=True)
            x = x + y.transpose(1, 2).flatten(2)
        return functional.cross_entropy(self.out(x[:, 0]), labels)


class TrainedMask(nn.Module):
    """Attention with masks that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mask = nn.Linear(4, 5), nn.Parameter(torch.zeros(5, 5))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = functional.scaled_dot_product_attention(x, x, x, self.mask)
        y = y + functional.scaled_dot_product_attention(x, x, x, self.layer(x))
        return functional.cross_entropy(y[:, 0], labels)


class Products(nn.Module):
    """Products of computed matrices, with a parameter too, and attention as it was written once."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.weight, self.tokens = (nn.Parameter(torch.randn(n, n) / 4) for n in (8, 5))
        self.scale = nn.Parameter(torch.ones(5, 5))
        self.bias, self.vector = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        query, key, value = (
            layer(x).view(2, 5, 2, 4).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(-2, -1), dim=-1)
        x = self.norm(x + (weights @ value).transpose(1, 2).reshape(2, 5, 8))
        whole = torch.cat((key, query), 1).transpose(-2, -1)
        scores = torch.matmul(torch.cat((query, key), 1), whole)
        x = self.norm(
            x + torch.einsum("bhqk,bkhd->bqhd", scores[:, :2], value.transpose(1, 2)).flatten(2)
        )
        scores = torch.baddbmm(self.scale, x, x.mT, beta=0.5, alpha=0.25)
        x = torch.bmm(scores.softmax(1), x) @ self.weight
        x = self.norm(x + self.tokens @ x @ self.weight.T)
        x = self.norm(x + torch.einsum("bnd,de->bne", x, self.weight))
        rows = torch.addmm(self.bias, x.flatten(0, 1), self.weight).unflatten(0, (2, 5))
        logits = torch.softmax(rows, dim=1).matmul(self.weight[:, :4].T.contiguous().T)
        logits = torch.einsum("btc,bt->bc", logits, rows @ self.vector)
        return functional.nll_loss(torch.log_softmax(logits, dim=1), labels)


class NotProducts(nn.Module):
    """Sums of products that are not one product of matrices, and half a cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        y = torch.einsum("btd->bd", x)
        y = y + torch.einsum("bij,bjk->bi", x.mT, x)
        y = y + torch.einsum("bii,bij->bj", x[:, :4], x[:, :4])
        y = y[:, None] + torch.einsum("...td,...te->...de", x, x)
        return functional.cross_entropy(torch.log_softmax(x[:, 0], 1) + y[:, 0], labels)


class Arithmetic(nn.Module):
    """Arithmetic of tensors, numbers and constants, of equal and of different shapes."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale, self.shift = nn.Parameter(torch.rand(6)), nn.Parameter(torch.rand(4, 1))
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0]))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = (self.layer(x) * 0.5 + 1 - x) * self.scale + self.shift
        x = x / (x.abs() + 1.5) - x.square().mean(-1, keepdim=True).sqrt() * self.mask
        x = torch.exp(-x) * torch.log(x * x + 1.0) + 2.0 / (1.0 + x.pow(2))
        x = functional.elu(x, 0.5) + functional.softplus(x) - functional.mish(x)
        x = x + functional.gelu(x, approximate="tanh")
        x = x.clamp(-0.2, 0.9) + x.pow(3) * torch.tensor([0.5]) - torch.rsqrt(x.square() + 1.0)
        x = x - x.mean((0,), keepdim=True) + torch.stack((x, 1 - x), dim=1).sum(1)
        hidden = x.masked_fill(self.mask == 0, -torch.inf)
        hidden = hidden.masked_fill(self.mask == 0, -torch.inf).softmax(1)
        x = x + hidden + torch.where(self.mask > 0, hidden, torch.inf).clamp(max=0.5)
        x = x.masked_fill(self.mask == 0, 0.25) + torch.where(self.mask > 0, x, -x)
        return functional.cross_entropy(self.out(torch.tanh(x)) - x.sum().neg() / 8, labels)


class Pooled(nn.Module):
    """Slopes that are trained, and adaptive pooling into windows of several sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.by_channel, self.one = nn.PReLU(4), nn.PReLU(init=-0.3)
        self.wide, self.narrow = nn.AdaptiveAvgPool2d((4, 9)), nn.AdaptiveAvgPool2d((3, 2))
        self.out = nn.Linear(24, 5)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        x = self.wide(self.by_channel(self.first(image)))
        x = self.narrow(x).flatten(1)
        return functional.cross_entropy(self.out(self.one(x)), labels)


class ComposedLoss(nn.Module):
    """A loss of several parts, and predictions beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor, labels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.relu(self.body(x))
        left, right = self.left(x), self.right(x)
        loss = functional.cross_entropy(left, labels) + 0.3 * functional.mse_loss(right, target)
        loss = loss + 0.01 * (self.body.weight**2).sum() + (left - target).abs().mean() / 2
        return loss, left


class Positions(nn.Module):
    """Learned and rotary positions, and an RMS norm, as many language models state them."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(11, 12, padding_idx=3), nn.Embedding(9, 12)
        self.kinds = nn.Embedding(2, 12)
        self.mix, self.out = nn.Linear(12, 24), nn.Linear(24, 5)
        self.weight = nn.Parameter(torch.rand(24))
        frequencies = 100.0 ** -(torch.arange(0, 8, 2) / 8)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        batch, length = tokens.shape
        places = torch.arange(length)
        x = self.table(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens[:1]))
        with torch.no_grad():
            angles = places[:, None].float() * self.frequencies[None]
            angles = torch.cat((angles, angles), dim=-1)
            cosine, sine = angles.cos(), angles.sin()
        x = self.mix(x).view(batch, length, 3, 8).transpose(1, 2)
        first, second = x[..., :4], x[..., 4:]
        x = x * cosine + torch.cat((-second, first), dim=-1) * sine
        x = x.transpose(1, 2).reshape(batch, length, 24)
        x = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        return functional.cross_entropy(self.out(x).transpose(1, 2), labels)


class Segmentation(nn.Module):
    """Images that grow bilinearly, and a decision for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 1, 1)
        self.scale = nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        x = self.first(image) * self.scale
        up = functional.interpolate(x, scale_factor=2, mode="bilinear")
        x = up + functional.interpolate(x, size=(10, 12), mode="bilinear", align_corners=True)
        x = self.out(x - x.mean((1, 3), keepdim=True))
        return functional.binary_cross_entropy_with_logits(x, target)


class Encoder(nn.Module):
    """PyTorch's own modules of attention, which merge the axes of samples and heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        first, memory = x.transpose(0, 1), x[:, 1:4].transpose(0, 1)
        y = self.cross(first, memory, memory, need_weights=False)[0]
        return functional.cross_entropy(self.out(x + y.transpose(0, 1))[:, 0], labels)


class Weighted(nn.Module):
    """Losses with weights of classes, and with labels that are ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("weights", torch.tensor([0.2, 1.5, 1.0, 0.0, 2.5]))
        self.plain = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.5, 2.0, 0.25]))

    def forward(self, x: Tensor, labels: Tensor, some: Tensor, target: Tensor) -> Tensor:
        f, y = functional, self.layer(x)
        loss = self.plain(y, labels)
        loss = loss + f.cross_entropy(y, some, ignore_index=-1)
        loss = loss + f.cross_entropy(y, labels, self.weights, ignore_index=2, label_smoothing=0.2)
        loss = loss + 0.1 * f.cross_entropy(y, some, self.weights, reduction="sum", ignore_index=-1)
        loss = loss + f.nll_loss(f.log_softmax(y, 1), labels, self.weights)
        loss = loss + f.nll_loss(f.log_softmax(y, 1), labels, reduction="sum")
        chances = target.softmax(1)
        loss = loss + f.cross_entropy(y, chances, self.weights, label_smoothing=0.1)
        grid = y.reshape(2, 2, 5).transpose(1, 2)
        loss = loss + f.cross_entropy(grid, some.reshape(2, 2), self.weights, ignore_index=-1)
        few = target.sigmoid()
        loss = loss + f.binary_cross_entropy(y.sigmoid(), few, weight=self.weights)
        return loss + f.binary_cross_entropy_with_logits(y, few, pos_weight=self.weights)


class Compositions(nn.Module):
    """Functions, extremes and rearrangements that consist of other operations."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("bounds", torch.tensor([-0.5, 0.0, 0.25, 0.5, 1.0, -1.0]))

    def forward(self, x: Tensor, last: Tensor, labels: Tensor) -> Tensor:
        f, y = functional, self.layer(x)
        z = y.abs() + 1
        z = torch.log1p(z) + torch.log2(z) + torch.log10(z) + z**1.5 + z**-4 + y**5 + 2**y
        z = (
            z
            + torch.expm1(y)
            + torch.lerp(y, x, 0.3)
            + torch.hypot(y, x)
            + torch.logit(y.sigmoid())
        )
        z = z + f.hardshrink(y, 0.1) + f.softshrink(y) + f.threshold(y, 0.1, 2.0) + y * y.sign()
        z = z + torch.maximum(y, x) + torch.minimum(y, x) + y.clamp(min=self.bounds) + z**x
        z = z * (y > 0).any(-1, keepdim=True) + y * (y > -2).all(-1, keepdim=True)
        z = z + y.amax((1, 2), keepdim=True) + y.amin(1, keepdim=True) + y.max(2, keepdim=True)[0]
        z = z + torch.logsumexp(y, 1, keepdim=True) + (y == y.max()).float() * y
        z = z + y.argmax(1, keepdim=True) * y + y.min(1)[1][:, None] * y
        z = z + f.adaptive_max_pool1d(y, 3).repeat_interleave(2, 2) + y.flip(1, 2)
        z = z + f.adaptive_max_pool2d(y[:, None], 2).repeat_interleave(3, 3)[:, 0].tile(1, 2, 1)
        z = (
            z
            + y.unfold(1, 2, 2).movedim(3, 2).reshape(2, 4, 6)
            + torch.var_mean(y, 1, keepdim=True)[1]
        )
        square = y @ y.transpose(1, 2)
        z = z + (square.tril() @ x + square.triu(1) @ x) + square.diagonal(1, 1, 2).sum()
        z = (
            z
            + f.pad(y, (1, 0), mode="reflect")[:, :, 1:]
            + f.pad(y, (0, 2), mode="replicate")[:, :, 2:]
        )
        z = (
            z
            + f.pad(y, (1, 2), mode="circular")[:, :, 3:]
            + f.interpolate(y, 4).sum(2, keepdim=True)
        )
        z = z + f.interpolate(y[:, None], size=(3, 4)).sum()
        z = z + f.interpolate(y, 9, mode="linear")[:, :, 2:8]
        z = z + f.one_hot(last, 6)[:, None] * y
        z = torch.cat((z[..., :6], z[..., 6:]), -1)
        chosen = z[torch.arange(2), last] + z[torch.arange(2), last - 4]
        return f.cross_entropy(self.head(chosen * 0.01), labels)


class Irregular(nn.Module):
    """Zeros and saturated numbers, where the slopes of logarithms and roots are infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)
        self.exponents = nn.Parameter(torch.tensor([1.25, 1.5, 2.0, 2.5]))
        self.register_buffer("fixed", torch.tensor([0.0, 3.0, 1.5, 0.0]))
        with torch.no_grad():
            self.layer.weight[1:3] = torch.tensor([20.0, -30.0])[:, None]

    def forward(self, x: Tensor, rows: Tensor, target: Tensor) -> Tensor:
        f, y = functional, self.layer(x)
        loss = f.binary_cross_entropy(y.sigmoid(), target)
        loss = loss + f.binary_cross_entropy(y.sigmoid(), y.detach().tanh().abs(), reduction="sum")
        z = rows * self.layer.weight  # of which a row is 0
        loss = loss + z.norm(dim=1).sum() + (z * 0).norm() + z.std(1).sum() + (z * 0).std()
        loss = loss + (f.normalize(z, dim=1, eps=0.1) + torch.std_mean(z, 1)[0]).sum()
        loss = loss + (f.cosine_similarity(z, x, eps=0.1) + f.pairwise_distance(z, z, eps=0)).sum()
        z = z.abs() * 0.1
        loss = loss + (z**1.5 + z**3.25 + z**self.exponents + z**self.fixed).sum()
        return loss + torch.xlogy(z, x.abs()).sum() + torch.xlogy(z, rows.abs()).sum()


class Resized(nn.Module):
    """Interpolation by factors that are not the quotients of the sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        f, y = functional, self.layer(x)  # of shape [2, 3, 8]
        z = f.interpolate(y, scale_factor=1.3, mode="linear") * target
        z = z + f.interpolate(y[..., 1:4], scale_factor=3.4)
        image = f.interpolate(y[:, None, :, 4:], scale_factor=(1.7, 3.2))
        image = image + f.interpolate(y[:, None], size=(5, 12))
        shrunk = f.interpolate(y[:, None], scale_factor=(0.4, 0.26))
        return z.square().mean() + (image * target[:1, 0, 0]).square().mean() + shrunk.exp().mean()


class PartlyStopped(nn.Module):
    """An RMS norm and a rotary embedding through parts of which no gradient flows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = self.layer(x)
        angles = torch.arange(8.0).reshape(2, 4)
        with torch.no_grad():
            factor = torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
            turned = torch.cat((-y[..., 2:], y[..., :2]), dim=-1) * angles.sin()
        z = y * angles.cos() + turned
        return functional.cross_entropy(z + self.weight * (y * factor), labels)


class Padded(nn.Module):
    """Tables with a row that is not trained, one of them frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.table = (nn.Embedding(5, 4, padding_idx=each) for each in (0, 2))
        self.table.weight.requires_grad_(False)
        with torch.no_grad():
            self.places.weight.add_(0.5)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        x = self.table(tokens) * self.places(places + 1) + self.places(places)
        return functional.cross_entropy(x.mean(1), labels)


class Kinks(nn.Module):
    """Activations of zeros, at which they have different slopes on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros, self.slopes = nn.Parameter(torch.zeros(4, 3)), nn.PReLU(3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        f, (first, second, third, fourth) = functional, x.relu() + self.zeros[:, None]
        y = f.selu(first) + f.elu(second, 2.0) + f.celu(third, 2.0) + self.slopes(fourth)
        return f.mse_loss(y, target)


class Infinite(nn.Module):
    """Comparisons of infinities, and the places of infinite extremes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        hidden = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]])
        self.register_buffer("hidden", hidden.bool(), persistent=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = self.layer(x)
        z = y.masked_fill(self.hidden, -torch.inf)
        first, last = z[:, :2], z[:, 2:]
        factors = (z == z.amax(1, keepdim=True)).float() + (z > -torch.inf) + (z <= -torch.inf)
        factors = factors + 2 * (-z < torch.inf) + (-z >= torch.inf) + z.argmax(1)[:, None]
        factors = factors + (-z).argmin(1)[:, None] + (-z).argmax(1, keepdim=True)
        pairs = (first <= last).float() + 2 * (first < last) + 4 * (first != last)
        return functional.cross_entropy(y * factors + pairs.repeat(1, 2) * y, labels)


class WeightNorms(nn.Module):
    """Weight norms along an axis and of whole tensors."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.whole, self.one = norm(nn.Conv1d(2, 3, 2), dim=None), norm(nn.Linear(4, 3), dim=1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.one(self.whole(x)).mean(1), labels)


class EachRow(nn.Module):
    """Losses of each row, of which those that count are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("weights", torch.tensor([0.2, 1.5, 1.0, 0.5, 2.5]))

    def forward(self, x: Tensor, labels: Tensor, some: Tensor, target: Tensor) -> Tensor:
        f, y, none = functional, self.layer(x), "none"
        real = (some >= 0).float()
        loss = (f.cross_entropy(y, some, ignore_index=-1, reduction=none) * real).sum() / real.sum()
        loss = loss + (f.cross_entropy(y, labels, self.weights, reduction=none) ** 2).mean()
        smooth = f.cross_entropy(y, some, ignore_index=-1, label_smoothing=0.2, reduction=none)
        loss = loss + smooth.sum() + f.cross_entropy(y, target.softmax(1), reduction=none).mean()
        grid = y.reshape(2, 2, 5).transpose(1, 2)
        each = f.cross_entropy(grid, labels.reshape(2, 2), ignore_index=2, reduction=none)
        loss = loss + each.square().sum()
        hidden = y.masked_fill(self.weights == 1, -torch.inf)  # no label that counts
        loss = loss + f.cross_entropy(hidden, some, ignore_index=-1, reduction=none).sum()
        return loss + f.nll_loss(f.log_softmax(y, 1), labels, self.weights, reduction=none).mean()


class ComputedIndices(nn.Module):
    """Positions, masks and labels that are computed from tokens, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=1)
        self.positions = nn.Embedding(9, 8, padding_idx=1)
        self.kinds = nn.Embedding(2, 8)
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Tensor, shown: Tensor) -> Tensor:
        f, real = functional, tokens.ne(1)
        counted = real.int()
        places = ((torch.cumsum(counted, dim=1).type_as(counted) + 0) * counted).long() + 1
        x = self.table(tokens) + self.positions(places) + self.kinds((tokens == 3).long())
        before = tokens.new_zeros(tokens.shape)
        before[:, 1:] = tokens[:, :-1].clone()
        before[:, 0] = 2
        before.masked_fill_(before == 3, 6)
        x = (x + self.table(before)).cumsum(1) * 0.5
        seen = real[:, None, None, :] & (shown[:, None, None, :] != 0)
        heads = (
            each(x).view(2, 6, 2, 4).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        y = f.scaled_dot_product_attention(*heads, attn_mask=seen).transpose(1, 2).flatten(2)
        added = (1.0 - shown[:, :, None].float()) * -0.5
        y = torch.where(real[:, :, None], x + y, added)
        y = y.masked_fill(tokens.eq(7)[:, :, None], 0.25)
        logits = self.head(y)[:, :-1].flatten(0, 1)
        following = tokens[:, 1:].flatten()
        return f.cross_entropy(logits, following) + f.cross_entropy(
            logits, following, ignore_index=1
        )


class Compared(nn.Module):
    """Comparisons of tensors with tensors and numbers, and what is made of true and false."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 6), nn.Linear(6, 6)
        self.register_buffer("edges", torch.tensor([-0.5, 0.0, 0.25, 0.5, 1.0, -1.0]))

    def forward(self, tokens: Tensor, lengths: Tensor, seen: Tensor, labels: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        inside = (places[None] < lengths[:, None]) & ~(tokens == 5) | seen
        first = (tokens <= 2) ^ (tokens >= lengths[:, None])
        x = self.table(tokens)
        y = self.layer(x)
        y = torch.where(y > self.edges, y * 1.5, y * 0.5)
        y = torch.where((x > 0) & (y <= 0.75), x, y) + (x >= y).float() * y
        y = y.masked_fill(first[..., None], 0.5) + seen[..., None] * x
        y = torch.where(torch.logical_or(tokens, tokens != lengths[:, None])[..., None], y, x)
        y = (y * inside[..., None].to(y.dtype)).sum(1) / lengths[:, None].clamp(min=1)
        return functional.cross_entropy(y, labels) + (y < -0.1).sum() * y.mean()


class Filled(nn.Module):
    """Parts that are set in place, elements at places, bicubic upsampling, pooled rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.all = nn.Linear(6, 9)
        self.out = nn.Linear(6, 11)
        places = torch.arange(6)[:, None] - torch.arange(6)[None] + 5
        self.register_buffer("places", places)

    def forward(self, image: Tensor, tokens: Tensor) -> Tensor:
        f = functional
        x = f.interpolate(self.conv(image), size=(9, 9), mode="bicubic", align_corners=True)
        x = f.interpolate(x, scale_factor=2 / 3, mode="bicubic").mean(2)
        bias = self.all.bias.clone()
        bias[3:6].zero_()
        q, k, _ = f.linear(x.mean(1), self.all.weight, bias).chunk(3, 1)
        rows = torch.cat([torch.tensor([]), x * 2], 1)
        rows[:, 0] = 0.5
        rows[:, 1, :2] = q[:, :2]
        far = f.pad(rows, (2, 3, 0, 1), value=-1.5)[:, None].expand(2, 3, 4, 11)
        picked = far.gather(3, self.places[:4].clamp(0, 10)[None, None].expand(2, 3, 4, 6))
        few = far[:, torch.tensor([0, 2, 2]), torch.tensor([1, 0, 3])].sum((1, 2))
        narrow = f.avg_pool1d(f.max_pool1d(rows, 2, stride=1), 2, stride=1, padding=1)
        few = few + f.adaptive_avg_pool1d(narrow, 4).mean((1, 2))
        y = picked.mean(1) + few[:, None, None] + k.mean() + (self.all.bias * 0.1).sum()
        logits = self.out(y)
        labels = f.pad(tokens, (0, 1), value=-100)[..., 1:]
        kinds = torch.zeros(2, 12, dtype=torch.long).gather(1, tokens)
        loss = f.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return loss + 0.0 * kinds.float().sum()


class RandomPaths(nn.Module):
    """Stochastic depth as torchvision, timm and transformers write it, and dropout of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)])
        self.channels = nn.Dropout2d(0.25)
        self.out = nn.Linear(4, 3)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        first, second, third, fourth = self.blocks
        x, kept = image, 0.75
        noise = torch.empty([image.shape[0], 1, 1, 1], dtype=x.dtype).bernoulli_(kept)
        noise.div_(kept)
        x = x + first(x) * noise
        x = x + second(x) * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(kept)
        drawn = torch.floor(kept + torch.rand((x.shape[0], 1, 1, 1)))
        x = x + third(x).div(kept) * drawn
        rows = fourth(x).permute(0, 2, 3, 1)
        every = rows.new_empty((1, 1, 1, 1)).bernoulli_(kept).div(kept)
        x = self.channels(x + (rows * every).permute(0, 3, 1, 2))
        return functional.cross_entropy(self.out(x.mean((2, 3))), labels)


class MergedInPlace(nn.Module):
    """An operation in place on a tensor of which PyTorch has a view, and this project a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x.transpose(0, 1))
        rows = x.view(-1, 4)
        functional.relu(rows, inplace=True)
        return functional.cross_entropy(rows + x.flatten(0, 1), labels)


class FilledConstants(nn.Module):
    """Tensors of equal numbers, of which parts are set, one of them after another was read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, padded: Tensor, labels: Tensor) -> Tensor:
        h = self.layer(x)
        first, second = torch.zeros(2, 4, 6), torch.zeros(2, 4, 6)
        y = h + first
        second[:, 0], second[:, 1:3] = h[:, 0], 2.0
        turned = torch.ones(2, 4, 6)
        turned.transpose(1, 2)[:, 0] = h[:, :, 0]
        turned.view(2, 24)[:, 5] = h[:, 0, 1]
        rows = torch.zeros(2, 4, 6)
        rows[0] = h[0]
        rows[1] = rows[0] * 2
        seen, steps = torch.ones(4, 4), torch.arange(6.0)
        seen[0, 1], seen[2, 3:], steps[2] = 0, 0, 5
        scores = (y @ y.transpose(1, 2) * seen).masked_fill(torch.eye(4, dtype=torch.bool), -1e4)
        hidden = torch.zeros_like(padded, dtype=torch.float).masked_fill_(padded, -torch.inf)
        y = (scores + hidden[:, None]).softmax(-1) @ (y * steps + second + turned) + rows + first
        return functional.cross_entropy(self.out(y.mean(1)), labels)


class SameInPlace(nn.Module):
    """A product with 1, which is a copy in PyTorch, and the same tensor here."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        y = (x * 1).clamp_(min=0)
        return functional.cross_entropy(x * y, labels)


class FilledReshaped(nn.Module):
    """Elements of a reshaped tensor are set, which may be a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        all_rows = torch.zeros(2, 2, 4)
        all_rows.reshape(4, 4)[0] = x[0]
        return functional.cross_entropy(x + all_rows.view(4, 4), labels)


class Buffers(nn.Module):
    """Buffers and constants where parameters could stand: sums, products, norms and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.InstanceNorm2d(4)
        self.pool = nn.AdaptiveAvgPool2d((3, 3))
        self.mix, self.head = nn.Linear(9, 6), nn.Linear(24, 3)
        self.register_buffer("places", torch.randn(4, 12))
        self.register_buffer("filters", torch.randn(7, 6))
        self.register_buffer("weight", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        x = self.pool(self.norm(self.conv(image))).flatten(2)
        x = self.mix(x) + self.places[:, :6]
        x = x + (x @ self.filters.T).mean()
        return functional.binary_cross_entropy_with_logits(
            self.head(x.flatten(1)), target, pos_weight=self.weight
        )


class IgnoredLabels(nn.Module):
    """Sums and smoothed means over rows of which some, by their computed labels, do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        f, rows = functional, self.layer(x).flatten(0, 1)
        labels = f.pad(tokens, (0, 1), value=-100)[..., 1:].flatten()
        some = torch.tensor([1, -100, 3, 4, 0, 2, -100, 1])
        loss = f.cross_entropy(rows, labels, reduction="sum") / 7
        loss = loss + f.cross_entropy(rows, labels, label_smoothing=0.1)
        loss = loss + f.cross_entropy(rows, labels, label_smoothing=0.2, reduction="sum") / 5
        loss = loss + f.cross_entropy(rows, some, label_smoothing=0.3)
        return loss + f.cross_entropy(rows, tokens.flatten(), label_smoothing=0.1)


class SetParts(nn.Module):
    """Parts are set through views of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        f, h = functional, self.layer(x)
        square = h @ h.T
        square.diagonal().fill_(-2.0)
        loss = f.cross_entropy(square, labels)
        y, z, u, v = h * 2, h * 3, h * 4, h * 5
        y.T[0], y.mT[1], y.swapaxes(0, 1)[2], y.movedim(0, 1)[3] = 0.5, 1.5, 2.5, 3.5
        z.view_as(torch.zeros(2, 16))[0], z.expand_as(h)[:, 1] = 0.5, 1.5
        turned = u.view(2, 2, 8).transpose(0, 1).reshape(4, 8)
        turned[:, 0] = 3.0
        loss = loss + self.out(turned.view(2, 2, 8).transpose(0, 1)).square().mean()
        v.swapaxes(0, 1).clamp_(min=0)
        ones = torch.ones(4, 4)
        ones.T[0], ones.swapaxes(0, 1)[1] = h[:, 0], 3.0
        return loss + f.cross_entropy(self.out(v) + self.out(ones @ (y + z)), labels)


class ChangedConstants(nn.Module):
    """Constants that change between two reads, and copies of constants that change."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x, mask = self.layer(x), torch.zeros(8)
        y = x + mask
        mask[0] = 5.0
        y = y.square() + mask
        for place in range(3):
            mask[place] = 1.0
            y = y * 0.9 + mask
            mask[place] = 0.0
        first = torch.zeros(8, 4)
        copy, turned = first.t().contiguous(), first.t().flip(0)
        copy[0], turned[0] = 2.0, 3.0
        y = y + x * copy + x * turned + x * first.T
        return functional.cross_entropy(self.out(y), labels)


class SetInfinite(nn.Module):
    """A part is set to minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        x[:, 3] = -torch.inf
        return functional.cross_entropy(x, labels)


class NegativePlaces(nn.Module):
    """Entries at computed places along one axis, and at constant ones from the end of another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(8, 8), nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x).view(4, 2, 4)
        last, some = torch.tensor([-1]), torch.tensor([-1, 0, 1, -2])
        x = x[labels, last] + x[labels - 3, some].square()
        return functional.cross_entropy(self.out(x), labels)


class Inexact(nn.Module):
    """Computed places among too many elements, and the bits of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.layer(x)
        entries = x.repeat(1, 1 << 20)[torch.arange(4), labels + 5]
        return (entries * (~labels).float()).sum()


class SharedInPlace(nn.Module):
    """Changes in place of what other tensors share in PyTorch, and not here."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        f = functional
        a, b, c, d, e = (self.layer(x) for _ in range(5))
        a.unfold(1, 2, 2)[:, 0] = 0.0
        f.dropout(b[:, 1:5], 0.3, training=False)[:, 0] = 0.0
        c = c.view(2, 2, 8).transpose(1, 2).contiguous()
        c.view(2, 16)[:, 0] = 0.0
        detached = d.detach()
        d[:, 0] = 0.0
        f.relu(e.unfold(1, 2, 2), inplace=True)
        zeros = torch.zeros(4, 4)
        zeros.diagonal().fill_(2.0)
        return f.cross_entropy(zeros @ (a + b + d + e + detached), labels) + c.sum()


class KeptInPlace(nn.Module):
    """Changes in place of buffers and parameters, which no update makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(8, 8), nn.Parameter(torch.randn(8))
        self.register_buffer("hidden", torch.zeros(4, 8))
        self.register_buffer("queue", torch.randn(6, 8))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = torch.tanh(self.layer(x) + self.hidden)
        self.hidden.copy_(x.detach())
        self.queue[0] = x[0].detach()
        self.queue[1].zero_()
        self.weight.detach()[0] = 0.0
        return functional.cross_entropy(x * self.weight + self.queue.mean(), labels)


class ReadWithoutGradient(nn.Module):
    """Parts and a joined tensor that a block without gradients reads first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y = self.layer(x)
        found, others = y.chunk(2, 1)
        with torch.no_grad():
            weights = found.softmax(1) * others.exp()
            scale = torch.cat((y, x), 1).abs().mean()
        loss = torch.cat((y, x), 1).square().mean() * scale
        return functional.cross_entropy(found * weights + others.tanh(), labels) + loss


class ComparedMask(nn.Module):
    """Attention with masks that are true or false, compared from trained tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scores = nn.Linear(4, 4), nn.Linear(4, 5)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        y, scores = self.layer(x), self.scores(x)
        shown = (scores > 0) | torch.eye(5, dtype=torch.bool)
        x = functional.scaled_dot_product_attention(y, y, x, shown)
        near = torch.zeros(2, 5, 5).masked_fill(scores < -0.2, -2.0)
        x = x + functional.scaled_dot_product_attention(y, x, y, near)
        return functional.cross_entropy(x[:, 0], labels) + scores.square().mean()


class DroppedRepeated(nn.Module):
    """Dropout of a parameter that is repeated for all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.out = nn.Parameter(torch.ones(8)), nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        start = functional.dropout(self.start.expand(4, 8), 0.5)
        return functional.cross_entropy(self.out(x + start), labels)


class SelectedLoss(nn.Module):
    """A loss that is one of the numbers of a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return (self.layer(x) - target).square().mean(0)[1]


class ConstantPlace(nn.Module):
    """Rows at a constant place that has no axes."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.rows = nn.Embedding(3, 4), nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = x + self.kind(torch.tensor(1)) * self.rows.index_select(0, torch.tensor(4))
        return functional.cross_entropy(x * self.rows[torch.tensor(-2)], labels)


class OnePrediction(nn.Module):
    """Predictions without an axis of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class ScalarInput(nn.Module):
    """An input without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor, temperature: Tensor) -> Tensor:
        return functional.cross_entropy(self.layer(x) / temperature, labels)


def _indices(bound: int, *shape: int) -> Tensor:
    return torch.randint(0, bound, shape)


_Inputs: TypeAlias = Callable[[], tuple[Tensor, ...]]
_NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], _Inputs]] = {
    "convolutional": (Convolutional, lambda: (torch.randn(4, 2, 8, 8), _indices(5, 4))),
    "sequences": (Sequences, lambda: (_indices(11, 2, 5), _indices(11, 10))),
    "waves": (Waves, lambda: (torch.randn(4, 2, 12), torch.randn(4, 3))),
    "beyond_norm": (BackwardBeyondNorm, lambda: (torch.randn(4, 6), _indices(3, 4))),
    "activations": (Activations, lambda: (3 * torch.randn(6, 5), _indices(5, 6))),
    "norms": (Norms, lambda: (torch.randn(4, 2, 6, 6), torch.randn(2, 8))),
    "views": (Views, lambda: (torch.randn(2, 2, 6, 6), _indices(3, 2))),
    "in_place": (InPlace, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "classifier": (Classifier, lambda: (_indices(11, 3, 5), _indices(3, 3))),
    "keywords": (Keywords, lambda: (torch.randn(3, 16, 40), _indices(4, 3))),
    "recurrent": (Recurrent, lambda: (torch.randn(2, 5, 3), _indices(3, 2))),
    "temporal": (Temporal, lambda: (torch.randn(2, 3, 11), _indices(3, 2))),
    "changed_copy": (ChangedCopy, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "norm_twice": (NormTwice, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "predictions": (Predictions, lambda: (torch.randn(4, 4),)),
    "stopped": (Stopped, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "unsupported": (Unsupported, lambda: (torch.randn(2, 1, 6, 6), _indices(3, 2))),
    "pooled": (Pooled, lambda: (torch.randn(2, 3, 11, 7), _indices(5, 2))),
    "arithmetic": (Arithmetic, lambda: (torch.randn(4, 6), _indices(3, 4))),
    "composed_loss": (
        ComposedLoss,
        lambda: (torch.randn(4, 6), _indices(3, 4), torch.randn(4, 3)),
    ),
    "composed_functions": (
        ComposedFunctions,
        lambda: (torch.randn(2, 2, 12, 12), _indices(3, 2)),
    ),
    "composed_losses": (
        ComposedLosses,
        lambda: (torch.randn(4, 6), _indices(5, 4), torch.randn(4, 5)),
    ),
    "positions": (Positions, lambda: (_indices(11, 2, 7), _indices(5, 2, 7))),
    "segmentation": (Segmentation, lambda: (torch.randn(2, 2, 5, 6), torch.rand(2, 1, 10, 12))),
    "attending": (
        Attending,
        lambda: (
            *(torch.randn(2, 6, 8), torch.randn(2, 4, 8)),
            torch.randn(2, 1, 1, 6).masked_fill(torch.rand(2, 1, 1, 6) < 0.3, -torch.inf),
            torch.rand(2, 1, 1, 4) < 0.7,
            _indices(3, 2),
        ),
    ),
    "decoder": (Decoder, lambda: (_indices(13, 2, 7), _indices(13, 14))),
    "dropped": (Dropped, lambda: (torch.randn(2, 5, 4), _indices(3, 2))),
    "trained_mask": (TrainedMask, lambda: (torch.randn(2, 5, 4), _indices(3, 2))),
    "products": (Products, lambda: (torch.randn(2, 5, 8), _indices(3, 2))),
    "not_products": (NotProducts, lambda: (torch.randn(2, 5, 4), _indices(3, 2))),
    "encoder": (Encoder, lambda: (torch.randn(2, 5, 8), _indices(3, 2))),
    "weighted": (
        Weighted,
        lambda: (
            *(torch.randn(4, 6), torch.tensor([4, 1, 2, 0]), torch.tensor([-1, 1, 4, -1])),
            torch.randn(4, 5),
        ),
    ),
    "compositions": (
        Compositions,
        lambda: (torch.randn(2, 4, 6), torch.tensor([3, 1]), _indices(3, 2)),
    ),
    "irregular": (
        Irregular,
        lambda: (
            *(torch.rand(4, 4) + 0.5, torch.tensor([1.0, 0.0, 0.02, -1.0])[:, None]),
            torch.rand(4, 4),
        ),
    ),
    "resized": (Resized, lambda: (torch.randn(2, 3, 8), torch.randn(2, 3, 10))),
    "partly_stopped": (PartlyStopped, lambda: (torch.randn(2, 4), _indices(4, 2))),
    "padded": (Padded, lambda: (torch.tensor([[2, 1, 0], [4, 2, 2]]), _indices(4, 2))),
    "kinks": (Kinks, lambda: (torch.randn(4, 5, 3), torch.randn(5, 3))),
    "infinite": (Infinite, lambda: (torch.randn(3, 4), _indices(4, 3))),
    "weight_norms": (WeightNorms, lambda: (torch.randn(2, 2, 5), _indices(3, 2))),
    "each_row": (
        EachRow,
        lambda: (
            *(torch.randn(4, 6), torch.tensor([4, 1, 2, 0]), torch.tensor([-1, 1, 4, -1])),
            torch.randn(4, 5),
        ),
    ),
    "computed_indices": (
        ComputedIndices,
        lambda: (
            torch.tensor([[3, 5, 7, 2, 1, 1], [4, 10, 3, 3, 0, 9]]),
            torch.tensor([[1, 1, 0, 1, 1, 1], [1, 0, 0, 1, 1, 1]]),
        ),
    ),
    "compared": (
        Compared,
        lambda: (
            torch.tensor([[1, 5, 2, 3, 8], [0, 0, 7, 5, 4], [2, 4, 4, 4, 1]]),
            *(torch.tensor([3, 5, 2]), torch.rand(3, 5) < 0.3, _indices(6, 3)),
        ),
    ),
    "filled": (Filled, lambda: (torch.randn(2, 2, 5, 4), _indices(11, 2, 4))),
    "random_paths": (RandomPaths, lambda: (torch.randn(4, 4, 6, 6), _indices(3, 4))),
    "filled_constants": (
        FilledConstants,
        lambda: (
            torch.randn(2, 4, 6),
            torch.tensor([[0, 0, 0, 1], [0, 1, 1, 0]]).bool(),
            _indices(3, 2),
        ),
    ),
    "buffers": (Buffers, lambda: (torch.randn(2, 2, 8, 8), torch.rand(2, 3))),
    "ignored_labels": (IgnoredLabels, lambda: (torch.randn(2, 4, 6), _indices(5, 2, 4))),
    "set_parts": (SetParts, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "changed_constants": (ChangedConstants, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "set_infinite": (SetInfinite, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "negative_places": (NegativePlaces, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "inexact": (Inexact, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "selected": (
        Selected,
        lambda: (torch.randn(2, 5, 6), torch.tensor([3, 1]), _indices(3, 2)),
    ),
    "tied_transposed": (TiedTransposed, lambda: (torch.randn(3, 6),)),
    "frozen_view": (FrozenView, lambda: (torch.randn(3, 6),)),
    "beside": (Beside, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "changed_heads": (ChangedHeads, lambda: (torch.randn(2, 5, 8), _indices(3, 2))),
    "shared_in_place": (SharedInPlace, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "kept_in_place": (KeptInPlace, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "same_in_place": (SameInPlace, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "filled_reshaped": (FilledReshaped, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "merged_in_place": (MergedInPlace, lambda: (torch.randn(2, 3, 4), _indices(4, 6))),
    "read_without_gradient": (ReadWithoutGradient, lambda: (torch.randn(4, 4), _indices(3, 4))),
    "compared_mask": (ComparedMask, lambda: (torch.randn(2, 5, 4), _indices(3, 2))),
    "dropped_repeated": (DroppedRepeated, lambda: (torch.randn(4, 8), _indices(3, 4))),
    "selected_loss": (SelectedLoss, lambda: (torch.randn(4, 4), torch.randn(4, 3))),
    "constant_place": (ConstantPlace, lambda: (torch.randn(4, 4), _indices(4, 4))),
    "one_prediction": (OnePrediction, lambda: (torch.randn(1, 4),)),
    "scalar_input": (
        ScalarInput,
        lambda: (torch.randn(4, 4), _indices(3, 4), torch.tensor(2.0)),
    ),
}


def record() -> None:
    """Write all files. Each network's numbers depend on its name alone."""
    FOLDER.mkdir(exist_ok=True)
    for name, (build, make_inputs) in _NETWORKS.items():
        torch.manual_seed(zlib.crc32(name.encode()))
        inputs, module = make_inputs(), build().train()
        program = torch.export.export(module, inputs, strict=False)
        save(program, FOLDER / f"{name}.pt2")
        if name in _NOT_TRAINED:
            continue
        names = [spec.arg.name for spec in program.graph_signature.input_specs][-len(inputs) :]
        loss = _loss(module, inputs)
        loss.backward()
        arrays = {f"input.{key}": value.numpy() for key, value in zip(names, inputs, strict=True)}
        for key, parameter in module.named_parameters():
            if parameter.grad is not None:
                arrays[f"gradient.{key}"] = parameter.grad.numpy()
        for key, buffer in module.named_buffers():
            arrays[f"buffer.{key}"] = buffer.numpy().copy()
        arrays.update((f"trained.{key}", each) for key, each in _trained(module, inputs).items())
        np.savez(FOLDER / f"{name}.npz", loss=loss.detach().numpy(), **arrays)


def _loss(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    returned = module(*inputs)
    loss: Tensor = returned[0] if isinstance(returned, tuple) else returned
    return loss


def save(program: torch.export.ExportedProgram, path: Path) -> None:
    """Save a program without the places where this checkout and its packages lie."""
    content = io.BytesIO()
    torch.export.save(program, content)
    packages = str(Path(torch.__file__).parents[1])
    with zipfile.ZipFile(content) as saved, zipfile.ZipFile(path, "w") as archive:
        for member in saved.infolist():
            kept = saved.read(member)
            if member.filename.endswith("/model.json"):
                text = kept.decode().replace(packages, "/site-packages")
                kept = text.replace(f"{ROOT}/", "").encode()
            archive.writestr(member, kept)


def _trained(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, NDArray[Any]]:
    """All weights after the steps of SGD, of which the first has its gradients already."""
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    for step in range(STEPS):
        if step:
            optimizer.zero_grad()
            _loss(module, inputs).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in module.state_dict().items()}


if __name__ == "__main__":
    record()
