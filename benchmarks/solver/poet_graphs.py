"""Training steps as POET builds and costs them (Patil et al., ICML 2022; its repository, commit
6e63098).

Properties of that work, kept so that results can be compared:

- every layer is one forward op with one output; the backward pass is a chain with one op for each
  layer, which reads the outputs of that layer and of the next one in the list, and the gradient
  before;
- a gradient has the size of the output of the next layer in the list, and costs twice the forward
  op;
- shortcuts differ from the networks' papers: the second shortcut of a transformer block starts at
  the projection, that of a bottleneck at the first ReLU of the block, whatever its size;
- a linear layer counts its FLOP for one row, whatever the number of rows.

Parameters and updates are not in the problem. The batch size is 1. Every tensor is float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from devices.profile import DeviceProfile
from devices.published import load_published
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor

_ELEMENT_BYTES = 4

_SEQUENCE = 512
_HIDDEN = 768
_HEADS = 12
_HEAD_FEATURES = _HIDDEN // _HEADS


@dataclass(frozen=True)
class _Layer:
    """One layer. ``inputs`` are numbers of layers, ``shape`` is that of the output."""

    kind: str
    shape: tuple[int, ...]
    flop: int
    inputs: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _ELEMENT_BYTES


class _Net:
    """Layers in the order of the published list. A method appends a layer or a block to the last
    layer, unless it is given a source. Methods that append one layer return its number."""

    def __init__(self, *input_shape: int) -> None:
        self.layers = [_Layer("InputLayer", input_shape, 0, ())]

    @property
    def last(self) -> int:
        return len(self.layers) - 1

    def _shape(self, layer: int) -> tuple[int, ...]:
        return self.layers[layer].shape

    def _add(self, kind: str, shape: tuple[int, ...], flop: int, *inputs: int) -> int:
        self.layers.append(_Layer(kind, shape, flop, inputs or (self.last,)))
        return self.last

    def conv(
        self, channels: int, kernel: int, stride: int, padding: int, source: int | None = None
    ) -> int:
        source = self.last if source is None else source
        in_channels, height, width = self._shape(source)
        out = (
            channels,
            (height - kernel + 2 * padding) // stride + 1,
            (width - kernel + 2 * padding) // stride + 1,
        )
        products = kernel**2 * in_channels * height * width * channels
        return self._add("Conv2dLayer", out, 2 * products + math.prod(out), source)

    def batch_norm(self) -> int:
        return self._add(
            "BatchNorm2d", self._shape(self.last), 2 * math.prod(self._shape(self.last))
        )

    def elementwise(self, kind: str) -> int:
        return self._add(kind, self._shape(self.last), math.prod(self._shape(self.last)))

    def relu(self) -> int:
        return self.elementwise("ReLULayer")

    def skip_add(self, left: int, right: int) -> int:
        shape = self._shape(left)
        return self._add("SkipAddLayer", shape, math.prod(shape), left, right)

    def pool(self, kind: str, kernel: int, stride: int) -> int:
        channels, height, width = self._shape(self.last)
        out = (channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1)
        return self._add(kind, out, 2 * kernel**2 * math.prod(out))

    def flatten(self) -> int:
        elements = math.prod(self._shape(self.last))
        return self._add("FlattenLayer", (1, elements), elements)

    def linear(self, out_features: int, *, relu: bool = False) -> int:
        rows, in_features = self._shape(self.last)
        flop = 2 * (in_features + 1) * out_features + out_features
        flop += rows * out_features if relu else 0
        kind = "LinearLayerReLU" if relu else "LinearLayer"
        return self._add(kind, (rows, out_features), flop)

    def loss(self, classes: int) -> int:
        flop = math.prod(self._shape(self.last)) * classes
        return self._add("CrossEntropyLoss", (classes,), flop)

    def convolutional_head(self, pool: int, classes: int) -> None:
        self.pool("AvgPool2d", pool, 1)
        self.flatten()
        self.linear(classes)
        self.loss(classes)

    def transformer_block(self) -> None:
        sequence, hidden, heads, features = _SEQUENCE, _HIDDEN, _HEADS, _HEAD_FEATURES
        start = self.last
        products = sequence * hidden * features * heads
        self._add("QueryKeyValueMatrix", (3 * sequence, features, heads), 3 * products)
        scores = sequence * sequence * heads
        self._add("QKTMatrix", (sequence, sequence, heads), scores * features + 2 * scores)
        self._add("QKTVMatrix", (sequence, hidden), 2 * scores * features)
        projection = self.linear(hidden)
        self.skip_add(start, projection)
        self.linear(4 * hidden, relu=True)
        self.skip_add(projection, self.linear(hidden))


def poet_linear(board: str) -> CostedGraph:
    net = _Net(1, 784)
    for features in (10, 120, 100, 200, 10, 10):
        net.linear(features)
        net.relu()
    net.loss(10)
    return _training_step("linear", net, board)


def poet_vgg16_cifar(board: str) -> CostedGraph:
    net = _Net(3, 32, 32)
    for channels, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            net.conv(channels, 3, 1, 1)
            net.relu()
        net.pool("MaxPool2d", 2, 2)
    net.flatten()
    for _ in range(2):
        net.linear(4096)
        net.relu()
        net.elementwise("DropoutLayer")
    net.linear(10)
    net.loss(10)
    return _training_step("vgg16_cifar", net, board)


def poet_resnet18_cifar(board: str) -> CostedGraph:
    """133 ops: six basic blocks, each with a convolution in its shortcut."""
    net = _Net(3, 32, 32)
    net.conv(16, 3, 1, 1)
    net.batch_norm()
    for channels, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        start = net.last
        net.conv(channels, 3, stride, 1)
        net.batch_norm()
        net.relu()
        net.conv(channels, 3, 1, 1)
        net.batch_norm()
        main = net.relu()
        net.conv(channels, 3, stride, 1, start)
        net.skip_add(main, net.batch_norm())
        net.relu()
    net.convolutional_head(8, 10)
    return _training_step("resnet18_cifar", net, board)


def poet_resnet50(board: str) -> CostedGraph:
    """335 ops: sixteen bottlenecks for images of 224 × 224."""
    net = _Net(3, 224, 224)
    net.conv(64, 7, 2, 3)
    net.batch_norm()
    net.pool("MaxPool2d", 3, 2)
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            net.conv(channels, 1, 2 if stage and not block else 1, 0)
            net.batch_norm()
            shortcut = net.relu()
            net.conv(channels, 3, 1, 1)
            net.batch_norm()
            net.relu()
            net.conv(4 * channels, 1, 1, 0)
            net.skip_add(net.batch_norm(), shortcut)
            net.relu()
    net.convolutional_head(7, 1000)
    return _training_step("resnet50", net, board)


def poet_transformer(board: str, blocks: int = 1) -> CostedGraph:
    """19 ops, and 16 for each further block."""
    net = _Net(_SEQUENCE, _HIDDEN)
    for _ in range(blocks):
        net.transformer_block()
    net.loss(_SEQUENCE)
    name = {1: "transformer", 12: "bert"}.get(blocks, f"transformer_{blocks}_blocks")
    return _training_step(name, net, board)


def poet_bert(board: str) -> CostedGraph:
    """195 ops: twelve blocks."""
    return poet_transformer(board, blocks=12)


def _training_step(name: str, net: _Net, board: str) -> CostedGraph:
    profile = load_published(board)
    forward = net.layers
    layers = list(forward)
    for out in range(len(forward) - 2, -1, -1):
        after = forward[out + 1]
        reads = tuple(dict.fromkeys((out, out + 1, len(layers) - 1)))
        layers.append(_Layer("GradientLayer", after.shape, 2 * forward[out].flop, reads))
    names = [f"layer{number}_{layer.kind}" for number, layer in enumerate(layers)]
    order = _execution_order(layers)
    position = {number: place for place, number in enumerate(order)}

    def op(number: int) -> Op:
        layer = layers[number]
        inputs = sorted(layer.inputs, key=lambda source: position[source])
        rates = profile.rates
        assert rates is not None
        return Op(
            name=names[number],
            kind=layer.kind,
            phase="forward" if number < len(forward) else "backward",
            reads=tuple(f"{names[source]}:0" for source in inputs),
            writes=(f"{names[number]}:0",),
            time_s=layer.flop / rates.flop_per_s,
            energy_j=layer.flop / rates.flop_per_j,
        )

    return CostedGraph(
        name=f"poet/{name}_{board}",
        energy_source=profile.energy_source,
        ops=tuple(op(number) for number in order),
        tensors=tuple(
            _tensor(
                profile,
                f"{names[number]}:0",
                layers[number].bytes,
                backward=number >= len(forward),
            )
            for number in order
        ),
    )


def _execution_order(layers: list[_Layer]) -> list[int]:
    """Layers by the longest path to the end, the longest first, as in the published work. Layers
    with equal paths keep the order of the list; the published order of these is arbitrary."""
    following = [0] * len(layers)
    for number in range(len(layers) - 1, -1, -1):
        for source in layers[number].inputs:
            following[source] = max(following[source], following[number] + 1)
    return sorted(range(len(layers)), key=lambda number: -following[number])


def _tensor(profile: DeviceProfile, name: str, size_bytes: int, *, backward: bool) -> Tensor:
    assert profile.storage is not None
    out_s, out_j = profile.storage.write_cost(size_bytes)
    in_s, in_j = profile.storage.read_cost(size_bytes)
    assert out_j is not None
    assert in_j is not None
    return Tensor(
        name=name,
        bytes=size_bytes,
        kind="gradient" if backward else "activation",
        page_out=PageCost(time_s=out_s, energy_j=out_j),
        page_in=PageCost(time_s=in_s, energy_j=in_j),
    )
