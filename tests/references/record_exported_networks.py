"""Record small exported networks with PyTorch, and what PyTorch makes of one step of each.

Run ``python -m tests.references.record_exported_networks`` with PyTorch. For each network it writes
``exported/NAME.pt2`` and, where it can be trained here, ``exported/NAME.npz`` with the inputs, the
loss, the gradients, the buffers after one step, and all weights after three steps of SGD on the
same inputs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from networks.kinds import LEARNING_RATE
from tests.support.paths import REFERENCES, ROOT

FOLDER = REFERENCES / "exported"
STEPS = 3
_NOT_TRAINED = {"predictions", "unsupported", "changed_copy", "norm_twice"}


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


class Unsupported(nn.Module):
    """Three operations that cannot be trained here, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dilated = nn.MaxPool2d(3, dilation=2)

    def forward(self, image: Tensor, labels: Tensor) -> Tensor:
        x = self.dilated(image).flatten(1)
        x = x.cumsum(1)
        x = x.cumsum(1)
        return functional.cross_entropy(x[:, :3], labels)


def _networks() -> dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]]:
    def indices(bound: int, *shape: int) -> Tensor:
        return torch.randint(0, bound, shape)

    return {
        "convolutional": (Convolutional, (torch.randn(4, 2, 8, 8), indices(5, 4))),
        "sequences": (Sequences, (indices(11, 2, 5), indices(11, 10))),
        "waves": (Waves, (torch.randn(4, 2, 12), torch.randn(4, 3))),
        "beyond_norm": (BackwardBeyondNorm, (torch.randn(4, 6), indices(3, 4))),
        "activations": (Activations, (3 * torch.randn(6, 5), indices(5, 6))),
        "norms": (Norms, (torch.randn(4, 2, 6, 6), torch.randn(2, 8))),
        "views": (Views, (torch.randn(2, 2, 6, 6), indices(3, 2))),
        "in_place": (InPlace, (torch.randn(4, 4), indices(4, 4))),
        "classifier": (Classifier, (indices(11, 3, 5), indices(3, 3))),
        "keywords": (Keywords, (torch.randn(3, 16, 40), indices(4, 3))),
        "recurrent": (Recurrent, (torch.randn(2, 5, 3), indices(3, 2))),
        "temporal": (Temporal, (torch.randn(2, 3, 11), indices(3, 2))),
        "changed_copy": (ChangedCopy, (torch.randn(4, 4), indices(4, 4))),
        "norm_twice": (NormTwice, (torch.randn(4, 4), indices(4, 4))),
        "predictions": (Predictions, (torch.randn(4, 4),)),
        "unsupported": (Unsupported, (torch.randn(2, 1, 6, 6), indices(3, 2))),
    }


def record() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(1)
    for name, (build, inputs) in _networks().items():
        module = build().train()
        program = torch.export.export(module, inputs, strict=False)
        _save(program, FOLDER / f"{name}.pt2")
        if name in _NOT_TRAINED:
            continue
        names = [spec.arg.name for spec in program.graph_signature.input_specs][-len(inputs) :]
        loss = module(*inputs)
        loss.backward()
        arrays = {f"input.{key}": value.numpy() for key, value in zip(names, inputs, strict=True)}
        for key, parameter in module.named_parameters():
            if parameter.grad is not None:
                arrays[f"gradient.{key}"] = parameter.grad.numpy()
        for key, buffer in module.named_buffers():
            arrays[f"buffer.{key}"] = buffer.numpy().copy()
        arrays.update((f"trained.{key}", each) for key, each in _trained(module, inputs).items())
        np.savez(FOLDER / f"{name}.npz", loss=loss.detach().numpy(), **arrays)


def _save(program: torch.export.ExportedProgram, path: Path) -> None:
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
            module(*inputs).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in module.state_dict().items()}


if __name__ == "__main__":
    record()
