"""Lower a schedule, or an unscheduled training step, to an execution plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from devices.operation import ELEMENT_BYTES, OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Compute,
    ExecutionPlan,
    Kept,
    Operation,
    Probe,
    RowsIn,
    RowsOut,
    Select,
    Table,
)
from networks.training.step import StepOp, StepTensor, TrainingStep
from replay.lowering.checks import LoweringError, require_runnable
from replay.lowering.guards import guarded as with_guards
from replay.lowering.moves import ordered_moves
from replay.lowering.values import (
    frozen_tensors,
    input_tensors,
    kept_values,
    outputs,
    step_tables,
    trained_parameter,
)
from replay.lowering.walk import Walk
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

__all__ = ["ALIGNMENT_BYTES", "LoweringError", "lower", "reference", "unscheduled"]

ALIGNMENT_BYTES = 64
"""Alignment of every block in an unscheduled plan: a cache line."""


def lower(
    step: TrainingStep,
    graph: CostedGraph,
    schedule: Schedule,
    workspace_bytes: Mapping[OpSpec, int],
    *,
    guarded: bool = False,
) -> ExecutionPlan:
    """Lower a schedule to the plan that a board executes.

    Args:
        step: the training step.
        graph: ``step`` with the costs that the schedule was solved for.
        schedule: a schedule of ``graph``, with addresses.
        workspace_bytes: workspace that the board's kernels need, by operation.
        guarded: make the debug build: twice the arena, with a canary after every tensor and
            workspace in RAM, and NaNs in freed bytes.

    Returns:
        The plan, with an arena of ``schedule.arena_bytes`` (twice that if guarded).

    Raises:
        LoweringError: a referee rejects the schedule, it has no addresses, or a board cannot run
            it.
    """
    require_runnable(step, graph, schedule, workspace_bytes)
    assert schedule.resident_address is not None
    assert schedule.arena_bytes is not None
    packed_bytes = {
        tensor.name: tensor.packed_bytes for tensor in graph.tensors if tensor.packed_bytes
    }
    walk = Walk(step, schedule, workspace_bytes, packed_bytes)
    walk.run(schedule.actions)
    left = walk.left()
    moves = ordered_moves(left, schedule.arena_bytes)
    ending = walk.ending(moves, {mover.tensor: mover.destination for mover in left})
    kept, copies = walk.kept()
    plan = ExecutionPlan(
        name=f"{step.title}, scheduled",
        arena_bytes=schedule.arena_bytes,
        inputs={
            tensor.name: ArenaRange(schedule.resident_address[tensor.name], tensor.bytes)
            for tensor in input_tensors(step)
        },
        kept=kept,
        actions=(*walk.actions, *ending),
        afterwards=copies,
        slot_bytes=tuple(walk.slot_bytes),
        tables=walk.tables.tables,
        selections=walk.tables.selections,
        frozen=walk.frozen,
    )
    return with_guards(plan, walk) if guarded else plan


def reference(
    step: TrainingStep, compared: TrainingStep, workspace_bytes: Mapping[OpSpec, int]
) -> ExecutionPlan:
    """Plan of a step with nothing scheduled, with which a scheduled step is compared.

    Args:
        step: the scheduled step.
        compared: the same step, or the one without slices and codecs.
        workspace_bytes: workspace that the kernels of ``compared`` need, by operation.

    Returns:
        The unscheduled plan. Where ``step`` has parts of a tensor, and ``compared`` the whole, the
        plan observes the rows of each part, by the part's name.
    """
    plan = unscheduled(compared, workspace_bytes)
    if compared is step:
        return plan
    parts: dict[str, list[StepTensor]] = {}
    for tensor in step.tensors:
        if tensor.part is not None:
            parts.setdefault(tensor.part.whole, []).append(tensor)
    actions = [
        each
        for action in plan.actions
        for each in _observed_in_parts(action, parts, _aligned(plan.arena_bytes))
    ]
    ends = (each.does.block.end for each in actions if isinstance(each.does, Probe))
    return replace(
        plan, actions=tuple(actions), arena_bytes=max(plan.arena_bytes, max(ends, default=0))
    )


def _observed_in_parts(
    action: Action, parts: Mapping[str, Sequence[StepTensor]], free: int
) -> Iterator[Action]:
    """Probes of the parts of what an action observes.

    A part that is not adjacent in memory is copied to the address ``free`` before.
    """
    if not isinstance(action.does, Probe) or action.does.tensor not in parts:
        yield action
        return
    block = action.does.block
    for tensor in parts[action.does.tensor]:
        part = tensor.part
        assert part is not None
        outer_bytes = block.bytes // part.outer
        row_bytes = outer_bytes // part.whole_rows
        column_bytes = row_bytes // part.whole_columns
        begin = part.first * row_bytes + part.first_column * column_bytes
        place = ArenaRange(block.address + begin, tensor.bytes)
        if part.outer > 1 or (part.rows > 1 and part.columns < part.whole_columns):
            place = replace(place, address=free)
            sizes = part.outer, part.rows, part.columns * column_bytes // ELEMENT_BYTES
            strides = outer_bytes // ELEMENT_BYTES, row_bytes // ELEMENT_BYTES, 1
            copy = OpSpec.of(
                "strided_copy.forward",
                source=block.bytes // ELEMENT_BYTES,
                offset=begin // ELEMENT_BYTES,
                **{f"size{axis}": size for axis, size in enumerate((1, 1, 1, *sizes))},
                **{f"stride{axis}": stride for axis, stride in enumerate((0, 0, 0, *strides))},
            )
            what = f"copy of {tensor.name}"
            yield Action(Compute(what, copy, (block.address,), (free,), None, {}))
        yield replace(action, does=Probe(tensor.name, action.does.what, place))


def unscheduled(
    step: TrainingStep, workspace_bytes: Mapping[OpSpec, int] | None = None
) -> ExecutionPlan:
    """Plan of a step with nothing scheduled.

    Every tensor has an address of its own during the whole step, except that operations in place
    share bytes. A table is in the arena as a whole; the rows that the batch selects are copied from
    it before the step, and those of a table that the step changes back to it after the step. What
    has its home in storage and no step changes is loaded before every step, as an input.

    Args:
        step: the training step.
        workspace_bytes: workspace that the kernels need, by operation. Without it the plan has no
            workspace, and its executor must provide it.
    """
    address: dict[str, int] = {}
    end = 0
    for name in _in_order_of_use(step):
        root = step.buffer[name]
        if root not in address:
            address[root] = end
            end += _aligned(step.tensor[root].bytes)
        address[name] = address[root]
    kept, found = kept_values(step), step_tables(step)
    tables: list[Table] = []
    for table in found.tables:
        tables.append(replace(table, address=end))
        end += _aligned(table.bytes)
    whole = {table.tensor: table for table in tables}
    loaded = [*input_tensors(step), *frozen_tensors(step)]

    def block_of(name: str) -> ArenaRange:
        return ArenaRange(address[name], step.tensor[name].bytes)

    before: list[Operation] = [
        Select(number, block_of(name)) for number, name in enumerate(found.indices)
    ]
    before += [RowsIn(name, block_of(name), number) for name, number in found.number.items()]
    actions = [Action(operation) for operation in before]
    for op in step.ops:
        trained = trained_parameter(op)
        if trained is not None:
            parameter, gradient = trained
            actions.append(Action(Probe(parameter, "gradient", block_of(gradient))))
        needed = 0 if workspace_bytes is None else workspace_bytes[op.spec]
        actions.append(Action(_unscheduled_op(op, address, ArenaRange(end, needed))))
    actions.extend(
        Action(Probe(tensor.name, what, block_of(tensor.name))) for tensor, what in outputs(step)
    )
    actions.extend(Action(value.probe(address[value.result])) for value in kept)
    actions.extend(
        Action(RowsOut(table.tensor, block_of(table.tensor), number))
        for number, table in enumerate(tables)
        if not table.is_frozen
    )
    return ExecutionPlan(
        name=step.title,
        arena_bytes=end + max((workspace_bytes or {}).get(op.spec, 0) for op in step.ops),
        inputs={
            tensor.name: block_of(tensor.name)
            if (of := whole.get(tensor.name)) is None
            else ArenaRange(of.address or 0, of.bytes)
            for tensor in loaded
        },
        kept=tuple(
            Kept(
                value.tensor,
                value.result,
                value.bytes if (of := whole.get(value.tensor)) is None else of.bytes,
                address[value.tensor] if of is None else of.address,
                slot=None,
            )
            for value in kept
        ),
        actions=tuple(actions),
        tables=tuple(tables),
        selections=found.selections,
    )


def _in_order_of_use(step: TrainingStep) -> Iterator[str]:
    return (name for op in step.ops for name in (*op.reads, *op.writes))


def _unscheduled_op(op: StepOp, address: Mapping[str, int], workspace: ArenaRange) -> Compute:
    return Compute(
        op=op.name,
        spec=op.spec,
        reads=tuple(address[name] for name in op.reads),
        writes=tuple(address[name] for name in op.writes),
        workspace=workspace if workspace.bytes else None,
        scalars=op.scalars,
    )


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
