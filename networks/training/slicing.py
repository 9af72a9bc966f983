"""Slices: layers whose weights are large, executed in parts of some of their output channels.

An operation of a layer has its whole weight in RAM, and an update has the weight, its gradient and
the optimizer's state. That is more than a small board has, whatever is recomputed or paged. A step
in slices has *parts* of such a weight: tensors of their own, each with the rows of some output
channels (or features), with their own part of the gradient and of the state. Every operation on
them becomes a chain of operations, one for each part. Solver, referee and boards see tensors and
operations, and need nothing else.

**What a chain is.** Each part of a forward operation writes its channels into the layer's one
result, in place of that result with the channels before it. The parts of an input gradient are
terms of one sum, added in place in the order of the channels. That of a convolution is summed for
every tap apart (the *columns*), and folded when the sum is whole; if the columns of all input
channels are too large, some channels are done after the others, each time with all parts. Each part
of a parameter gradient is a tensor of its own, which its own update reads, so that the whole
gradient never exists. A sum over parts is made in the order in which the whole operation makes it:
all values are the same, bit for bit, as those of the step without slices.

**Which layers.** Those with a weight that is larger than the limit, if nothing but convolutions of
one group, linear layers, embeddings, sums of gradients and updates touches it. An embedding's
weight is its table, in parts of some rows; a table of which a step brings only the rows that it
reads (:mod:`networks.training.home`) stays whole. A layer stays whole as well if none of its
operations is larger than the largest one outside of such layers, which no slice makes smaller.

**Recurrent layers** are cut along another axis: where activations are limited, those with larger
gates are unrolled (:mod:`networks.training.unrolling`) before anything else is cut. The promise of
equal bits is then that of the step with unrolled layers.

**The order** given to the solver is, in the backward pass, part by part: input gradient, parameter
gradient, update. A part of the weight is then read from storage once in that pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from devices.quantities import Slices
from networks.kinds import TensorKind
from networks.training.chains import (
    CUT_ROLES,
    IN_PARTS,
    INPUT_GRADIENT,
    Cut,
    all_operations,
    footprint_bytes,
    ranged,
    rounds,
)
from networks.training.channels.rewriting import cut_channels
from networks.training.derive import training_step
from networks.training.home import with_parameters_in_storage
from networks.training.order import OperationCount, placed
from networks.training.step import Part, StepOp, StepTensor, TrainingStep
from networks.training.unrolling import unrolled

_EVEN_ROWS = 8
"""Parts of more rows have a multiple of this many: matrix products are then faster."""


def sliced(whole: TrainingStep, slices: Slices) -> TrainingStep:
    """Put what is large of a step into parts.

    Args:
        whole: Training step.
        slices: Most bytes of a weight in a part, and of an activation; a part has at least one row
            or channel. Layers between parts of activations are cut together with these.

    Returns:
        The step in parts, of which ``whole`` is the given step, with its recurrent layers unrolled.

    Raises:
        NetworkError: The parts take too many operations.
    """
    whole = _unrolled(whole, slices)
    step, slice_bytes = cut_channels(whole, slices), slices.weights
    weights = dict.fromkeys(_weights(step, slice_bytes))
    groups = [group for name in weights if (group := _Group.of(step, name)) is not None]
    in_groups = {name for group in groups for name in group.ops}
    most_bytes = max(
        (footprint_bytes(op) for op in step.ops if op.name not in in_groups), default=0
    )
    ops, tensors = step.ops, step.tensors
    for group in groups:
        if group.footprint_bytes > most_bytes:
            cut = group.cut(slice_bytes, most_bytes)
            ops = tuple(_rewritten(ops, group, cut, OperationCount(whole, slices)))
            tensors = tuple(_tensors(tensors, group, cut))
    return replace(step, ops=ops, tensors=tensors, slices=slices, whole=whole)


def _unrolled(step: TrainingStep, slices: Slices) -> TrainingStep:
    if slices.activations is None:
        return step
    network = unrolled(step.network, slices.activations)
    if network is step.network:
        return step
    derived = training_step(network, step.optimizer, step.file, step.accumulate)
    if step.parameters_in == "storage":
        derived = with_parameters_in_storage(derived)
    ops = tuple(OperationCount(step, slices).of(derived.ops))
    return replace(step, ops=ops, tensors=derived.tensors, network=network, unrolled=True)


def joined(
    step: TrainingStep, values: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Values by the names of whole tensors: those that are in parts are put together, flat.

    Args:
        step: Training step.
        values: Values by tensor, with all parts or none of each whole tensor.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for name, value in values.items():
        part = None if (tensor := step.tensor.get(name)) is None else tensor.part
        if part is None:
            found[name] = value
            continue
        if part.whole not in found:
            share, whole = part.share
            found[part.whole] = np.empty(value.size // share * whole, value.dtype)
        place = part.of(found[part.whole])
        place[:] = value.reshape(place.shape)
    return found


def _weights(step: TrainingStep, slice_bytes: int) -> Iterator[str]:
    for op in step.ops:
        if op.spec.family in IN_PARTS and op.phase == "forward":
            weight = step.tensor[op.reads[1]]
            is_whole = weight.part is None and not weight.is_table
            if weight.kind == "parameter" and is_whole and weight.bytes > slice_bytes:
                yield weight.name


@dataclass(frozen=True)
class _Group:
    """A weight with everything that is cut with it.

    Attributes:
        rows: Rows of the weight.
        row_bytes: Bytes of a row.
        tensors: The weight, its layers' biases, their gradients and optimizer state.
        copied: Adam's corrections, of which every part has its own.
        ops: The operations that touch any of them, by name.
    """

    rows: int
    row_bytes: int
    tensors: frozenset[str]
    copied: frozenset[str]
    ops: Mapping[str, StepOp]

    @classmethod
    def of(cls, step: TrainingStep, weight: str) -> _Group | None:
        """The group of a weight; None if something touches it that cannot be done in parts."""
        layers = {op.layer for op in step.ops if weight in op.reads and op.phase != "update"}
        tensors, copied, ops = {weight}, set[str](), dict[str, StepOp]()
        for op in step.ops:
            if op.layer in layers and op.spec.family in IN_PARTS:
                tensors.update(name for role, name in _operands(op) if role in CUT_ROLES)
            elif tensors.isdisjoint((*op.reads, *op.writes)):
                continue
            elif op.spec.signature.mutates or op.spec.kind == "gradient.accumulate":
                sizes = {name: step.tensor[name].bytes for _, name in _operands(op)}
                of_all = step.tensor[op.reads[0]].bytes
                tensors.update(name for name, size in sizes.items() if size == of_all)
                copied.update(name for name, size in sizes.items() if size != of_all)
            else:
                return None
            ops[op.name] = op
        cut = tensors | copied
        if any(
            op.name not in ops and not cut.isdisjoint((*op.reads, *op.writes)) for op in step.ops
        ):
            return None
        of_layers = [op.spec.attributes for op in ops.values() if op.layer in layers]
        if any(attributes.get("groups", 1) > 1 for attributes in of_layers):
            return None
        shapes = {op.spec.reads[1].shape for op in ops.values() if op.phase == "forward"}
        if len(shapes) > 1:
            return None
        [(rows, *_)] = shapes
        row_bytes = step.tensor[weight].bytes // rows
        return cls(rows, row_bytes, frozenset(tensors), frozenset(copied), ops)

    @property
    def footprint_bytes(self) -> int:
        """Bytes of the largest operation."""
        return max(map(footprint_bytes, self.ops.values()))

    def cut(self, slice_bytes: int, most_bytes: int) -> Cut:
        """Parts of at most ``slice_bytes``, and columns that make no operation the largest."""
        fitting = max(1, slice_bytes // self.row_bytes)
        return Cut(self.rows, fitting // _EVEN_ROWS * _EVEN_ROWS or fitting, most_bytes)


def _operands(op: StepOp) -> Iterator[tuple[str, str]]:
    """Roles and tensors of an operation."""
    operands = (*op.spec.reads, *op.spec.writes)
    for operand, name in zip(operands, (*op.reads, *op.writes), strict=True):
        yield operand.role, name


def _rewritten(
    ops: Iterable[StepOp], group: _Group, cut: Cut, count: OperationCount
) -> Iterator[StepOp]:
    """The operations of a step, with those of a group in parts."""
    of_layers: list[StepOp] = []
    others: list[StepOp] = []
    gradients: dict[str, list[StepOp]] = {}
    last = {op.layer: op.name for op in group.ops.values() if op.phase == "backward"}
    for op in ops:
        if op.name not in group.ops:
            of_layers.extend(count.of((op,)))
        elif op.spec.family not in IN_PARTS:
            others.extend(count.of(all_operations(op, cut)))
        elif op.phase == "forward":
            of_layers.extend(count.of(all_operations(op, cut)))
        else:
            gradients.setdefault(op.layer, []).append(op)
            if op.name == last[op.layer]:
                of_layers.extend(count.of(_part_by_part(gradients[op.layer], cut)))
    return iter(placed(of_layers, others))


def _part_by_part(gradients: Sequence[StepOp], cut: Cut) -> Iterator[StepOp]:
    """The gradients of a layer: in the last round, each part of all of them before the next."""
    ordered = sorted(gradients, key=lambda op: not op.spec.kind.endswith(INPUT_GRADIENT))
    all_rounds = [rounds(op, cut) for op in ordered]
    for each in (early for of_op in all_rounds for early in of_op[:-1]):
        yield from (*each.parts, *each.whole)
    final = [of_op[-1] for of_op in all_rounds]
    for same_part in zip(*(each.parts for each in final), strict=True):
        yield from same_part
    for each in final:
        yield from each.whole


def _tensors(tensors: Iterable[StepTensor], group: _Group, cut: Cut) -> Iterator[StepTensor]:
    """The tensors of a step, with those of a group in parts, and what chains write on the way."""
    between: dict[str, list[StepTensor]] = {}
    for op in group.ops.values():
        if op.spec.family in IN_PARTS:
            *_, result = op.writes
            kind: TensorKind = "activation" if op.phase == "forward" else "gradient"
            between[result] = [
                StepTensor(name, operand.bytes, kind)
                for part in all_operations(op, cut)
                for operand, name in zip(part.spec.writes, part.writes, strict=True)
                if operand.role not in CUT_ROLES and name != result
            ]
    for tensor in tensors:
        yield from between.get(tensor.name, ())
        if tensor.name in group.tensors:
            for first, rows in cut.parts:
                yield replace(
                    tensor,
                    name=ranged(tensor.name, first, rows),
                    bytes=tensor.bytes // cut.rows * rows,
                    part=Part(tensor.name, first, rows, cut.rows),
                )
        elif tensor.name in group.copied:
            for first, rows in cut.parts:
                name, whole = ranged(tensor.name, first, rows), Part(tensor.name, 0, 1, 1)
                yield replace(tensor, name=name, part=whole)
        else:
            yield tensor
