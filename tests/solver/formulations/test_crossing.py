"""The crossing program: its bound holds for every schedule in any order, and is close."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from benchmarks.solver.graphs import graph_of_name
from devices.published import load_published
from networks.models import build_model
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.costing.costing import cost_graph
from solver.engines.messages import Bound, EngineMessage, Finished, Incumbent
from solver.engines.program import Program
from solver.formulations.crossing import CrossingProgram, OrderKept
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Compute
from solver.referee.referee import replay, verify
from solver.search.crossing_search import (
    CrossingSearch,
    FalseBound,
    NoSchedule,
    Proven,
    Sketch,
    sketch,
)
from tests.support.graphs.graph_examples import crossed_chain, graph, op, tensor
from tests.support.graphs.graph_strategies import (
    action_lists,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)


def least(program: Program) -> float:
    """Optimum of a program; infinite if it has no solution."""
    if not program.cost:
        return 0.0 if program.satisfied_by([]) else math.inf
    result = solved(program)
    return float(result.fun) if result.status == 0 else math.inf


def solved(program: Program) -> OptimizeResult:
    """The result of SciPy for a program."""
    rows = np.zeros((len(program.rows), len(program.cost)))
    low, high = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    for number, row in enumerate(program.rows):
        rows[number, list(row.columns)] = row.coefficients
        if row.sense != "<":
            low[number] = row.right_side
        if row.sense != ">":
            high[number] = row.right_side
    return milp(
        program.cost,
        integrality=np.array(program.integer, int),
        bounds=Bounds(np.array(program.lower), np.array(program.upper)),
        constraints=[LinearConstraint(rows, low, high)] if len(rows) else [],
    )


def proven_j(problem: Problem, order: OrderKept = "any", *, open_ops: bool = False) -> float:
    """Bound that the program proves with memory rows at every op."""
    crossing = CrossingProgram(problem, order, open_ops=open_ops)
    for t in range(len(problem.graph.ops)):
        crossing.add_memory_rows(t)
    objective = least(crossing.program)
    bound = math.inf if objective == math.inf else crossing.bound_j(objective)
    knapsacks_j = [crossing.knapsack_j(t) for t in range(len(problem.graph.ops))]
    assert crossing.constant <= max(knapsacks_j) <= bound + 1e-6
    return bound


def bound_j(
    costed: CostedGraph, ram_bytes: int, *, paging: bool = True, remat: bool = True
) -> float:
    budget = Budget(ram_bytes=ram_bytes, paging=paging, rematerialization=remat)
    return proven_j(Problem(costed, budget))


# --- valid ------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problem=tight_problems())
def test_bound_is_at_most_the_optimum(problem: tuple[CostedGraph, Budget]) -> None:
    costed, budget = problem
    least_j = least_energy_by_exhaustion(costed, budget)
    bound = proven_j(Problem(costed, budget))
    tighter = proven_j(Problem(costed, budget), open_ops=True)
    assert bound <= tighter + 1e-6
    if least_j is not None:
        assert tighter <= least_j + 1e-6
        assert tighter <= proven_j(Problem(costed, budget), "given") + 1e-6


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_bound_is_at_most_the_energy_of_any_valid_schedule(
    data: st.DataObject,
) -> None:
    costed = data.draw(small_graphs())
    played = replay(costed, with_frees(costed, data.draw(action_lists(costed))))
    deadline_s = played.time_s if data.draw(st.booleans()) else None
    budget = Budget(ram_bytes=played.peak_bytes, deadline_s=deadline_s)
    assert proven_j(Problem(costed, budget), open_ops=True) <= played.energy_j + 1e-6


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_bound_for_an_order_is_at_most_any_schedule_in_that_order(data: st.DataObject) -> None:
    costed = data.draw(small_graphs())
    actions = with_frees(costed, data.draw(action_lists(costed)))
    played = replay(costed, actions)
    firsts = dict.fromkeys(action.op for action in actions if isinstance(action, Compute))
    ordered = costed.in_order(list(firsts))
    problem = Problem(ordered, Budget(ram_bytes=played.peak_bytes))
    assert proven_j(problem, "given") <= played.energy_j + 1e-6


# --- costs in the bound ------------------------------------------------------------------------


def test_bound_is_the_energy_of_all_ops_if_everything_fits() -> None:
    assert bound_j(crossed_chain(), 13) == 16


def test_crossing_tensor_that_does_not_fit_is_paged_or_recomputed_at_least_cost() -> None:
    """``a`` is paged for 5 J as soon as one byte is missing.

    Without paging it is recomputed for 9 J.
    """
    assert bound_j(crossed_chain(), 12) == pytest.approx(16 + 5)
    assert bound_j(crossed_chain(), 9) == pytest.approx(16 + 5)
    assert bound_j(crossed_chain(), 9, paging=False) == pytest.approx(16 + 9)


def test_bytes_that_do_not_fit_cost_their_share_without_an_engine() -> None:
    """While ``gb`` runs, ``a`` of 6 bytes crosses, paged for 5 J or recomputed for 9 J."""
    for ram_bytes, paging, least_j in (
        (13, True, 16.0),
        (12, True, 16 + 5 / 6),
        (10, True, 16 + 5 / 2),
        (10, False, 16 + 9 / 2),
        (6, True, 16 + 5),
    ):
        problem = Problem(crossed_chain(), Budget(ram_bytes=ram_bytes, paging=paging))
        assert CrossingProgram(problem, "any").knapsack_j(3) == pytest.approx(least_j)


def test_no_schedule_without_paging_and_recomputation_if_too_large() -> None:
    assert bound_j(crossed_chain(), 12, paging=False, remat=False) == math.inf
    assert bound_j(crossed_chain(), 13, paging=False, remat=False) == 16


def test_overwritten_input_is_recomputed_before_its_op() -> None:
    costed = graph(
        [
            op("f", "x", "a", energy_j=9.0),
            op("relu", "a", "r", energy_j=1.0, in_place={"r": "a"}),
            op("loss", "r", "c"),
            op("next", "c", "n"),
            op("back", "r n", "d"),
        ],
        [
            tensor("x", 1, home="ram"),
            *(tensor(name, 6) for name in "ar"),
            *(tensor(name, 2) for name in "cn"),
            tensor("d", 1, persist="ram"),
        ],
    )
    # While "next" runs, r does not fit in addition to c and n.
    assert bound_j(costed, 9) == pytest.approx(13 + 10)


def test_outputs_of_one_op_share_its_cost() -> None:
    costed = graph(
        [
            op("f", "x", "a b", energy_j=8.0),
            op("loss", "a b", "c"),
            op("next", "c", "n"),
            op("back", "a b n", "d"),
        ],
        [
            tensor("x", 1, home="ram"),
            *(tensor(name, 4) for name in "ab"),
            *(tensor(name, 2) for name in "cn"),
            tensor("d", 1, persist="ram"),
        ],
    )
    assert bound_j(costed, 11) == pytest.approx(11 + 8)
    assert bound_j(costed, 12) == pytest.approx(11)


def with_parameter_in_storage(*, first_reads: str) -> CostedGraph:
    return graph(
        [
            op("f", first_reads, "a"),
            op("loss", "a", "c"),
            op("back", "c w", "g"),
            op("update", "w g", "w1", in_place={"w1": "w"}, recomputable=False),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("w", 5, home="storage", page_in=(1.0, 3.0)),
            tensor("a", 3),
            *(tensor(name, 2) for name in "cg"),
            tensor("w1", 5, persist="storage", page_out=(1.0, 2.0)),
        ],
    )


def test_parameter_in_storage_is_paged_in_again_if_it_was_not_kept() -> None:
    costed = with_parameter_in_storage(first_reads="x w")
    assert bound_j(costed, 10) == 4 + 3 + 2
    assert bound_j(costed, 9) == pytest.approx(4 + 3 + 2 + 3)


def test_parameter_in_storage_read_only_later_is_paged_in_once() -> None:
    assert bound_j(with_parameter_in_storage(first_reads="x"), 9) == 4 + 3 + 2


# --- open ops ---------------------------------------------------------------------------------


def with_updates_at_any_time() -> CostedGraph:
    """Two parameters of 4 bytes, each updated at any time after its gradient is made."""
    return graph(
        [
            op("f", "x w", "a"),
            op("loss", "a v", "c"),
            op("gv", "c a", "dv"),
            op("gw", "c x", "dw"),
            op("uv", "v dv", "v1", in_place={"v1": "v"}, recomputable=False),
            op("uw", "w dw", "w1", in_place={"w1": "w"}, recomputable=False),
        ],
        [
            tensor("x", 1, home="ram"),
            *(
                tensor(name, 4, home="ram", page_in=(1.0, 3.0), page_out=(1.0, 5.0))
                for name in "wv"
            ),
            *(tensor(name, 1) for name in "ac"),
            *(tensor(name, 4) for name in ("dv", "dw")),
            *(tensor(name, 4, persist="ram", page_in=(1.0, 3.0)) for name in ("v1", "w1")),
        ],
    )


def test_a_parameter_takes_ram_before_its_update_and_after_it() -> None:
    """While ``gw`` runs, either ``v`` or ``v1`` is in RAM, or one is paged in later for 8 J."""
    costed, budget = with_updates_at_any_time(), Budget(ram_bytes=12)
    problem = Problem(costed, budget)
    assert proven_j(problem) == pytest.approx(6 + 8)
    assert proven_j(problem, open_ops=True) == pytest.approx(6 + 8)
    assert least_energy_by_exhaustion(costed, budget) == 16


def test_a_chain_of_open_ops_leaves_one_of_its_tensors_in_ram() -> None:
    """While ``t`` runs, ``e``, ``a`` or ``b`` is in RAM, or recomputed later for 7 J."""
    costed = graph(
        [
            op("e0", "x", "e q", energy_j=7.0),
            op("fa", "e", "a", energy_j=7.0),
            op("fb", "a", "b", energy_j=7.0),
            op("t", "q", "y", workspace_bytes=6),
            op("loss", "b y", "c"),
        ],
        [
            tensor("x", 1, home="ram"),
            *(tensor(name, 4) for name in "eab"),
            *(tensor(name, 1) for name in "qyc"),
        ],
    )
    problem = Problem(costed, Budget(ram_bytes=11))
    assert proven_j(problem) == pytest.approx(23)
    assert proven_j(problem, open_ops=True) == pytest.approx(23 + 7)
    assert proven_j(Problem(costed, Budget(ram_bytes=13)), open_ops=True) == pytest.approx(23)


def test_a_chain_of_open_ops_may_be_of_any_length() -> None:
    """More than Python's calls can nest: beside op ``t``, 3000 ops that each read the last one's
    result."""
    count = 3000
    chain = [op(f"f{k}", f"a{k - 1}" if k else "x", f"a{k}") for k in range(count)]
    sizes = [tensor("x", 1, home="ram"), *(tensor(f"a{k}", 1) for k in range(count))]
    costed = graph([*chain, op("t", "x", "y")], [*sizes, tensor("y", 1)])
    crossing = CrossingProgram(Problem(costed, Budget(ram_bytes=9)), "any", open_ops=True)
    crossing.add_memory_rows(count)
    assert len(crossing.moments[count].early) == count


# --- the search -------------------------------------------------------------------------------


def searched_j(problem: Problem, gap: float = 1e-6) -> tuple[float, list[Sketch]]:
    search = CrossingSearch(problem, "any", "highs", threads=1)
    bound, sketches = 0.0, []
    for news in search.run(gap, time.monotonic() + 60):
        match news:
            case NoSchedule():
                return math.inf, sketches
            case Proven():
                bound = max(bound, news.bound_j)
            case Sketch():
                sketches.append(news)
    return bound, sketches


@pytest.mark.parametrize("ram_bytes", [9, 12, 13])
def test_memory_rows_at_tight_ops_alone_prove_the_same_bound(ram_bytes: int) -> None:
    problem = Problem(crossed_chain(), Budget(ram_bytes=ram_bytes))
    bound, sketches = searched_j(problem)
    assert bound == pytest.approx(proven_j(problem), rel=1e-4)
    paged = [(k, makes) for sketch in sketches[-1:] for k, makes in sketch.makes.items()]
    assert paged == ([] if ram_bytes == 13 else [(4, (("page_in", 1),))])


def test_crossing_search_proves_that_no_schedule_exists() -> None:
    problem = Problem(crossed_chain(), Budget(ram_bytes=8, paging=False, rematerialization=False))
    assert searched_j(problem)[0] == math.inf


def test_crossing_search_proves_that_no_schedule_meets_the_deadline() -> None:
    budget = Budget(ram_bytes=9, deadline_s=5.0)
    assert searched_j(Problem(crossed_chain(), budget))[0] == math.inf
    enough = budget.model_copy(update={"deadline_s": 7.0})
    assert searched_j(Problem(crossed_chain(), enough))[0] < math.inf


def test_a_solution_below_a_proven_bound_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that proves too much, and then finds a solution that satisfies every row."""
    problem = Problem(crossed_chain(), Budget(ram_bytes=9))

    class Hasty:
        version, faults = "hasty", ()

        def __init__(self, _name: str) -> None:
            pass

        def __enter__(self) -> Hasty:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def minimise(
            self, program: Program, *, relax: bool, **_: object
        ) -> Iterator[EngineMessage]:
            optimum = solved(program)
            if not relax:
                yield Bound(optimum.fun + 1.0)
            yield Incumbent(optimum.fun, list(optimum.x))
            yield Finished("optimal")

    monkeypatch.setattr("solver.search.crossing_search.Engine", Hasty)
    *_, bound, last = CrossingSearch(problem, "any", "highs", 1).run(1e-6, math.inf)
    assert isinstance(bound, Proven)
    assert last == FalseBound()


