"""What the solver claims is true: held against exhaustive search on small random problems.

``python -m benchmarks.claims`` does the same for a hundred thousand problems.
"""

from __future__ import annotations

import json

import pytest

from benchmarks.claims.check import oracle_of, refutations, solve
from benchmarks.claims.oracle import Oracle, TooLarge
from benchmarks.claims.problems import random_problem
from solver.formulations.scaled_costs import Objective
from solver.options import FormulationName, Order, SolverOptions
from solver.problem.claims import EVERY_SCHEDULE, OWN_ORDER, ScheduleClass
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget
from solver.referee.referee import verify
from solver.search.states import search_states
from solver.solving.solving import solve_graph
from tests.support.graphs.graph_examples import graph, op, tensor
from tests.support.paths import ROOT

# Larger problems are for the bench.
MOST_LABELS = 6_000
OBJECTIVES: tuple[Objective, ...] = ("energy", "time", "memory")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_exhaustive_search_of_the_solver_agrees_with_the_oracle(first: int) -> None:
    """Optimum and proof of infeasibility, for each objective; the referee accepts the schedule."""
    compared = 0
    for seed in range(first, first + 100):
        problem = random_problem(seed)
        budget = Budget.model_validate(problem.budget)
        objective = OBJECTIVES[seed % 3]
        try:
            oracle = oracle_of(problem, MOST_LABELS)
            least = {
                "energy": oracle.least_energy_j,
                "time": oracle.least_time_s,
                "memory": oracle.least_ram_bytes,
            }[objective]()
        except TooLarge:
            continue
        costed = CostedGraph.model_validate(problem.graph)
        found = search_states(Problem(costed, budget), objective, most_labels=MOST_LABELS)
        if found is None:
            continue
        compared += 1
        assert (found.value is None) == (least is None), seed
        if found.value is None or found.actions is None:
            continue
        assert found.value == pytest.approx(least), seed
        changes = {"memory": {"ram_bytes": int(found.value)}, "time": {"deadline_s": None}}
        verify(costed, found.actions, budget.model_copy(update=changes.get(objective, {})))
    assert compared > 50


@pytest.mark.slow
@pytest.mark.parametrize("order", ["auto", "given"])
@pytest.mark.parametrize("first", [10_000, 10_020])
def test_no_claim_of_the_solver_is_refuted(first: int, order: Order) -> None:
    options = SolverOptions(threads=1, time_limit_s=20.0, order=order)
    compared = 0
    for seed in range(first, first + 20):
        problem = random_problem(seed)
        try:
            assert not list(refutations(problem, solve(problem, options), options.gap)), seed
        except TooLarge:
            continue
        compared += 1
    assert compared > 10


def reordered() -> CostedGraph:
    """Needs 21 bytes in the graph's order and 12 in another one, without recomputing."""
    return graph(
        [
            op("A", "", "a", recomputable=False),
            op("B", "", "b", recomputable=False),
            op("C", "a", "c", recomputable=False),
            op("D", "b c", "d", recomputable=False),
        ],
        [tensor("a", 10), tensor("b", 10), tensor("c", 1), tensor("d", 1)],
    )


def test_smallest_budget_is_that_of_any_order() -> None:
    schedule = solve_graph(reordered(), Budget(ram_bytes=11), SolverOptions())
    assert schedule.status == "infeasible"
    assert schedule.smallest_ram_bytes == schedule.smallest_ram_bound_bytes == 12
    enough = solve_graph(reordered(), Budget(ram_bytes=12), SolverOptions())
    assert enough.status == "optimal"


@pytest.mark.parametrize(
    "options",
    [
        SolverOptions(order="given"),
        SolverOptions(formulation="compact"),
        SolverOptions(formulation="poet"),
    ],
)
def test_a_restricted_search_without_a_schedule_says_what_it_searched(
    options: SolverOptions,
) -> None:
    schedule = solve_graph(reordered(), Budget(ram_bytes=15), options)
    assert schedule.status == "exhausted"
    assert "order" in schedule.restrictions[0]
    assert schedule.smallest_ram_bound_bytes == 12


@pytest.mark.parametrize("formulation", ["auto", "compact"])
def test_a_schedule_in_another_order_refutes_no_claim_about_the_given_one(
    formulation: FormulationName,
) -> None:
    options = SolverOptions(order="given", formulation=formulation)
    other = solve_graph(reordered(), Budget(ram_bytes=15), SolverOptions())
    schedule = solve_graph(reordered(), Budget(ram_bytes=15), options, starts=[other.actions])
    assert (schedule.status, schedule.actions) == ("exhausted", ())
    assert "order" in schedule.restrictions[0]
    assert not schedule.notes


def test_an_order_that_no_graph_can_have_loses_no_schedule() -> None:
    """The best schedule overwrites a tensor before another op reads it, and recomputes it."""
    text = (ROOT / "tests" / "references" / "in-place-order.json").read_text()
    costed = CostedGraph.model_validate_json(text)
    schedule = solve_graph(costed, Budget(ram_bytes=13), SolverOptions())
    assert schedule.energy_j == Oracle(json.loads(text), {"ram_bytes": 13}).least_energy_j()


def test_a_deadline_allows_rounding() -> None:
    costed = graph([op("A", "", "a", time_s=0.1)], [tensor("a", 1)])
    just_less = Budget(ram_bytes=1, deadline_s=0.1 * (1 - 1e-12))
    assert solve_graph(costed, just_less, SolverOptions()).status == "optimal"


def test_a_class_includes_what_it_restricts_no_further() -> None:
    order, other = ("a", "b"), ("b", "a")
    given = ScheduleClass(("the graph's order",), order)
    narrow = ScheduleClass(("the graph's order", "nothing is paged"), order)
    own = ScheduleClass((OWN_ORDER,), other)
    assert EVERY_SCHEDULE.includes(given)
    assert not given.includes(EVERY_SCHEDULE)
    assert given.includes(narrow)
    assert not narrow.includes(given)
    assert not given.includes(own)
    assert ScheduleClass((OWN_ORDER,), order).includes(given)
