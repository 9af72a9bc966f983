"""Residual networks (He, Zhang, Ren and Sun 2016, Deep Residual Learning for Image Recognition).

With 10 classes and images of 32 × 32, the stem is one 3 × 3 convolution and nothing is pooled
before the last layer, as in the paper for CIFAR-10; the four stages are those of ResNet-18.
In bottlenecks the 3 × 3 convolution has the stride, as in ResNet-50 since Goyal et al. 2017 (in the
paper, the first 1 × 1 convolution has it).
"""

from __future__ import annotations

from collections.abc import Sequence

from networks.training import Network, Value

_STAGE_CHANNELS = (64, 128, 256, 512)


def resnet18(batch: int) -> Network:
    """ResNet-18 for ImageNet: 224 × 224, 1000 classes."""
    return _imagenet("resnet18", batch, (2, 2, 2, 2), bottleneck=False)


def resnet50(batch: int) -> Network:
    """ResNet-50 for ImageNet: 224 × 224, 1000 classes."""
    return _imagenet("resnet50", batch, (3, 4, 6, 3), bottleneck=True)


def resnet18_cifar(batch: int) -> Network:
    """ResNet-18 for CIFAR-10: 32 × 32, 10 classes."""
    net = Network("resnet18_cifar", batch)
    image = net.input("image", batch, 3, 32, 32)
    x = _conv_norm(net, "stem", image, 64, kernel=3, stride=1)
    x = net.relu("stem.relu", x)
    return _stages_and_head(net, x, (2, 2, 2, 2), bottleneck=False, classes=10)


def _imagenet(name: str, batch: int, blocks: Sequence[int], *, bottleneck: bool) -> Network:
    net = Network(name, batch)
    image = net.input("image", batch, 3, 224, 224)
    x = _conv_norm(net, "stem", image, 64, kernel=7, stride=2)
    x = net.relu("stem.relu", x)
    x = net.max_pool2d("stem.pool", x, 3, stride=2, padding=1)
    return _stages_and_head(net, x, blocks, bottleneck=bottleneck, classes=1000)


def _stages_and_head(
    net: Network, x: Value, blocks: Sequence[int], *, bottleneck: bool, classes: int
) -> Network:
    for stage, (channels, count) in enumerate(zip(_STAGE_CHANNELS, blocks, strict=True), start=1):
        for block in range(1, count + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            name = f"stage{stage}.block{block}"
            x = (_bottleneck if bottleneck else _basic)(net, name, x, channels, stride)
    x = net.global_average_pool("pool", x)
    x = net.linear("classifier", x, classes)
    net.softmax_cross_entropy("loss", x, net.input("labels", net.batch))
    return net


def _basic(net: Network, name: str, x: Value, channels: int, stride: int) -> Value:
    y = _conv_norm(net, f"{name}.1", x, channels, kernel=3, stride=stride)
    y = net.relu(f"{name}.1.relu", y)
    y = _conv_norm(net, f"{name}.2", y, channels, kernel=3, stride=1)
    return _join(net, name, y, x, stride)


def _bottleneck(net: Network, name: str, x: Value, channels: int, stride: int) -> Value:
    y = _conv_norm(net, f"{name}.1", x, channels, kernel=1, stride=1)
    y = net.relu(f"{name}.1.relu", y)
    y = _conv_norm(net, f"{name}.2", y, channels, kernel=3, stride=stride)
    y = net.relu(f"{name}.2.relu", y)
    y = _conv_norm(net, f"{name}.3", y, 4 * channels, kernel=1, stride=1)
    return _join(net, name, y, x, stride)


def _join(net: Network, name: str, y: Value, x: Value, stride: int) -> Value:
    """Add the shortcut: identity if the shapes agree, else a projection (option B)."""
    if x.shape != y.shape:
        x = _conv_norm(net, f"{name}.shortcut", x, y.shape[1], kernel=1, stride=stride)
    return net.relu(f"{name}.relu", net.add(f"{name}.add", y, x))


def _conv_norm(
    net: Network, name: str, x: Value, channels: int, *, kernel: int, stride: int
) -> Value:
    y = net.conv2d(f"{name}.conv", x, channels, kernel, stride=stride, padding=kernel // 2)
    return net.batch_norm(f"{name}.norm", y)
