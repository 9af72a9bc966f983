"""Layers whose operations are timed in parts and blocks, and the calls of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from devices.operation import OpSpec
from devices.signatures.base import Operand
from devices.signatures.parts import needs_columns
from tests.support.onboard.kernels import Array, KernelLibrary, PreparedCall, aligned, fill

Entry: TypeAlias = Literal["forward", "input_gradient", "parameter_gradient"]
ENTRIES: tuple[Entry, ...] = ("forward", "input_gradient", "parameter_gradient")


Range: TypeAlias = tuple[int, int]


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


def _ranges(whole: int, part: int) -> list[Range]:
    return [(first, min(first + part, whole)) for first in range(0, whole, part)]


class Operands:
    """Buffers of a layer's operands, which the whole operation and its parts share."""

    def __init__(self, library: KernelLibrary, layer: Layer) -> None:
        self._library, self._layer = library, layer
        self._buffers: dict[str, Array] = {}

    def whole(self, entry: Entry) -> list[PreparedCall]:
        return [self._call(self._whole(entry), 0)]

    def whole_workspace(self, entry: Entry) -> int:
        return self._library.workspace_bytes(self._whole(entry))

    def parts(self, entry: Entry, channels: int) -> list[PreparedCall]:
        """Calls of all parts in their order, in place."""
        return [self._call(spec, first) for first, spec in self._parts(entry, channels)]

    def workspace(self, entry: Entry, channels: int) -> int:
        """Largest workspace of the parts."""
        return max(self._library.workspace_bytes(s) for _, s in self._parts(entry, channels))

    def blocks(self, entry: Entry, shape: tuple[int, int]) -> list[PreparedCall]:
        """Calls of all blocks of so many output and input channels, in their order, in place."""
        outs, channels = map(_ranges, self._layer.weight.shape, shape)
        if entry == "input_gradient":
            chains = [[(out, part) for out in outs] for part in channels]
        else:
            chains = [[(out, part) for part in channels] for out in outs]
        return [call for chain in chains for call in self._chain(entry, chain)]

    def _chain(self, entry: Entry, blocks: list[tuple[Range, Range]]) -> Iterator[PreparedCall]:
        forward = self._layer.forward
        family, kind = f"{forward.family}_block", str(entry)
        folds = forward.family == "conv2d" and needs_columns(forward.attributes)
        if entry == "parameter_gradient":
            family = forward.family
        elif entry == "input_gradient" and folds:
            kind = "columns_gradient"
        for number, (out, part) in enumerate(blocks):
            attributes = self._of_block(out, part)
            has_bias = forward.attributes["bias"] and part[0] == 0
            attributes["bias"] = int(bool(has_bias))
            if entry != "parameter_gradient":
                attributes["continued"] = int(number > 0)
            yield self._block_call(OpSpec.of(f"{family}.{kind}", **attributes), out, part)
        if kind == "columns_gradient":
            count = part[1] - part[0]
            fold = OpSpec.of(
                "conv2d_part.fold", **self._of_block(out, part), first_input=0, inputs=count
            )
            yield self._block_call(fold, out, part)

    def _of_block(self, out: Range, part: Range) -> dict[str, int]:
        forward = self._layer.forward
        unit = "channels" if forward.family == "conv2d" else "features"
        sizes = {f"out_{unit}": out[1] - out[0], f"in_{unit}": part[1] - part[0]}
        return {**forward.attributes, **sizes}

    def _block_call(self, spec: OpSpec, out: Range, part: Range) -> PreparedCall:
        workspace = self._buffer("workspace", self._library.workspace_bytes(spec))

        def buffers(operands: tuple[Operand, ...]) -> list[Array]:
            """The buffers of a block, a part of the input, or a part of the output."""
            found = []
            for operand in operands:
                role = operand.role.removesuffix("_before")
                if role in {"weight", "weight_gradient"}:
                    role = f"{role}{out}{part}"
                elif role in {"input", "input_gradient"}:
                    role = f"{role}{part}"
                elif role != "columns":
                    role = f"{role}{out}"
                found.append(self._buffer(role, operand.bytes))
            return found

        return self._library.prepare(spec, buffers(spec.reads), buffers(spec.writes), workspace)

    def _whole(self, entry: Entry) -> OpSpec:
        forward = self._layer.forward
        return OpSpec.of(f"{forward.family}.{entry}", **forward.attributes)

    def _parts(self, entry: Entry, channels: int) -> Iterator[tuple[int, OpSpec]]:
        forward = self._layer.forward
        attributes, more, kind = forward.attributes, dict[str, int](), str(entry)
        unfolds = forward.family == "conv2d" and needs_columns(attributes)
        if entry == "input_gradient" and unfolds:
            more = {"first_input": 0, "inputs": attributes["in_channels"]}
            kind = "columns_gradient"
        whole = self._layer.weight.shape[0]
        for first in range(0, whole, channels):
            part = {"first": first, "channels": min(channels, whole - first)}
            yield first, OpSpec.of(f"{forward.family}_part.{kind}", **attributes, **part, **more)
        if more:
            yield 0, OpSpec.of("conv2d_part.fold", **attributes, **more)

    def _call(self, spec: OpSpec, first: int) -> PreparedCall:
        workspace = self._buffer("workspace", self._library.workspace_bytes(spec))
        reads = [self._operand(operand, first) for operand in spec.reads]
        writes = [self._operand(operand, first) for operand in spec.writes]
        return self._library.prepare(spec, reads, writes, workspace)

    def _operand(self, operand: Operand, first: int) -> Array:
        """The operand's buffer; a part's rows of a parameter lie in the whole parameter's."""
        role = operand.role.removesuffix("_before")
        if role.removesuffix("_gradient") not in {"weight", "bias"}:
            return self._buffer(role, operand.bytes)
        row_bytes = operand.bytes // operand.shape[0]
        whole = self._buffer(role, row_bytes * self._layer.weight.shape[0])
        return whole[first * row_bytes :][: operand.bytes]

    def _buffer(self, role: str, size: int) -> Array:
        known = self._buffers.get(role)
        if known is None or known.nbytes < size:
            known = aligned(size)
            values = fill(Operand(role, (size // 4,)), len(self._buffers))
            known[: values.nbytes] = values.view(np.uint8)
            self._buffers[role] = known
        return known
