"""Schedules of the published methods, with addresses, as documents like those of this solver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from devices.errors import EngineFailed
from solver.addresses.plan import plan_addresses, with_addresses
from solver.baselines.baseline import BaselineResult
from solver.baselines.registry import run_baseline
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Schedule, SolverRecord
from solver.referee.referee import verify
from solver.solving.packing import pack
from solver.time_limit import TimeLimit

_ADDRESSES_S = 5.0


@dataclass(frozen=True)
class BaselineSchedules:
    """Result of a baseline, and its schedules with addresses.

    Attributes:
        result: The result. RAM is a sum of bytes there, unless the method chooses addresses.
        own: The schedule of the result, in the smallest arena that was found; its own budget is
            that arena if it exceeds the budget. None if the method has no schedule.
        packed: A similar schedule within the budget; None if ``own`` is within it, or if none was
            found.
        failed: Whether the process of an engine failed, as the result's note says.
    """

    result: BaselineResult
    own: Schedule | None = None
    packed: Schedule | None = None
    failed: bool = False


def schedule_by_baseline(
    graph: CostedGraph,
    budget: Budget,
    name: str,
    time_limit_s: float,
    threads: int = SolverOptions.threads,
) -> Schedule:
    """Schedule of a published method, with addresses in the smallest arena that is found.

    Published methods count RAM as a sum of bytes. Where the arena exceeds the budget, the
    schedule's own budget is the arena, and a note says so.

    Args:
        graph: The costed graph.
        budget: The budget that the method works for.
        name: Name of the method, a key of ``BASELINES``.
        time_limit_s: Limit of the method on wall time. Addresses take a few seconds more.
        threads: Number of threads of a method that searches.

    Returns:
        The schedule, without bounds; ``no_solution`` if the method has none within the budget.

    Raises:
        KeyError: No method has this name.
        EngineFailed: The process of an engine failed.
        RefereeError: A schedule is invalid, which is a defect.
    """
    run = _Run(Problem(graph, budget), name, threads)
    result = run_baseline(name, run.problem, time_limit_s, threads)
    if result.actions is None:
        notes = (result.note,) if result.note else ()
        return Schedule(status="no_solution", budget=budget, notes=notes, **run.common())
    return run.own(result, result.actions)


def schedules_by_baseline(
    problem: Problem, name: str, time_limit_s: float, threads: int = SolverOptions.threads
) -> BaselineSchedules:
    """Run a published method, and find addresses for its schedule or for one like it.

    Args:
        problem: The problem.
        name: Name of the method, a key of ``BASELINES``.
        time_limit_s: Limit of the method on wall time. Addresses take a few seconds more.
        threads: Number of threads of a method that searches.

    Returns:
        The result and its schedules, which have no bounds.

    Raises:
        As :func:`schedule_by_baseline`, but for an engine that fails in the method.
    """
    run = _Run(problem, name, threads)
    try:
        result = run_baseline(name, problem, time_limit_s, threads)
    except EngineFailed as error:
        return BaselineSchedules(BaselineResult(None, str(error)), failed=True)
    if result.actions is None:
        return BaselineSchedules(result)
    own = run.own(result, result.actions)
    if own.budget == problem.budget:
        return BaselineSchedules(result, own)
    limit = TimeLimit.after(min(_ADDRESSES_S, time_limit_s))
    packed = pack(problem, result.actions, SolverOptions(threads=1), limit)
    plan = packed.plan
    if plan.arena_bytes > problem.budget.ram_bytes:
        return BaselineSchedules(result, own)
    arena = _Arena(plan.arena_bytes, plan.bound_bytes, plan.resident_address)
    return BaselineSchedules(result, own, run.document(packed.actions, arena, packed.notes))


@dataclass(frozen=True)
class _Arena:
    bytes: int
    bound_bytes: int | None
    resident_address: Mapping[str, int]


class _Run:
    """One run of a method, from now on."""

    def __init__(self, problem: Problem, name: str, threads: int) -> None:
        self.problem = problem
        self._name = name
        self._threads = threads
        self._began_s = time.monotonic()

    def own(self, result: BaselineResult, actions: tuple[Action, ...]) -> Schedule:
        """The schedule of a result, with its own addresses or in the smallest arena found."""
        graph, budget = self.problem.graph, self.problem.budget
        notes = (result.note,) if result.note else ()
        if result.resident_address is not None and result.arena_bytes is not None:
            addressed = _Arena(result.arena_bytes, None, result.resident_address)
            return self.document(actions, addressed, notes)
        until = time.monotonic() + _ADDRESSES_S
        plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
        if plan.arena_bytes > budget.ram_bytes:
            notes = (
                *notes,
                f"with addresses it takes {plan.arena_bytes} bytes, more than the budget of"
                f" {budget.ram_bytes} bytes, which it meets as a sum of bytes",
            )
        arena = _Arena(plan.arena_bytes, plan.bound_bytes, plan.resident_address)
        return self.document(with_addresses(actions, plan), arena, notes)

    def document(
        self, actions: tuple[Action, ...], arena: _Arena, notes: tuple[str, ...]
    ) -> Schedule:
        """A schedule as a document; its budget is the arena if that exceeds the method's budget."""
        budget = self.problem.budget
        played = verify(self.problem.graph, actions, budget)
        ram_bytes = max(arena.bytes, budget.ram_bytes)
        return Schedule(
            status="feasible",
            budget=budget.model_copy(update={"ram_bytes": ram_bytes}),
            energy_j=played.energy_j,
            time_s=played.time_s,
            peak_bytes=played.peak_bytes,
            arena_bytes=arena.bytes,
            arena_bound_bytes=arena.bound_bytes,
            bytes_written_to_storage=played.bytes_written_to_storage,
            resident_address=dict(arena.resident_address),
            actions=actions,
            notes=notes,
            **self.common(),
        )

    def common(self) -> dict[str, object]:
        """Fields that do not depend on the result; the time is that until now."""
        graph = self.problem.graph
        return {
            "graph": graph.name,
            "graph_sha256": graph.sha256,
            "energy_source": graph.energy_source,
            "bound_covers": "nothing: the method proves no bound",
            "chosen": (self._name,),
            "solver": SolverRecord(
                engine="none",
                formulation=self._name,
                version="",
                seconds=time.monotonic() - self._began_s,
                build_seconds=0.0,
                rounds=0,
                threads=self._threads,
            ),
        }
