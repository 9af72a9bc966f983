"""Checks that a board can run a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from devices.errors import InputError
from devices.operation import ELEMENT_BYTES, OpSpec
from networks.training.packing import packable
from networks.training.step import TrainingStep
from replay.lowering.values import frozen_tensors, kept_values
from solver.costing.uncosted import uncosted_graph
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Compute, PageIn, Schedule
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, verify


class LoweringError(InputError):
    """Error for a schedule that cannot be run; its message is one sentence with the reason."""


class ArenaTooTight(LoweringError):
    """Error for a schedule whose arena has no room for the moves after a step."""


def require_runnable(
    step: TrainingStep,
    graph: CostedGraph,
    schedule: Schedule,
    workspace_bytes: Mapping[OpSpec, int],
) -> None:
    """Raise :class:`LoweringError` for a schedule that a board cannot run or a referee rejects."""
    problems = chain(
        _mismatches(step, graph, schedule),
        _unsupported(step),
        _not_packable(step, graph),
        _missing_addresses(schedule),
        _workspace_problems(step, graph, workspace_bytes),
    )
    for problem in problems:
        raise LoweringError(problem)
    assert schedule.resident_address is not None
    assert schedule.arena_bytes is not None
    try:
        verify(graph, schedule.actions, schedule.budget)
        verify_addresses(
            graph, schedule.actions, schedule.resident_address, schedule.arena_bytes, "all"
        )
    except RefereeError as error:
        raise LoweringError(f"the schedule of {schedule.graph} is not valid: {error}") from error
    for what, address in _addresses(schedule):
        if address % ELEMENT_BYTES:
            raise LoweringError(
                f"{what} is at address {address}, which is not a multiple of {ELEMENT_BYTES};"
                " kernels need their operands aligned"
            )


def _mismatches(step: TrainingStep, graph: CostedGraph, schedule: Schedule) -> Iterator[str]:
    if schedule.graph != graph.name:
        yield f"the schedule is of {schedule.graph!r}, not of {graph.name!r}"
    expected = uncosted_graph(step)
    for what, ours, theirs in (
        ("op", {op.name: op for op in expected.ops}, {op.name: op for op in graph.ops}),
        ("tensor", expected.tensor, graph.tensor),
    ):
        for name in sorted(set(ours) ^ set(theirs)):
            where = "graph" if name in theirs else "training step"
            yield f"{graph.name} is not a graph of {step.title}: only the {where} has {what} {name}"
    for op in expected.ops:
        found = next(other for other in graph.ops if other.name == op.name)
        for field in ("kind", "phase", "reads", "writes", "recomputable", "in_place"):
            if getattr(op, field) != getattr(found, field):
                yield f"{graph.name} is not a graph of {step.title}: {field} of op {op.name} differ"
    for tensor in expected.tensors:
        for field in ("bytes", "kind", "home", "persist"):
            if getattr(tensor, field) != getattr(graph.tensor[tensor.name], field):
                yield (
                    f"{graph.name} is not a graph of {step.title}: {field} of tensor"
                    f" {tensor.name} differ"
                )


def _unsupported(step: TrainingStep) -> Iterator[str]:
    for tensor in frozen_tensors(step):
        if tensor.kind == "input":
            yield f"{step.title}: the input {tensor.name} has its home in storage; keep it in RAM"
    for value in kept_values(step):
        if value.home != step.tensor[value.result].persist:
            yield (
                f"{step.title}: {value.tensor} has its home in {value.home}, but its update"
                f" {value.result} does not persist there, so that the next step cannot read it"
            )


def _not_packable(step: TrainingStep, graph: CostedGraph) -> Iterator[str]:
    may_be_packed = {tensor.name for tensor in packable(step)}
    for tensor in graph.tensors:
        if tensor.packed_bytes is None:
            continue
        if graph.asynchronous_transfers:
            yield (
                f"{graph.name}: tensor {tensor.name} has packed_bytes, but ops that run beside its"
                " transfer may read it meanwhile"
            )
        if tensor.name not in may_be_packed:
            yield (
                f"{graph.name}: tensor {tensor.name} has packed_bytes, but only the larger"
                " activations and gradients of a step can be packed"
            )


def _missing_addresses(schedule: Schedule) -> Iterator[str]:
    if not schedule.actions:
        yield f"the schedule of {schedule.graph} has no actions: it is {schedule.status}"
    elif schedule.budget.covers != "all":
        yield (
            f"the budget of the schedule covers only {schedule.budget.covers}, so that other"
            " tensors have no addresses; solve with --budget-covers all"
        )
    elif schedule.resident_address is None or schedule.arena_bytes is None:
        yield "the schedule has no addresses; solve without --no-addresses"


def _workspace_problems(
    step: TrainingStep, graph: CostedGraph, workspace_bytes: Mapping[OpSpec, int]
) -> Iterator[str]:
    planned = {op.name: op.workspace_bytes for op in graph.ops}
    for op in step.ops:
        needed = workspace_bytes[op.spec]
        if needed > planned[op.name]:
            yield (
                f"the kernel of op {op.name} ({op.spec}) needs {needed} bytes of workspace, the"
                f" schedule has {planned[op.name]}; solve again with a profile of this board in"
                " which the operation is measured"
            )


def _addresses(schedule: Schedule) -> Iterator[tuple[str, int]]:
    for name, address in (schedule.resident_address or {}).items():
        yield f"tensor {name}", address
    for action in schedule.actions:
        match action:
            case Compute():
                for name, address in (action.address or {}).items():
                    yield f"tensor {name}", address
                if action.workspace_address is not None:
                    yield f"the workspace of op {action.op}", action.workspace_address
            case PageIn(address=int(address)):
                yield f"tensor {action.tensor}", address
