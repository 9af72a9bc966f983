"""The four networks of MLPerf Tiny as PyTorch modules, equal to those of ``networks/models``."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class SamePadding(nn.Conv2d):
    """Convolution with TensorFlow's ``same`` padding, which puts an odd zero after the numbers."""

    def forward(self, x: Tensor) -> Tensor:
        zeros: list[int] = []
        for size, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True):
            whole = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            zeros = [whole // 2, whole - whole // 2, *zeros]
        padding = (zeros[2], zeros[0])
        if (zeros[3], zeros[1]) == padding:
            return functional.conv2d(
                x, self.weight, self.bias, self.stride, padding, groups=self.groups
            )
        return super().forward(functional.pad(x, zeros))


def _conv_norm(
    inner: int, outer: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1
) -> nn.Sequential:
    convolution = SamePadding(inner, outer, kernel, stride, groups=groups)
    return nn.Sequential(convolution, nn.BatchNorm2d(outer))


def _conv_norm_relu(
    inner: int, outer: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return _conv_norm(inner, outer, kernel, stride, groups).append(nn.ReLU())


def _separable(inner: int, outer: int, stride: int) -> nn.Sequential:
    depthwise = _conv_norm_relu(inner, inner, 3, stride, groups=inner)
    return depthwise.extend(_conv_norm_relu(inner, outer, 1))


def _classifier(features: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


class _Block(nn.Module):
    """Two convolutions and a shortcut, which has a convolution if the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = _conv_norm_relu(inner, outer, 3, stride)
        self.second = _conv_norm(outer, outer, 3)
        self.shortcut = SamePadding(inner, outer, 1, stride) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        return functional.relu(self.shortcut(x) + y)


def resnet8() -> nn.Module:
    """Images of 32 × 32 pixels, 10 classes."""
    blocks = (_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
    return nn.Sequential(_conv_norm_relu(3, 16, 3), *blocks, *_classifier(64, 10))


def dscnn(dropout: float = 1.0) -> nn.Module:
    """Keyword spotting, 12 classes. ``dropout`` scales the shares 0.2 and 0.4."""
    stem = _conv_norm_relu(1, 64, (10, 4), 2)
    blocks = (_separable(64, 64, 1) for _ in range(4))
    first, last = (nn.Dropout(dropout * share) for share in (0.2, 0.4))
    return nn.Sequential(stem, first, *blocks, last, *_classifier(64, 12))


def mobilenet() -> nn.Module:
    """Visual wake words, 96 × 96 pixels, 2 classes."""
    blocks = [_conv_norm_relu(3, 8, 3, 2)]
    inner = 8
    outers = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5)
    for outer, stride in (*outers, (256, 2), (256, 1)):
        blocks.append(_separable(inner, outer, stride))
        inner = outer
    return nn.Sequential(*blocks, *_classifier(256, 2))


def autoencoder() -> nn.Module:
    """Anomaly detection: five frames of 128 mel bins."""
    layers: list[nn.Module] = []
    inner = 640
    for outer in (*[128] * 4, 8, *[128] * 4):
        layers += [nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU()]
        inner = outer
    return nn.Sequential(*layers, nn.Linear(inner, 640))
