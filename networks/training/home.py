"""Home of parameters between steps: RAM or storage.

With their home in RAM, all parameters occupy RAM throughout. With their home in storage, they are
paged in before an operation reads them, and all tensors that the step changes (parameters,
optimizer state, running statistics) must be in storage again when it ends. Those that it does not
change, frozen parameters and statistics, are only read from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from devices.operation import OpSpec
from networks.training.step import StepOp, StepTensor, TrainingStep

_LOOKUP = "embedding.forward"
_KEPT_BETWEEN_STEPS = frozenset({"parameter", "optimizer_state"})


def with_parameters_in_storage(step: TrainingStep) -> TrainingStep:
    """Move the home of parameters, optimizer state and running statistics to storage.

    Of an embedding's table, only the rows that the batch reads are paged in, at most one for each
    index, and only these have a gradient and an update; the indices then refer to these rows. With
    plain SGD the result is the same: the gradient of every other row is zero, so SGD leaves the row
    unchanged. Momentum or weight decay would still change such a row; here it is unchanged until a
    batch reads it (the sparse momentum of deep-learning libraries).

    A frozen table that other operations read as a whole (tied weights of a language model) has a
    second copy in storage, from which rows are read: nothing is written there, so that the copies
    remain equal.

    Args:
        step: Training step with parameters in RAM.

    Returns:
        The same step with parameters in storage.
    """
    step = _with_lookups_of_their_own(step)
    tables = {forward.reads[1]: forward for forward in _sparse_embeddings(step)}
    ops = tuple(_with_rows_paged_in(op, tables) for op in step.ops)
    operand_of = {
        name: operand
        for op in ops
        for operands, names in ((op.spec.reads, op.reads), (op.spec.writes, op.writes))
        for operand, name in zip(operands, names, strict=True)
    }
    scattered = {
        name: tables[op.reads[0]].spec
        for op in ops
        if op.phase == "update" and op.reads[0] in tables
        for name in (*op.in_place, *op.in_place.values())
        if not operand_of[name].role.endswith("corrections")  # Adam's, common to all rows
    }
    scattered.update((name, forward.spec) for name, forward in tables.items())

    def moved(tensor: StepTensor) -> StepTensor:
        tensor = replace(tensor, bytes=operand_of[tensor.name].bytes)
        if tensor.kind not in _KEPT_BETWEEN_STEPS:
            return tensor
        return replace(
            tensor,
            home=tensor.home and "storage",
            persist="storage" if tensor.persist and tensor.home is None else None,
            stretches=1 if (spec := scattered.get(tensor.name)) is None else spec.values[0],
            home_stretches=1 if spec is None else spec.values[1],
        )

    return replace(
        step, parameters_in="storage", ops=ops, tensors=tuple(moved(each) for each in step.tensors)
    )


def _with_lookups_of_their_own(step: TrainingStep) -> TrainingStep:
    """Let an embedding read a copy of its table, if that is frozen and other layers read it."""
    changed = {name for op in step.ops for name in op.in_place.values()}
    ops, tensors = list(step.ops), list(step.tensors)
    for number, op in enumerate(step.ops):
        table = step.tensor[op.reads[1]] if op.spec.kind == _LOOKUP else None
        if table is None or table.kind != "parameter" or table.home is None:
            continue
        readers = [other for other in step.ops if table.name in other.reads]
        lookups = sum(other.spec.kind == _LOOKUP for other in readers)
        if table.name in changed or lookups > 1 or len(readers) == 1:
            continue
        copy = replace(table, name=f"{table.name}.lookup", copy_of=table.name)
        ops[number] = replace(op, reads=(op.reads[0], copy.name))
        tensors.insert(tensors.index(table), copy)
    return replace(step, ops=tuple(ops), tensors=tuple(tensors))


def _sparse_embeddings(step: TrainingStep) -> Iterator[StepOp]:
    """Embeddings with more rows than indices, whose table only they and an update read.

    Nor may anything but embeddings of such tables read their indices, which refer to other rows.
    """
    readers: dict[str, list[StepOp]] = {}
    for op in step.ops:
        for name in op.reads:
            readers.setdefault(name, []).append(op)
    for op in step.ops:
        if op.spec.kind != _LOOKUP:
            continue
        rows, vocabulary, _ = op.spec.values
        phases = [reader.phase for reader in readers[op.reads[1]]]
        layers = {reader.layer for reader in readers[op.reads[0]]}
        is_alone = phases in (["forward"], ["forward", "update"]) and layers == {op.layer}
        is_given = step.tensor[op.reads[0]].kind == "input"
        if (
            vocabulary > rows
            and is_alone
            and is_given
            and step.tensor[op.reads[1]].kind == "parameter"
        ):
            yield op


def _with_rows_paged_in(op: StepOp, tables: Mapping[str, StepOp]) -> StepOp:
    for table, forward in tables.items():
        rows, _, features = forward.spec.values
        if op.layer == forward.layer:
            spec = OpSpec.of(op.spec.kind, rows=rows, vocabulary=rows, features=features)
            return replace(op, spec=spec)
        if op.phase == "update" and op.reads[0] == table:
            return replace(op, spec=OpSpec.of(op.spec.kind, elements=rows * features))
    return op
