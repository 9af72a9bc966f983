"""Chains: an operation of a layer as several operations, one for each part of the layer's weight.

:mod:`networks.training.slicing` decides which layers are done in parts, and how they are cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from devices.operation import OpSpec
from devices.signatures.parts import INPUT_RANGE, PART, needs_columns
from networks.training.step import StepOp

IN_PARTS = frozenset({"conv2d", "linear", "embedding", "embedding_padded"})
"""Families of layers that have parts."""

CUT_ROLES = frozenset(
    {"weight", "bias", "weight_gradient", "bias_gradient", "table", "table_gradient"}
)
"""Operands with a row for each output channel, feature or index: a part has its own rows."""

INPUT_GRADIENT, PARAMETER_GRADIENT = "input_gradient", "parameter_gradient"


@dataclass(frozen=True)
class Cut:
    """How a weight is cut: ``part_rows`` of its ``rows`` are a part; the last may have fewer.

    ``most_bytes`` limits an operation that sums columns; it has at least one input channel.
    """

    rows: int
    part_rows: int
    most_bytes: int

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """First row and number of rows of every part."""
        return tuple(_ranges(self.rows, self.part_rows))


@dataclass(frozen=True)
class Round:
    """An operation for each part, and the operations that need the work of all parts."""

    parts: tuple[StepOp, ...]
    whole: tuple[StepOp, ...] = ()


def rounds(op: StepOp, cut: Cut) -> tuple[Round, ...]:
    """Operations that together do what ``op`` does, of a layer, a sum of gradients or an update.

    The input gradient of a convolution has a round for each range of input channels whose columns
    are in RAM together; every other operation has one round.
    """
    family, _, entry = op.spec.kind.partition(".")
    if family not in IN_PARTS:
        return (Round(tuple(_elements(op, cut, *part) for part in cut.parts)),)
    if family == "conv2d" and entry == INPUT_GRADIENT and needs_columns(op.spec.attributes):
        return tuple(
            Round(
                tuple(_columns(op, cut, part, inputs) for part in cut.parts),
                (_fold(op, inputs),),
            )
            for inputs in _input_ranges(op.spec, cut)
        )
    return (Round(tuple(_channels(op, cut, *part) for part in cut.parts)),)


def all_operations(op: StepOp, cut: Cut) -> Iterator[StepOp]:
    """The operations of all rounds."""
    for each in rounds(op, cut):
        yield from (*each.parts, *each.whole)


def footprint_bytes(op: StepOp) -> int:
    """Bytes of what an operation reads and writes; what is overwritten in place counts once."""
    shared = (
        operand.bytes
        for operand, name in zip(op.spec.writes, op.writes, strict=True)
        if name in op.in_place
    )
    return op.spec.moved_bytes - sum(shared)


def ranged(name: str, first: int, rows: int) -> str:
    """Name of the part of a tensor or operation that begins with row ``first``."""
    return f"{name}[{first}:{first + rows}]"


def _ranges(whole: int, part: int) -> Iterator[tuple[int, int]]:
    return ((first, min(part, whole - first)) for first in range(0, whole, part))


def _elements(op: StepOp, cut: Cut, first: int, rows: int) -> StepOp:
    """A part of a sum of gradients or of an update."""

    def named(name: str) -> str:
        return ranged(name, first, rows)

    elements = op.spec.attributes["elements"] // cut.rows * rows
    return replace(
        op,
        name=named(op.name),
        spec=OpSpec.of(op.spec.kind, elements=elements),
        reads=tuple(map(named, op.reads)),
        writes=tuple(map(named, op.writes)),
        in_place={named(written): named(read) for written, read in op.in_place.items()},
    )


def _channels(op: StepOp, cut: Cut, first: int, rows: int) -> StepOp:
    """A part of an operation that needs no columns."""
    family, _, entry = op.spec.kind.partition(".")
    spec = OpSpec.of(f"{family}_part.{entry}", **op.spec.attributes, first=first, channels=rows)
    names = _names(op)
    for role, name in names.items():
        if role in CUT_ROLES:
            names[role] = ranged(name, first, rows)
    for role, before in spec.signature.in_place.items():
        names[before] = _until(names[role], first, cut.rows)
        names[role] = _until(names[role], first + rows, cut.rows)
    return op.as_part(ranged(op.name, first, rows), spec, names)


def _input_ranges(spec: OpSpec, cut: Cut) -> tuple[tuple[int, int], ...]:
    """Input channels whose columns are in RAM together."""
    a = spec.attributes
    gradient, weight = spec.reads
    taps = a["kernel_height"] * a["kernel_width"]
    channel_bytes = gradient.bytes // cut.rows * taps
    room_bytes = cut.most_bytes - gradient.bytes - weight.bytes // cut.rows * cut.part_rows
    fitting = min(max(1, room_bytes // channel_bytes), a["in_channels"])
    number = math.ceil(a["in_channels"] / fitting)
    return tuple(_ranges(a["in_channels"], math.ceil(a["in_channels"] / number)))


def _columns(op: StepOp, cut: Cut, part: tuple[int, int], inputs: tuple[int, int]) -> StepOp:
    """The terms of a part of the weight in the sums of columns."""
    first, rows = part
    spec = OpSpec.of(
        "conv2d_part.columns_gradient",
        **op.spec.attributes,
        **dict(zip((*PART, *INPUT_RANGE), (*part, *inputs), strict=True)),
    )
    columns = _columns_name(op, inputs)
    names = _names(op)
    names["weight"] = ranged(names["weight"], first, rows)
    names["columns_before"] = _until(columns, first, cut.rows)
    names["columns"] = _until(columns, first + rows, cut.rows)
    name = f"{op.layer}.columns_gradient{_of_inputs(op, inputs)}"
    return op.as_part(ranged(name, first, rows), spec, names)


def _fold(op: StepOp, inputs: tuple[int, int]) -> StepOp:
    """The input gradient of some input channels, from their columns."""
    first, count = inputs
    spec = OpSpec.of(
        "conv2d_part.fold",
        **op.spec.attributes,
        **dict(zip(INPUT_RANGE, inputs, strict=True)),
    )
    in_channels = op.spec.attributes["in_channels"]
    names = _names(op)
    gradient = names[INPUT_GRADIENT]
    names["columns"] = _columns_name(op, inputs)
    names["input_gradient_before"] = _until(gradient, first, in_channels)
    names[INPUT_GRADIENT] = _until(gradient, first + count, in_channels)
    return op.as_part(f"{op.layer}.fold{_of_inputs(op, inputs)}", spec, names)


def _columns_name(op: StepOp, inputs: tuple[int, int]) -> str:
    return f"{op.layer}.columns{_of_inputs(op, inputs)}"


def _of_inputs(op: StepOp, inputs: tuple[int, int]) -> str:
    """Range of input channels, if it is not all."""
    return "" if inputs == (0, op.spec.attributes["in_channels"]) else ranged("", *inputs)


def _names(op: StepOp) -> dict[str, str]:
    """Tensors by role."""
    operands = (*op.spec.reads, *op.spec.writes)
    roles = (operand.role for operand in operands)
    return dict(zip(roles, (*op.reads, *op.writes), strict=True))


def _until(name: str, done: int, rows: int) -> str:
    """Name of a result to which the first ``done`` of all ``rows`` have contributed."""
    return name if done == rows else ranged(name, 0, done)
