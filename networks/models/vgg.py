"""VGG-16 (Simonyan and Zisserman 2015, Very Deep Convolutional Networks, configuration D).

For 32 × 32 images the five poolings leave one pixel, so the first of the three linear layers has
512 inputs instead of 25,088; everything else is the same.
"""

from __future__ import annotations

from networks.training import Network

# Channels of the convolutions between two poolings.
_GROUPS = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)


def vgg16(batch: int) -> Network:
    """VGG-16 for ImageNet: 224 × 224, 1000 classes."""
    return _vgg16("vgg16", batch, size=224, classes=1000)


def vgg16_cifar(batch: int) -> Network:
    """VGG-16 for CIFAR-10: 32 × 32, 10 classes."""
    return _vgg16("vgg16_cifar", batch, size=32, classes=10)


def _vgg16(name: str, batch: int, *, size: int, classes: int) -> Network:
    net = Network(name, batch)
    x = net.input("image", batch, 3, size, size)
    for group, layers in enumerate(_GROUPS, start=1):
        for number, channels in enumerate(layers, start=1):
            layer = f"group{group}.conv{number}"
            x = net.relu(f"{layer}.relu", net.conv2d(layer, x, channels, 3, padding=1, bias=True))
        x = net.max_pool2d(f"group{group}.pool", x, 2, stride=2)
    x = net.flatten("flatten", x)
    for number in (1, 2):
        x = net.relu(f"linear{number}.relu", net.linear(f"linear{number}", x, 4096))
        x = net.dropout(f"linear{number}.dropout", x, 0.5)
    net.softmax_cross_entropy("loss", net.linear("linear3", x, classes), net.input("labels", batch))
    return net
