"""This project's solver with recomputation or paging only."""

from __future__ import annotations

from devices.documents.readable import above_least, smallest_ram_words
from solver.baselines.baseline import BaselineResult
from solver.options import SolverOptions
from solver.problem.problem import Problem
from solver.solving.solving import solve_graph


def remat_only(problem: Problem, time_limit_s: float, threads: int) -> BaselineResult:
    """Solve for least energy without paging. Raises :class:`~devices.errors.EngineFailed`."""
    return _solved_without(problem, "paging", time_limit_s, threads)


def paging_only(problem: Problem, time_limit_s: float, threads: int) -> BaselineResult:
    """Solve for least energy without recomputation. Raises ``EngineFailed``."""
    return _solved_without(problem, "rematerialization", time_limit_s, threads)


def _solved_without(
    problem: Problem, excluded: str, time_limit_s: float, threads: int
) -> BaselineResult:
    budget = problem.budget.model_copy(update={excluded: False})
    options = SolverOptions(time_limit_s=time_limit_s, threads=threads)
    schedule = solve_graph(problem.graph, budget, options)
    if schedule.actions:
        note = "optimal" if schedule.status == "optimal" else "the best found"
        return BaselineResult(
            schedule.actions,
            f"{note}, {above_least(schedule.gap or 0.0)}",
            schedule.arena_bytes,
            resident_address=schedule.resident_address,
        )
    if schedule.status == "no_solution":
        return BaselineResult(None, f"no schedule was found in {time_limit_s:.0f} s")
    if schedule.status == "exhausted":
        return BaselineResult(None, "no schedule was found in the orders that were searched")
    enough_bytes, bound_bytes = schedule.smallest_ram_bytes, schedule.smallest_ram_bound_bytes
    if enough_bytes is None:
        return BaselineResult(None, "infeasible; no larger RAM budget is known to be enough")
    smallest = smallest_ram_words(enough_bytes, bound_bytes)
    return BaselineResult(
        None, f"infeasible: the smallest RAM budget is {smallest}, set by {schedule.limiting_op}"
    )
