"""Whether a schedule can be run as it is: what a board needs to know that a schedule may lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from devices.errors import InputError
from devices.operation import ELEMENT_BYTES, OpSpec
from networks.training.step import TrainingStep
from replay.lowering.values import input_tensors, kept_values
from solver.costing.uncosted import uncosted_graph
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Compute, PageIn, Schedule
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, verify


class LoweringError(InputError):
    """A schedule that cannot be run; the message is one sentence that says why."""


def require_runnable(
    step: TrainingStep,
    graph: CostedGraph,
    schedule: Schedule,
    workspace_bytes: Mapping[OpSpec, int],
) -> None:
    """Raises :class:`LoweringError`. Both referees are asked here: what they reject is not run."""
    problems = chain(
        _mismatches(step, graph, schedule),
        _unsupported(step),
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
                f"{what} is at address {address}, which is no multiple of {ELEMENT_BYTES};"
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
    for tensor in step.tensors:
        if tensor.stretches > 1:
            yield (
                f"{step.title}: of {tensor.name} a step brings only the rows that its batch"
                " touches, which a board cannot run yet; keep parameters in RAM"
            )
    for tensor in input_tensors(step):
        if tensor.home == "storage":
            yield (
                f"{step.title}: {tensor.name} is at home in storage and no operation updates it,"
                " which a board cannot run yet; keep parameters in RAM"
            )
    for value in kept_values(step):
        if value.home != step.tensor[value.result].persist:
            yield (
                f"{step.title}: {value.tensor} is at home in {value.home}, but its update"
                f" {value.result} does not persist there, so that no step can follow another"
            )


def _missing_addresses(schedule: Schedule) -> Iterator[str]:
    if not schedule.actions:
        yield f"the schedule of {schedule.graph} has no actions: it is {schedule.status}"
    elif schedule.budget.covers != "all":
        yield (
            f"the budget of the schedule covers {schedule.budget.covers} alone, so that the rest"
            " has no addresses; solve with --budget-covers all"
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