# --- close ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bound_is_close_to_greedy_schedule_of_published_resnet50() -> None:
    costed = graph_of_name("poet-resnet50-m4")
    _assert_close_bound(costed, replay(costed, keep_everything(costed)).peak_bytes // 2, 0.001)


@pytest.mark.slow
def test_bound_is_close_to_greedy_schedule_of_bert_in_64_mib() -> None:
    step = build_model("bert", parameters_in="storage")
    _assert_close_bound(cost_graph(step, load_published("m4")).graph, 64 * 2**20, 0.01)


def _assert_close_bound(costed: CostedGraph, ram_bytes: int, gap: float) -> None:
    problem = Problem(costed, Budget(ram_bytes=ram_bytes))
    actions = greedy_schedule(problem)
    assert actions is not None
    energy_j = verify(costed, actions, problem.budget).energy_j
    bound, _ = searched_j(problem, gap / 4)
    assert problem.least_energy_j < bound <= energy_j
    assert energy_j - bound < gap * energy_j


def test_a_sketch_may_recompute_any_number_of_ops_in_a_row() -> None:
    """More than Python's calls can nest: 3000 ops, each of which reads the result of the last."""
    count = 3000
    problem = SimpleNamespace(
        producer=range(count),
        reads=[[], *([k - 1] for k in range(1, count))],
        readers=[*([k + 1] for k in range(count - 1)), [count + 1]],
    )
    crossing = SimpleNamespace(
        problem=problem,
        paged={},
        again=dict.fromkeys(range(count), 1),
        moments={count: SimpleNamespace(held=dict.fromkeys(range(count), 0))},
        crossing=lambda _t: [count - 1],
    )
    chain = tuple(("compute", k) for k in range(count))
    assert sketch(cast(CrossingProgram, crossing), [0.0, 1.0]) == {count + 1: chain}
