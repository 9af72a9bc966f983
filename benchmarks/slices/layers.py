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
    """An operation on some output channels of a layer, and on some input channels; None is all.

    A block has tensors of its own for its channels of the input and the output
    (``has_own_images``); other pieces share the whole ones.
    """

    spec: OpSpec
    outputs: Range | None = None
    inputs: Range | None = None
    has_own_images: bool = False


@dataclass(frozen=True)
class Layer:
    """A layer of a network, by the forward operation."""

    name: str
    forward: OpSpec

    @property
    def weight(self) -> Operand:
        return self.forward.reads[1]


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


def parts(layer: Layer, entry: Entry, shape: tuple[int, int]) -> Iterator[Piece]:
    """All parts of so many output and input channels of the weight, in their order."""
    has_columns = _has_columns(layer, entry)
    forward, attributes = layer.forward, layer.forward.attributes
    for chain in _chains(layer, entry, shape):
        for out, of in chain:
            ranges = {"first": out[0], "channels": out[1] - out[0], **_inputs(of)}
            bias = attributes["bias"] if of[0] == 0 else 0
            kind = "columns_gradient" if has_columns else entry
            spec = OpSpec.of(
                f"{forward.family}_part.{kind}", **{**attributes, **ranges, "bias": bias}
            )
            yield Piece(spec, out, of)
        if has_columns:
            out, of = chain[-1]
            yield Piece(OpSpec.of("conv2d_part.fold", **attributes, **_inputs(of)), out, of)


def blocks(layer: Layer, entry: Entry, shape: tuple[int, int]) -> Iterator[Piece]:
    """All blocks of so many output and input channels, in their order."""
    for chain in _chains(layer, entry, shape):
        yield from _chain(layer, entry, chain)


def _chains(
    layer: Layer, entry: Entry, shape: tuple[int, int]
) -> Iterator[list[tuple[Range, Range]]]:
    """Ranges of output and input channels whose sums go on from one to the next."""
    outputs, inputs = map(_ranges, layer.weight.shape, shape)
    if entry == "input_gradient":
        yield from ([(out, of) for out in outputs] for of in inputs)
    else:
        yield from ([(out, of) for of in inputs] for out in outputs)


def _inputs(of: Range) -> dict[str, int]:
    return {"first_input": of[0], "inputs": of[1] - of[0]}


def _chain(layer: Layer, entry: Entry, chain: list[tuple[Range, Range]]) -> Iterator[Piece]:
    """Blocks whose sums go on from one to the next."""
    forward = layer.forward
    family, kind = f"{forward.family}_block", str(entry)
    if entry == "parameter_gradient":
        family = forward.family
    elif _has_columns(layer, entry):
        kind = "columns_gradient"
    for number, (out, of) in enumerate(chain):
        attributes = _of_block(layer, out, of)
        has_bias = forward.attributes["bias"] and of[0] == 0
        attributes["bias"] = int(bool(has_bias))
        if entry != "parameter_gradient":
            attributes["continued"] = int(number > 0)
        yield Piece(OpSpec.of(f"{family}.{kind}", **attributes), out, of, has_own_images=True)
    if kind == "columns_gradient":
        out, of = chain[-1]
        sizes = {"first_input": 0, "inputs": of[1] - of[0]}
        fold = OpSpec.of("conv2d_part.fold", **_of_block(layer, out, of), **sizes)
        yield Piece(fold, out, of, has_own_images=True)


def _has_columns(layer: Layer, entry: Entry) -> bool:
    """Whether the input gradient is first summed in columns, then folded."""
    forward = layer.forward
    is_gradient = entry == "input_gradient" and forward.family == "conv2d"
    return is_gradient and needs_columns(forward.attributes)


def _of_block(layer: Layer, out: Range, of: Range) -> dict[str, int]:
    unit = "channels" if layer.forward.family == "conv2d" else "features"
    sizes = {f"out_{unit}": out[1] - out[0], f"in_{unit}": of[1] - of[0]}
    return {**layer.forward.attributes, **sizes}


def _ranges(size: int, part: int) -> list[Range]:
    return [(first, min(first + part, size)) for first in range(0, size, part)]
