"""What the solver claims is true: held against exhaustive search on small random problems.

``python -m benchmarks.claims`` does the same for a hundred thousand problems.
"""

from __future__ import annotations

import json
import math
import random

import pytest

from benchmarks.claims.check import oracle_of, refutations, solve
from benchmarks.claims.oracle import Oracle, TooLarge
from benchmarks.claims.problems import random_problem
from solver.constructed import keep_everything
from solver.engines.program import Program
from solver.engines.proofs import Proof
from solver.formulations.scaled_costs import Objective
from solver.options import FormulationName, Order, SolverOptions
from solver.problem.claims import (
    EVERY_SCHEDULE,
    GIVEN_ORDER,
    OWN_ORDER,
    Claim,
    Claims,
    ScheduleClass,
)
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
@pytest.mark.usefixtures("_kept_engines")
@pytest.mark.parametrize("order", ["auto", "given"])
@pytest.mark.parametrize("first", [10_000, 10_020])
def test_no_claim_of_the_solver_is_refuted(first: int, order: Order) -> None:
    options = SolverOptions(threads=1, time_limit_s=20.0, order=order)
    compared = 0
    for seed in range(first, first + 20):
        problem = random_problem(seed)
        oracle = oracle_of(problem)
        try:
            oracle.least_energy_j()
            schedule = solve(problem, options)
            assert not list(refutations(problem, oracle, schedule, options.gap)), seed
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["compact", "poet"])
def test_a_schedule_that_is_late_by_little_accuses_no_engine(formulation: FormulationName) -> None:
    """Transfers of 2e-8 of the deadline are too much, within the absolute tolerance of engines.

    ``a`` leaves RAM while ``D`` runs: it is paged, or recomputed, which takes far longer.
    """
    costed = graph(
        [op("A", "", "a"), op("B", "a", "b"), op("D", "b", "d"), op("C", "a d", "c")],
        [
            tensor("a", 2, page_out=(4e-8, 1.0), page_in=(4e-8, 1.0)),
            *(tensor("b", 10), tensor("d", 2), tensor("c", 1)),
        ],
    )
    budget = Budget(ram_bytes=12, deadline_s=4.0)
    assert not Problem(costed, budget).is_evidently_infeasible
    in_time = Budget(ram_bytes=12, deadline_s=4.0 + 1e-7)
    options = SolverOptions(threads=1, formulation=formulation)
    assert solve_graph(costed, in_time, options).status == "optimal"
    schedule = solve_graph(costed, budget, options)
    assert (schedule.status, schedule.notes) == ("infeasible", ())


def test_a_deadline_allows_rounding() -> None:
    costed = graph([op("A", "", "a", time_s=0.1)], [tensor("a", 1)])
    just_less = Budget(ram_bytes=1, deadline_s=0.1 * (1 - 1e-12))
    assert solve_graph(costed, just_less, SolverOptions()).status == "optimal"


# --- rules ----------------------------------------------------------------------------------------


def test_a_class_includes_what_it_restricts_no_further() -> None:
    order, other = ("a", "b"), ("b", "a")
    given = ScheduleClass(order)
    narrow = ScheduleClass(order, ("nothing is paged",))
    assert EVERY_SCHEDULE.includes(given)
    assert not given.includes(EVERY_SCHEDULE)
    assert given.includes(narrow)
    assert not narrow.includes(given)
    assert not given.includes(ScheduleClass(other))
    assert narrow.restrictions(order) == (GIVEN_ORDER, "nothing is paged")
    assert narrow.restrictions(other) == (OWN_ORDER, "nothing is paged")
    assert ScheduleClass.named(narrow.restrictions(other), order) == narrow


def truths(seed: int) -> dict[tuple[Budget, ScheduleClass], float]:
    """The least energy for pairs of a budget and a class of a random problem, by the oracle."""
    problem = random_problem(seed)
    order = tuple(op["name"] for op in problem.graph["ops"])
    ram_bytes = problem.budget["ram_bytes"]
    budgets = [
        {**problem.budget, "ram_bytes": ram_bytes + more, **changes}
        for more in (-2, 0, 3)
        for changes in ({}, {"deadline_s": None}, {"paging": False}, {"rematerialization": False})
    ]
    found = {}
    for budget in budgets:
        for covers in (EVERY_SCHEDULE, ScheduleClass(order)):
            given_order = covers.order is not None
            oracle = Oracle(problem.graph, budget, given_order=given_order, most_labels=600)
            least_j = oracle.least_energy_j()
            key = Budget.model_validate(budget), covers
            found[key] = math.inf if least_j is None else least_j
    return found


@pytest.mark.slow
def test_true_claims_combine_to_true_claims() -> None:
    """About every budget and class, also the RAM that is needed and what a schedule is stated with.

    Some claims are weaker than the truth, some rest on an engine, and none is lost: about each
    budget and class the rules give the greatest bound of those that hold.
    """
    compared = 0
    for seed in range(60):
        try:
            least_j = truths(seed)
        except TooLarge:
            continue
        draw, engine = random.Random(seed), Proof.of(Program(), None)
        drawn = [
            Claim(truth * draw.choice([1, 1, 0.5]), *key, draw.choice(["costs", engine]))
            for key, truth in least_j.items()
            if draw.random() < 0.4
        ]
        graph = CostedGraph.model_validate(random_problem(seed).graph)
        everything = Claims().also(*drawn)
        sums = everything.resting_on(lambda by: by == "costs")
        for claims, known in ((everything, drawn), (sums, [c for c in drawn if c.by == "costs"])):
            for key, truth in least_j.items():
                bound_j = claims.about(*key).least_j
                assert bound_j <= truth * (1 + 1e-9), seed
                assert bound_j == max((c.least_j for c in known if c.holds(*key)), default=0.0)
                compared += bound_j > 0
            for budget, covers in least_j:
                none = claims.none(budget)
                assert none is None or least_j[budget, none.covers] == math.inf, seed
                stated_j = claims.of(budget, keep_everything(graph)).least_j
                assert stated_j <= least_j[budget, ScheduleClass(graph.order)] * (1 + 1e-9), seed
                needed = claims.least_ram_bytes(budget)
                is_enough = needed is None or budget.ram_bytes >= needed
                assert is_enough or least_j[budget, covers] == math.inf, seed
    assert compared > 300


def test_an_inferior_claim_outlives_the_proof_of_an_engine() -> None:
    budget, lie = Budget(ram_bytes=1), Proof.of(Program(), 5.0)
    claims = Claims().also(Claim(3.0, budget), Claim(5.0, budget, by=lie), Claim(4.0, budget))
    assert claims.about(budget) == Claim(5.0, budget, by=lie)
    assert claims.resting_on(lambda by: by != lie).about(budget).least_j == 4.0
