"""A solver's result held against the oracle: which of its claims are refuted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.claims.oracle import Oracle
from benchmarks.claims.problems import RandomProblem
from solver.options import SolverOptions
from solver.problem.claims import Claim, claims_of
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Schedule
from solver.search.crossing_search import CrossingSearch, Proven
from solver.solving.solving import solve_graph

# Sums of doubles in another order differ in their last digits, and engines have tolerances.
ROUNDING = 1e-6
_MOST_LABELS = 8_000


def oracle_of(problem: RandomProblem, most_labels: int = _MOST_LABELS) -> Oracle:
    """The oracle for a random problem."""
    return Oracle(problem.graph, problem.budget, most_labels=most_labels)


def solve(problem: RandomProblem, options: SolverOptions) -> Schedule:
    """The solver's result for a random problem."""
    graph = CostedGraph.model_validate(problem.graph)
    return solve_graph(graph, Budget.model_validate(problem.budget), options)


def tightness(problem: RandomProblem, oracle: Oracle) -> float | None:
    """Shortfall of the crossing program's bound, with open ops too, relative to the least energy.

    It is negative if a bound is false. None if no schedule exists or the least energy is zero.

    Raises:
        TooLarge: The problem is too large for exhaustive search.
    """
    least_j = oracle.least_energy_j()
    if not least_j:
        return None
    graph = CostedGraph.model_validate(problem.graph)
    budgeted = Problem(graph, Budget.model_validate(problem.budget))
    bounds = [0.0]
    for open_ops in (False, True):
        search = CrossingSearch(budgeted, "any", "highs", threads=1, open_ops=open_ops)
        bounds += [news.bound_j for news in search.run(1e-6, math.inf) if isinstance(news, Proven)]
    return 1 - max(bounds) / least_j


def refutations(
    problem: RandomProblem, oracle: Oracle, schedule: Schedule, gap: float
) -> Iterator[str]:
    """Every claim of ``schedule`` that exhaustive search refutes.

    A claim about a class with restrictions beyond an order is not examined.

    Raises:
        TooLarge: The problem is too large for exhaustive search.
    """
    least_j = oracle.least_energy_j()
    slack_j = ROUNDING * (1.0 + (least_j or 0.0))
    if schedule.energy_j is not None:
        if least_j is None:
            yield f"a schedule of {schedule.energy_j:.9g} J where none exists"
            return
        if schedule.energy_j < least_j - slack_j:
            yield f"energy {schedule.energy_j:.9g} J is below the least, {least_j:.9g} J"
        is_called_optimal = schedule.status == "optimal" and not schedule.restrictions
        if is_called_optimal and schedule.energy_j * (1 - gap) > least_j + slack_j:
            yield f"optimal at {schedule.energy_j:.9g} J, the least is {least_j:.9g} J"
    order = [op["name"] for op in problem.graph["ops"]]
    for claim in claims_of(schedule, order).proven:
        if not claim.covers.further:
            yield from _if_false(problem, oracle, claim)
    yield from _false_findings(problem, oracle, schedule)


def _if_false(problem: RandomProblem, oracle: Oracle, claim: Claim) -> Iterator[str]:
    """A sentence about a claim that a schedule refutes."""
    order, budget = claim.covers.order, claim.budget.model_dump()
    if order is not None or claim.budget != Budget.model_validate(problem.budget):
        graph = problem.graph
        if order is not None:
            ops = {op["name"]: op for op in graph["ops"]}
            graph = {**graph, "ops": [ops[name] for name in order]}
        is_ordered = order is not None
        oracle = Oracle(graph, budget, given_order=is_ordered, most_labels=_MOST_LABELS)
    least_j = oracle.least_energy_j()
    if least_j is not None and claim.least_j > least_j + ROUNDING * (1.0 + least_j):
        yield (
            f"at least {claim.least_j:.9g} J within {budget['ram_bytes']} bytes, but"
            f" {least_j:.9g} J are enough" + (" in this order" if order else "")
        )


def _false_findings(problem: RandomProblem, oracle: Oracle, schedule: Schedule) -> Iterator[str]:
    """Sentences about the smallest budget and the shortest deadline."""
    found = schedule.smallest_ram_bytes
    if found is not None:
        roomy = {**problem.budget, "ram_bytes": found}
        if Oracle(problem.graph, roomy, most_labels=_MOST_LABELS).least_energy_j() is None:
            yield f"smallest RAM at most {found} bytes, more are needed"
    found_s, bound_s = schedule.smallest_deadline_s, schedule.smallest_deadline_bound_s
    if found_s is not None or bound_s is not None:
        least_s = oracle.least_time_s()
        if found_s is not None and (least_s is None or found_s < least_s * (1 - ROUNDING)):
            yield f"shortest deadline at most {found_s:.9g} s, {least_s} s are needed"
        if bound_s is not None and least_s is not None and bound_s > least_s * (1 + ROUNDING):
            yield f"shortest deadline at least {bound_s:.9g} s, {least_s} s will do"
