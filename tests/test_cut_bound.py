"""The bound without a program: below every schedule, and close to the best ones where it counts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.solver.graphs import graph_of_name
from devices.published import load_published
from solver.baselines import keep_everything
from solver.costing import cost_graph
from solver.cut_bound import any_order_bound_j
from solver.graph import CostedGraph
from solver.greedy import greedy_schedule
from solver.liveness import with_frees
from solver.models import build_model
from solver.problem import Problem
from solver.referee import replay, verify
from solver.schedule import Budget
from tests.graph_examples import graph, op, tensor
from tests.graph_strategies import (
    action_lists,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)


def bound_j(
    costed: CostedGraph, ram_bytes: int, *, paging: bool = True, remat: bool = True
) -> float:
    budget = Budget(ram_bytes=ram_bytes, paging=paging, rematerialization=remat)
    return any_order_bound_j(Problem(costed, budget))


# --- valid ------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problem=tight_problems())
def test_no_problem_has_a_cheaper_optimum(problem: tuple[CostedGraph, Budget]) -> None:
    costed, budget = problem
    least_j = least_energy_by_exhaustion(costed, budget)
    if least_j is not None:
        assert any_order_bound_j(Problem(costed, budget)) <= least_j + 1e-9


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_valid_schedule_is_cheaper_in_the_ram_that_it_takes(data: st.DataObject) -> None:
    costed = data.draw(small_graphs())
    played = replay(costed, with_frees(costed, data.draw(action_lists(costed))))
    assert bound_j(costed, played.peak_bytes) <= played.energy_j + 1e-9


# --- what counts ------------------------------------------------------------------------------


def chain() -> CostedGraph:
    """``a``, of 6 bytes, is read before and after ``gb``, which takes 7."""
    return graph(
        [
            op("f", "x", "a", energy_j=9.0),
            op("g", "a", "b", energy_j=4.0),
            op("loss", "b", "c"),
            op("gb", "b c", "d"),
            op("ga", "a d", "e"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 6, page_out=(1.0, 2.0), page_in=(1.0, 3.0)),
            tensor("b", 3),
            tensor("c", 2),
            tensor("d", 2),
            tensor("e", 1, persist="ram"),
        ],
    )


def test_what_fits_costs_nothing_more() -> None:
    assert bound_j(chain(), 13) == 16


def test_what_does_not_fit_beside_the_cut_is_had_back_in_the_cheapest_way() -> None:
    """``a`` is paged for 5 J, of which a byte short is a sixth, and all when none is left beside
    ``gb``. Without paging it is computed again for 9 J."""
    assert bound_j(chain(), 12) == pytest.approx(16 + 5 / 6)
    assert bound_j(chain(), 7) == pytest.approx(16 + 5)
    assert bound_j(chain(), 7, paging=False) == pytest.approx(16 + 9)


def test_where_nothing_can_be_had_back_the_bound_stays_what_it_was() -> None:
    assert bound_j(chain(), 7, paging=False, remat=False) == 16


def test_what_an_op_overwrote_must_be_made_again_before_it() -> None:
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
    # While "next" runs, r does not fit beside c and n.
    assert bound_j(costed, 9) == pytest.approx(13 + 10 / 6)


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
    assert bound_j(costed, 4) == pytest.approx(11 + 8)
    assert bound_j(costed, 8) == pytest.approx(11 + 4)


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
            *(tensor(name, 2) for name in "acg"),
            tensor("w1", 5, persist="storage", page_out=(1.0, 2.0)),
        ],
    )


def test_what_lives_in_storage_is_brought_once_and_again_if_it_did_not_stay() -> None:
    costed = with_parameter_in_storage(first_reads="x w")
    assert bound_j(costed, 9) == 4 + 3 + 2
    assert bound_j(costed, 4) == pytest.approx(4 + 3 + 2 + 3)


def test_what_lives_in_storage_and_is_needed_only_later_is_brought_once() -> None:
    assert bound_j(with_parameter_in_storage(first_reads="x"), 4) == 4 + 3 + 2


# --- close ------------------------------------------------------------------------------------


def test_the_schedule_by_rule_of_published_resnet50_is_close_to_it() -> None:
    costed = graph_of_name("poet-resnet50-m4")
    _close(costed, replay(costed, keep_everything(costed)).peak_bytes // 2, 0.001)


def test_so_is_that_of_bert_in_64_mib_with_its_parameters_in_storage() -> None:
    step = build_model("bert", parameters_in="storage")
    _close(cost_graph(step, load_published("m4")).graph, 64 * 2**20, 0.01)


def _close(costed: CostedGraph, ram_bytes: int, gap: float) -> None:
    problem = Problem(costed, Budget(ram_bytes=ram_bytes))
    steps = greedy_schedule(problem)
    assert steps is not None
    energy_j = verify(costed, steps, problem.budget).energy_j
    bound = any_order_bound_j(problem)
    assert problem.least_energy_j < bound <= energy_j
    assert energy_j - bound < gap * energy_j
