"""The four networks of MLPerf Tiny (Banbury et al. 2021), and a smaller one.

They follow the reference implementations: convolutions have biases and ``same`` padding although
batch norm follows them. The smaller network, in the same style, is for microcontrollers that are
too small for any operation of the others.
"""

from __future__ import annotations

from networks.training import Network, Value


def resnet8(batch: int) -> Network:
    """Image classification, CIFAR-10.

    Shortcuts that change the shape are a 1 × 1 convolution without batch norm.
    """
    net = Network("resnet8", batch)
    x = _conv_norm_relu(net, "stem", net.input("image", batch, 3, 32, 32), 16, kernel=3)
    for stage, (channels, stride) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
        name = f"stage{stage}"
        y = _conv_norm_relu(net, f"{name}.1", x, channels, kernel=3, stride=stride)
        y = net.conv2d(f"{name}.2.conv", y, channels, 3, padding="same", bias=True)
        y = net.batch_norm(f"{name}.2.norm", y)
        if x.shape != y.shape:
            x = net.conv2d(
                f"{name}.shortcut", x, channels, 1, stride=stride, padding="same", bias=True
            )
        x = net.relu(f"{name}.relu", net.add(f"{name}.add", x, y))
    return _classify(net, x, classes=10)


def dscnn(batch: int) -> Network:
    """Keyword spotting, Speech Commands: 49 frames of 10 coefficients, 12 classes.

    The small DS-CNN of Zhang et al. 2017, Hello Edge.
    """
    net = Network("dscnn", batch)
    frames = net.input("frames", batch, 1, 49, 10)
    x = _conv_norm_relu(net, "stem", frames, 64, kernel=(10, 4), stride=2)
    x = net.dropout("stem.dropout", x, 0.2)
    for number in range(1, 5):
        x = _separable(net, f"block{number}", x, 64, stride=1)
    return _classify(net, net.dropout("dropout", x, 0.4), classes=12)


# Channels and stride of MobileNet's separable convolutions at a quarter of its width.
_MOBILENET_BLOCKS = (
    *((16, 1), (32, 2), (32, 1), (64, 2), (64, 1)),
    *((128, 2), (128, 1), (128, 1), (128, 1), (128, 1), (128, 1)),
    *((256, 2), (256, 1)),
)


def mobilenet(batch: int) -> Network:
    """Visual wake words, 96 × 96, 2 classes (Howard et al. 2017, MobileNets, width 0.25)."""
    net = Network("mobilenet", batch)
    image = net.input("image", batch, 3, 96, 96)
    x = _conv_norm_relu(net, "stem", image, 8, kernel=3, stride=2)
    for number, (channels, stride) in enumerate(_MOBILENET_BLOCKS, start=1):
        x = _separable(net, f"block{number}", x, channels, stride)
    return _classify(net, x, classes=2)


def autoencoder(batch: int) -> Network:
    """Anomaly detection, ToyADMOS: five frames of 128 mel bins, reproduced through a bottleneck."""
    net = Network("autoencoder", batch)
    x = frames = net.input("frames", batch, 640)
    for number, features in enumerate((*[128] * 4, 8, *[128] * 4), start=1):
        x = net.batch_norm(f"linear{number}.norm", net.linear(f"linear{number}", x, features))
        x = net.relu(f"linear{number}.relu", x)
    net.mean_squared_error("loss", net.linear("linear10", x, 640), frames)
    return net


def digits(batch: int) -> Network:
    """Handwritten digits of 8 × 8 pixels, 10 classes (data set of Alpaydin and Kaynak 1998).

    Every operation on one image fits into 10 KB.
    """
    net = Network("digits", batch)
    x = _conv_norm_relu(net, "stem", net.input("image", batch, 1, 8, 8), 8, kernel=3)
    x = _separable(net, "block1", x, 16, stride=2)
    x = _separable(net, "block2", x, 32, stride=1)
    return _classify(net, x, classes=10)


def _classify(net: Network, x: Value, *, classes: int) -> Network:
    x = net.global_average_pool("pool", x)
    x = net.linear("classifier", x, classes)
    net.softmax_cross_entropy("loss", x, net.input("labels", net.batch))
    return net


def _conv_norm_relu(
    net: Network,
    name: str,
    x: Value,
    channels: int,
    *,
    kernel: int | tuple[int, int],
    stride: int = 1,
    depthwise: bool = False,
) -> Value:
    y = net.conv2d(
        f"{name}.conv",
        x,
        channels,
        kernel,
        stride=stride,
        padding="same",
        groups=channels if depthwise else 1,
        bias=True,
    )
    return net.relu(f"{name}.relu", net.batch_norm(f"{name}.norm", y))


def _separable(net: Network, name: str, x: Value, channels: int, stride: int) -> Value:
    x = _conv_norm_relu(
        net, f"{name}.depthwise", x, x.shape[1], kernel=3, stride=stride, depthwise=True
    )
    return _conv_norm_relu(net, f"{name}.pointwise", x, channels, kernel=1)
