"""Schedules of the published methods, with addresses, as documents like those of this solver."""

from __future__ import annotations

import time

from solver.addresses.plan import plan_addresses, with_addresses
from solver.baselines.registry import run_baseline
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Schedule, SolverRecord
from solver.referee.referee import verify

_ADDRESSES_S = 5.0


def schedule_by_baseline(
    graph: CostedGraph, budget: Budget, name: str, time_limit_s: float
) -> Schedule:
    """Schedule of a published method, with addresses in the smallest arena that is found.

    Published methods count RAM as a sum of bytes. Where the arena exceeds the budget, the
    schedule's own budget is the arena, and a note says so.

    Args:
        graph: The costed graph.
        budget: The budget that the method works for.
        name: Name of the method, a key of ``BASELINES``.
        time_limit_s: Limit of the method on wall time. Addresses take a few seconds more.

    Returns:
        The schedule, without bounds; ``no_solution`` if the method has none within the budget.

    Raises:
        KeyError: No method has this name.
        EngineFailed: The process of an engine failed.
        RefereeError: A schedule is invalid, which is a defect.
    """
    began_s = time.monotonic()
    result = run_baseline(name, Problem(graph, budget), time_limit_s)
    notes = (result.note,) if result.note else ()
    common = {
        "graph": graph.name,
        "graph_sha256": graph.sha256,
        "energy_source": graph.energy_source,
        "bound_covers": "nothing: the method proves no bound",
        "chosen": (name,),
    }

    def record() -> SolverRecord:
        return SolverRecord(
            engine="none",
            formulation=name,
            version="",
            seconds=time.monotonic() - began_s,
            build_seconds=0.0,
            rounds=0,
            threads=1,
        )

    if result.actions is None:
        return Schedule(status="no_solution", budget=budget, solver=record(), notes=notes, **common)
    until = time.monotonic() + _ADDRESSES_S
    plan = plan_addresses(graph, result.actions, budget.covers, budget.ram_bytes, until)
    actions = with_addresses(result.actions, plan)
    if plan.arena_bytes > budget.ram_bytes:
        notes = (
            *notes,
            f"with addresses it takes {plan.arena_bytes} bytes, more than the budget of"
            f" {budget.ram_bytes} bytes, which it meets as a sum of bytes",
        )
    played = verify(graph, actions, budget)
    ram_bytes = max(plan.arena_bytes, budget.ram_bytes)
    return Schedule(
        status="feasible",
        budget=budget.model_copy(update={"ram_bytes": ram_bytes}),
        energy_j=played.energy_j,
        time_s=played.time_s,
        peak_bytes=played.peak_bytes,
        arena_bytes=plan.arena_bytes,
        arena_bound_bytes=plan.bound_bytes,
        bytes_written_to_storage=played.bytes_written_to_storage,
        resident_address=plan.resident_address,
        actions=actions,
        solver=record(),
        notes=notes,
        **common,
    )
