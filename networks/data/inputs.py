"""Inputs of a training step and of one sample, derived from the step's operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from devices.signatures.parts import LOOKUPS
from networks.training import StepOp, TrainingStep
from networks.training.accumulation import part_of

Use: TypeAlias = Literal[
    "features",
    "target",
    "labels",
    "tokens",
    "positions",
    "mask",
    "shown",
    "truth",
    "numbers",
]
"""Use of an input. ``target``: numbers that the network should output, and that it does not read
otherwise. ``positions``: indices of positions, from a vocabulary with one entry per position.
``mask``: numbers that are added to scores of attention, -infinity for what is not attended to.
``shown``: true for what is attended to, else false. ``truth``: true or false, and computed with.
``numbers``: whole numbers that are computed with, such as 1 for what is attended to."""


class DataError(InputError):
    """A network cannot be trained on this data; the message says what it requires."""


@dataclass(frozen=True)
class SampleInput:
    """One input of a sample.

    ``shape`` is that of one sample, () for a single number. The values are whole numbers from 0 to
    ``bound`` - 1, or real numbers if ``bound`` is None. Labels may also be ``ignored``. In place of
    true and false, a step has what :func:`as_addend` makes of them. A loss takes real numbers that
    ``are_probabilities`` for such, and has no least value where they are not from 0 to 1.
    """

    name: str
    use: Use
    shape: tuple[int, ...]
    bound: int | None
    ignored: int | None = None
    are_probabilities: bool = False

    @property
    def dtype(self) -> type[np.float32] | type[np.int32]:
        return np.float32 if self.bound is None else np.int32


def sample_inputs(step: TrainingStep) -> tuple[SampleInput, ...]:
    """Inputs of which every sample has its own values.

    Of a step that takes its batch in parts, the inputs are those of the whole batch.

    Raises:
        DataError: An input does not divide into samples.
    """
    return tuple(
        _sample_input(step, name, uses)
        for name, uses in _uses(step).items()
        if not any(_gathers(step, op) for op, _ in uses)
    )


def as_addend(truth: NDArray[np.bool_]) -> NDArray[np.float32]:
    """0 for true and -infinity for false: what a step has in their place, and attention adds."""
    return np.where(truth, np.float32(0), np.float32(-np.inf))


def constant_inputs(step: TrainingStep) -> dict[str, NDArray[np.int32]]:
    """Inputs that are the same in every step, by name: indices of rows that a network gathers.

    Only built-in networks have such inputs; those of a file are read from samples. The rows
    are evenly spaced: with one row for each sample, the first row of each.
    """
    found = {}
    for name, uses in _uses(step).items():
        for op, _ in uses:
            if _gathers(step, op):
                rows, available, _ = op.spec.values
                found[name] = (np.arange(rows) * (available // rows)).astype(np.int32)
    return found


_CONVERSION = "from_integers.forward"

_SAME_NUMBERS = frozenset({"strided_copy.forward", "concat.forward", "to_indices.forward"})
"""Operations whose results are whole numbers of the input that they come from first."""

_OF_ANY_NUMBER = frozenset({_CONVERSION, *_SAME_NUMBERS, "equal_number.forward"})
"""Operations that may read any number; what reads the same numbers after them is a use, too."""

_Uses: TypeAlias = list[tuple[StepOp, int]]


def _uses(step: TrainingStep) -> dict[str, _Uses]:
    """For each input, the operations that read it and the numbers of the operands.

    Those that read parts of an input of whole numbers are among them. Of inputs that belong to
    parts of the batch, those of the first part stand for all.
    """
    name_of = {
        tensor.name: tensor.name.removesuffix(part_of("", 1, step.accumulate))
        for tensor in step.tensors
        if tensor.kind == "input" and tensor.name.endswith(part_of("", 1, step.accumulate))
    }
    uses: dict[str, _Uses] = {name: [] for name in name_of.values()}
    converted: set[str] = set()
    for op in step.ops:
        for number, read in enumerate(op.reads):
            if read in name_of:
                uses[name_of[read]].append((op, number))
        first = op.reads[0] if op.reads else ""
        if first in name_of and (
            op.spec.kind == _CONVERSION or (first in converted and op.spec.kind in _SAME_NUMBERS)
        ):
            converted.add(op.writes[0])
            name_of[op.writes[0]] = name_of[first]
    return uses


def _gathers(step: TrainingStep, op: StepOp) -> bool:
    """Whether an operation reads rows of activations at places that a built-in network states."""
    is_lookup = op.spec.kind in LOOKUPS and step.tensor[op.reads[1]].home is None
    return is_lookup and step.file is None


def _sample_input(step: TrainingStep, name: str, uses: _Uses) -> SampleInput:
    shape = _of_one_sample(step, name)
    are_probabilities = any(
        op.spec.family == "binary_cross_entropy" and op.spec.reads[number].role == "target"
        for op, number in uses
    )
    return SampleInput(
        name,
        _use(step, name, uses),
        shape,
        _bound(step, uses),
        _ignored(uses),
        are_probabilities,
    )


def _ignored(uses: _Uses) -> int | None:
    """The label that all layers that read an input ignore; None if one needs every number.

    An operation of a loss in parts may have no such scalar, though its layer has.
    """
    by_layer = {op.layer: op.scalars["ignored"] for op, _ in uses if "ignored" in op.scalars}
    found = {
        by_layer.get(op.layer) if op.spec.reads[number].role == "labels" else None
        for op, number in uses
        if not (number == 0 and op.spec.kind in _OF_ANY_NUMBER)
    }
    ignored = found.pop() if len(found) == 1 else None
    return None if ignored is None else int(ignored)


def _bound(step: TrainingStep, uses: _Uses) -> int | None:
    """Bound of indices; those of a table in storage refer to all its rows, not to a batch's."""
    lookups = [op for op, _ in uses if op.spec.kind in LOOKUPS]
    tables = [table for op in lookups if (table := step.tensor[op.reads[1]]).is_table]
    if tables:
        return min(table.home_stretches for table in tables)
    operands = [op.spec.reads[number] for op, number in uses]
    return min((each.index_bound for each in operands if each.fill == "index"), default=None)


def _use(step: TrainingStep, name: str, uses: _Uses) -> Use:
    roles = {op.spec.reads[number].role for op, number in uses}
    if name in step.network.truths:
        return "shown" if roles == {"mask"} else "truth"
    if roles == {"target"}:
        return "target"
    if roles == {"mask"}:
        return "mask"
    for op, _ in uses:
        if op.spec.kind in LOOKUPS:
            rows, vocabulary, *_ = op.spec.values
            # Of a table in storage, the operation reads the rows of a batch, as many as indices.
            whole = not step.tensor[op.reads[1]].is_table and "labels" not in roles
            samples = step.batch // step.accumulate
            return "positions" if whole and rows == samples * vocabulary else "tokens"
    if "labels" in roles:
        return "labels"
    if any(op.spec.kind == _CONVERSION for op, _ in uses):
        return "numbers"
    return "features"


def _of_one_sample(step: TrainingStep, name: str) -> tuple[int, ...]:
    shape = step.tensor[part_of(name, 1, step.accumulate)].shape
    assert shape is not None, f"{name} is an input, and every input states its shape"
    outer, *inner = shape
    samples = step.batch // step.accumulate
    if outer % samples:
        raise DataError(
            f"{step.title}: the input {name} has {outer} rows, which is not a multiple of"
            f" {samples} samples"
        )
    each = outer // samples
    return tuple(inner) if each == 1 else (each, *inner)
