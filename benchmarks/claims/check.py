"""A solver's result held against the oracle: which of its claims are refuted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.claims.oracle import Oracle
from benchmarks.claims.problems import RandomProblem
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Schedule
from solver.search.crossing_search import CrossingSearch, Proven
from solver.solving.solving import solve_graph

# Sums of doubles in another order differ in their last digits.
_ROUNDING = 1e-6
_MOST_LABELS = 40_000


def oracle_of(problem: RandomProblem, most_labels: int = _MOST_LABELS) -> Oracle:
    """The oracle for a random problem."""
    return Oracle(problem.graph, problem.budget, most_labels=most_labels)


def solve(problem: RandomProblem, options: SolverOptions) -> Schedule:
    """The solver's result for a random problem."""
    graph = CostedGraph.model_validate(problem.graph)
    return solve_graph(graph, Budget.model_validate(problem.budget), options)


def tightness(problem: RandomProblem) -> float | None:
    """Shortfall of the crossing program's bound, relative to the least energy.

    None if no schedule exists or the least energy is zero.

    Raises:
        TooLarge: The problem is too large for exhaustive search.
    """
    least_j = oracle_of(problem).least_energy_j()
    if not least_j:
        return None
    graph = CostedGraph.model_validate(problem.graph)
    search = CrossingSearch(
        Problem(graph, Budget.model_validate(problem.budget)), "any", "highs", threads=1
    )
    bounds = [news.bound_j for news in search.run(1e-6, math.inf) if isinstance(news, Proven)]
    return max(0.0, 1 - max(bounds, default=0.0) / least_j)


def refutations(problem: RandomProblem, schedule: Schedule, gap: float) -> Iterator[str]:
    """Every claim of ``schedule`` that exhaustive search refutes.

    Raises:
        TooLarge: The problem is too large for exhaustive search.
    """
    least_j = oracle_of(problem).least_energy_j()
    slack_j = _ROUNDING * (1.0 + (least_j or 0.0))
    if schedule.energy_j is not None:
        if least_j is None:
            yield f"a schedule of {schedule.energy_j:.9g} J where none exists"
            return
        if schedule.energy_j < least_j - slack_j:
            yield f"energy {schedule.energy_j:.9g} J is below the least, {least_j:.9g} J"
    if schedule.status == "infeasible" and not schedule.restrictions and least_j is not None:
        yield f"infeasible, but a schedule of {least_j:.9g} J exists"
    if least_j is not None:
        yield from _false_bounds(schedule, least_j, slack_j, gap)
    yield from _false_advice(problem, schedule)


def _false_bounds(schedule: Schedule, least_j: float, slack_j: float, gap: float) -> Iterator[str]:
    if not schedule.restrictions and (schedule.energy_bound_j or 0.0) > least_j + slack_j:
        yield f"bound {schedule.energy_bound_j:.9g} J is above the least, {least_j:.9g} J"
    if (schedule.any_order_bound_j or 0.0) > least_j + slack_j:
        yield f"any-order bound {schedule.any_order_bound_j:.9g} J is above {least_j:.9g} J"
    is_called_optimal = schedule.status == "optimal" and not schedule.restrictions
    if is_called_optimal and (schedule.energy_j or 0.0) * (1 - gap) > least_j + slack_j:
        yield f"optimal at {schedule.energy_j:.9g} J, the least is {least_j:.9g} J"


def _false_advice(problem: RandomProblem, schedule: Schedule) -> Iterator[str]:
    found, bound = schedule.smallest_ram_bytes, schedule.smallest_ram_bound_bytes
    if found is not None or bound is not None:
        least = oracle_of(problem).least_ram_bytes()
        if found is not None and (least is None or found < least):
            yield f"smallest RAM at most {found} bytes, {least} are needed"
        if bound is not None and least is not None and bound > least:
            yield f"smallest RAM at least {bound} bytes, {least} will do"
    found_s, bound_s = schedule.smallest_deadline_s, schedule.smallest_deadline_bound_s
    if found_s is not None or bound_s is not None:
        least_s = oracle_of(problem).least_time_s()
        if found_s is not None and (least_s is None or found_s < least_s * (1 - _ROUNDING)):
            yield f"shortest deadline at most {found_s:.9g} s, {least_s} s are needed"
        if bound_s is not None and least_s is not None and bound_s > least_s * (1 + _ROUNDING):
            yield f"shortest deadline at least {bound_s:.9g} s, {least_s} s will do"
