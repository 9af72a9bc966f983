"""POET's smallest network (Patil et al. 2022): six linear layers on an image of 28 × 28.

ReLU follows every layer, the last one too.
"""

from __future__ import annotations

from networks.training import Network

_FEATURES = (10, 120, 100, 200, 10, 10)


def linear(batch: int) -> Network:
    """Six linear layers on an image of 28 × 28, 10 classes."""
    net = Network("linear", batch)
    x = net.input("image", batch, 784)
    for number, features in enumerate(_FEATURES, start=1):
        x = net.relu(f"linear{number}.relu", net.linear(f"linear{number}", x, features))
    net.softmax_cross_entropy("loss", x, net.input("labels", batch))
    return net
