"""Layers whose operations are compared whole, in parts and in blocks, and these operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.operation import OpSpec
from devices.signatures.base import Operand
from devices.signatures.parts import needs_columns

Entry: TypeAlias = Literal["forward", "input_gradient", "parameter_gradient"]
ENTRIES: tuple[Entry, ...] = ("forward", "input_gradient", "parameter_gradient")

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """An operation on some output channels of a layer, and on some input channels.

    None stands for all channels: of a tensor of which a piece reads or writes its own.
    """

    spec: OpSpec
    outputs: Range | None = None
    inputs: Range | None = None


@dataclass(frozen=True)
class Layer:
    """A layer of a network, by the forward operation."""

    name: str
    forward: OpSpec

    @property
    def weight(self) -> Operand:
        return self.forward.reads[1]

    def channels(self, part_bytes: int) -> int:
        """Output channels of the smallest part with at least so many bytes of weights."""
        whole = self.weight.shape[0]
        return min(whole, -(-part_bytes * whole // self.weight.bytes))


def convolution(name: str, inputs: int, outputs: int, plane: int, kernel: int = 3) -> Layer:
    pads = ("pad_top", "pad_bottom", "pad_left", "pad_right")
    spec = OpSpec.of(
        "conv2d.forward",
        **{"batch": 1, "in_channels": inputs, "in_height": plane, "in_width": plane},
        **{"out_channels": outputs, "kernel_height": kernel, "kernel_width": kernel},
        **{"stride_height": 1, "stride_width": 1, **dict.fromkeys(pads, kernel // 2)},
        **{"groups": 1, "bias": 0},
    )
    return Layer(name, spec)


def linear(name: str, rows: int, inputs: int, outputs: int) -> Layer:
    sizes = {"rows": rows, "in_features": inputs, "out_features": outputs, "bias": 1}
    return Layer(name, OpSpec.of("linear.forward", **sizes))


LAYERS = (
    convolution("resnet18_cifar, layer 2", 128, 128, 16),
    convolution("resnet18_cifar, layer 3", 256, 256, 8),
    convolution("resnet18_cifar, layer 4", 512, 512, 4),
    convolution("resnet8, last", 64, 64, 8),
    convolution("mobilenet, pointwise", 256, 256, 3, kernel=1),
    convolution("vgg16_cifar, last", 512, 512, 2),
    linear("bert, attention, 128 rows", 128, 768, 768),
    linear("bert, down, 128 rows", 128, 3072, 768),
    linear("classifier, 1 row", 1, 512, 1000),
)


def whole(layer: Layer, entry: Entry) -> Piece:
    """The whole operation."""
    return Piece(OpSpec.of(f"{layer.forward.family}.{entry}", **layer.forward.attributes))


def parts(layer: Layer, entry: Entry, channels: int) -> Iterator[Piece]:
    """All parts of so many output channels, in their order."""
    forward = layer.forward
    attributes, more, kind = forward.attributes, dict[str, int](), str(entry)
    if _has_columns(layer, entry):
        more = {"first_input": 0, "inputs": attributes["in_channels"]}
        kind = "columns_gradient"
    for first, end in _ranges(layer.weight.shape[0], channels):
        part = {"first": first, "channels": end - first}
        spec = OpSpec.of(f"{forward.family}_part.{kind}", **attributes, **part, **more)
        yield Piece(spec, (first, end))
    if more:
        yield Piece(OpSpec.of("conv2d_part.fold", **attributes, **more))


def blocks(layer: Layer, entry: Entry, shape: tuple[int, int]) -> Iterator[Piece]:
    """All blocks of so many output and input channels, in their order."""
    outputs, inputs = map(_ranges, layer.weight.shape, shape)
    if entry == "input_gradient":
        chains = [[(out, part) for out in outputs] for part in inputs]
    else:
        chains = [[(out, part) for part in inputs] for out in outputs]
    for chain in chains:
        yield from _chain(layer, entry, chain)


def _chain(layer: Layer, entry: Entry, chain: list[tuple[Range, Range]]) -> Iterator[Piece]:
    """Blocks whose sums go on from one to the next."""
    forward = layer.forward
    family, kind = f"{forward.family}_block", str(entry)
    if entry == "parameter_gradient":
        family = forward.family
    elif _has_columns(layer, entry):
        kind = "columns_gradient"
    for number, (out, part) in enumerate(chain):
        attributes = _of_block(layer, out, part)
        has_bias = forward.attributes["bias"] and part[0] == 0
        attributes["bias"] = int(bool(has_bias))
        if entry != "parameter_gradient":
            attributes["continued"] = int(number > 0)
        yield Piece(OpSpec.of(f"{family}.{kind}", **attributes), out, part)
    if kind == "columns_gradient":
        out, part = chain[-1]
        sizes = {"first_input": 0, "inputs": part[1] - part[0]}
        fold = OpSpec.of("conv2d_part.fold", **_of_block(layer, out, part), **sizes)
        yield Piece(fold, out, part)


def _has_columns(layer: Layer, entry: Entry) -> bool:
    """Whether the input gradient is first summed in columns, then folded."""
    forward = layer.forward
    is_gradient = entry == "input_gradient" and forward.family == "conv2d"
    return is_gradient and needs_columns(forward.attributes)


def _of_block(layer: Layer, out: Range, part: Range) -> dict[str, int]:
    unit = "channels" if layer.forward.family == "conv2d" else "features"
    sizes = {f"out_{unit}": out[1] - out[0], f"in_{unit}": part[1] - part[0]}
    return {**layer.forward.attributes, **sizes}


def _ranges(size: int, part: int) -> list[Range]:
    return [(first, min(first + part, size)) for first in range(0, size, part)]
