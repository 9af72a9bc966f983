"""The four networks of MLPerf Tiny (Banbury et al. 2021), as in the reference implementations:
convolutions have biases and ``same`` padding although batch norm follows them."""

from __future__ import annotations

from solver.training import Network, Value


def resnet8(batch: int) -> Network:
    """Image classification, CIFAR-10. Shortcuts that change the shape are a 1 × 1 convolution
    without batch norm."""
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
