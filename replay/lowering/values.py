"""Values that enter a training step, outlive it, or can be compared between two executions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from devices.plan import ArenaRange, Observed, Probe, Selection, Table
from networks.kinds import Place
from networks.training.step import StepOp, StepTensor, TrainingStep


@dataclass(frozen=True)
class KeptValue:
    """A tensor that the operation ``updated_by`` changes in place.

    ``tensor`` is its name when the step begins, ``result`` its name when the step has ended.
    """

    tensor: str
    result: str
    bytes: int
    home: Place
    what: Observed
    updated_by: str

    def probe(self, address: int) -> Probe:
        return Probe(self.tensor, self.what, ArenaRange(address, self.bytes))


def kept_values(step: TrainingStep) -> tuple[KeptValue, ...]:
    """Values that a step updates in place, in the order of the step's tensors."""
    found: dict[str, KeptValue] = {}
    for op in step.ops:
        if not op.spec.signature.mutates:
            continue
        for result, changed in op.in_place.items():
            name = step.buffer[changed]  # of several changes, the last one counts
            tensor = step.tensor[name]
            if tensor.home is not None:
                what = _observed(op, tensor)
                found[name] = KeptValue(name, result, tensor.bytes, tensor.home, what, op.name)
    return tuple(found[tensor.name] for tensor in step.tensors if tensor.name in found)


@dataclass(frozen=True)
class StepTables:
    """The tables of a step, of which it reads only the rows of its batch.

    Attributes:
        indices: the inputs that select rows, in the order of ``selections``.
        selections: the selections.
        tables: the tables, with those that the step changes first.
        number: number of each table, by the name of its tensor when the step begins.
    """

    indices: tuple[str, ...]
    selections: tuple[Selection, ...]
    tables: tuple[Table, ...]
    number: Mapping[str, int]


def step_tables(step: TrainingStep) -> StepTables:
    """The tables of a step; those with the same indices have one selection."""
    values = {value.tensor: number for number, value in enumerate(kept_values(step))}
    indices: list[str] = []
    selections: list[Selection] = []
    tables: list[Table] = []
    number: dict[str, int] = {}

    def add(name: str, selecting: str) -> None:
        tensor = step.tensor[name]
        if selecting not in indices:
            indices.append(selecting)
            selections.append(Selection(tensor.stretches, tensor.home_stretches))
        number[name] = len(tables)
        tables.append(
            Table(
                tensor=name,
                kept=values.get(name),
                selection=indices.index(selecting),
                rows=tensor.home_stretches,
                row_bytes=tensor.bytes // tensor.stretches,
            )
        )

    for op in step.ops:
        for name in op.in_place.values():
            if name in values and step.tensor[name].is_table:
                lookup = next(each for each in step.ops if op.reads[0] in each.reads[1:])
                add(name, lookup.reads[0])
    for op in step.ops:
        for name in op.reads:
            if step.tensor[name].is_table and name not in values and name not in number:
                add(name, op.reads[0])
    return StepTables(tuple(indices), tuple(selections), tuple(tables), number)


def _observed(update: StepOp, tensor: StepTensor) -> Observed:
    if tensor.kind == "optimizer_state":
        return "optimizer_state"
    return "statistic" if trained_parameter(update) is None else "parameter"


def input_tensors(step: TrainingStep) -> Iterator[StepTensor]:
    """Tensors in RAM that a step reads but does not keep: they are loaded before every step."""
    return (tensor for tensor in _unchanged(step) if tensor.home == "ram")


def frozen_tensors(step: TrainingStep) -> Iterator[StepTensor]:
    """Tensors in storage that no step changes: they are written there once."""
    return (tensor for tensor in _unchanged(step) if tensor.home == "storage")


def _unchanged(step: TrainingStep) -> Iterator[StepTensor]:
    kept = {value.tensor for value in kept_values(step)}
    return (tensor for tensor in step.tensors if tensor.home and tensor.name not in kept)


def losses(step: TrainingStep) -> Iterator[StepTensor]:
    return (tensor for tensor, what in outputs(step) if what == "loss")


def outputs(step: TrainingStep) -> Iterator[tuple[StepTensor, Observed]]:
    """Activations that remain when a step ends: the network's loss, and predictions.

    Ops may read the loss too: the gradient of a root, for example, is computed from its result.
    """
    loss = step.network.loss
    for tensor in step.tensors:
        if tensor.kind == "activation" and tensor.persist:
            is_loss = loss is not None and tensor.name == loss.name
            yield tensor, "loss" if is_loss else "prediction"


def trained_parameter(update: StepOp) -> tuple[str, str] | None:
    """Names of the parameter that an operation trains, and of its gradient; None for other ops."""
    read = {
        operand.role: name for operand, name in zip(update.spec.reads, update.reads, strict=True)
    }
    if not update.spec.signature.mutates or "gradient" not in read:
        return None
    return read["parameter"], read["gradient"]
