"""Training step of ResNet-18 (CIFAR) in PyTorch."""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from tests.support.onboard.kernels import Array


class _Block(nn.Module):
    """Two 3 × 3 convolutions and a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.append(nn.Conv2d(inner, outer, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def _resnet18_cifar() -> nn.Sequential:
    """ResNet-18 with parameters in the order of the model in :mod:`networks.models`."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(inner, outer, stride), _Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class PyTorchStep:
    """Forward, backward and SGD update, eager."""

    def __init__(self, images: Array, labels: Array, learning_rate: float) -> None:
        torch.manual_seed(1)
        self.model = _resnet18_cifar()
        self._images = torch.from_numpy(images)
        self._labels = torch.from_numpy(labels.astype(np.int64))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
        self.loss = 0.0

    @property
    def parameters(self) -> list[Array]:
        return [p.detach().numpy().copy() for p in self.model.parameters()]

    def run_s(self) -> float:
        """Run one step. Returns its seconds."""
        start = time.perf_counter()
        self._optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(self._images), self._labels)
        torch.autograd.backward(loss)
        self._optimizer.step()
        elapsed = time.perf_counter() - start
        self.loss = loss.item()
        return elapsed
