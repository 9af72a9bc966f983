"""Robustness: schedules when costs are drawn from their intervals."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cli
from commands.console import Console
from commands.solve.robustness import assess as assess_on_screen
from commands.solve.robustness import summarise_robustness
from devices.errors import EngineFailed
from devices.profile import AffinePageCost, Interval, StorageCosts, SweepPoint
from devices.published import load_published
from networks.models import build_model
from plots.robustness import robustness as draw_picture
from replay.expectation import expected_step
from solver.constructed import keep_everything
from solver.costing.costing import CostingResult, cost_graph
from solver.costing.page_intervals import page_in_intervals, page_out_intervals
from solver.options import SolverOptions
from solver.pools import Pool
from solver.problem.claims import OWN_ORDER
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import (
    Budget,
    Certificate,
    Compute,
    PageIn,
    PageOut,
    Schedule,
    first_executions,
)
from solver.referee.referee import replay, verify
from solver.robustness.bounds import DrawBounds
from solver.robustness.draws import CostDraws, Items, NoDrawsError, draw_costs
from solver.robustness.evaluation import Evaluation
from solver.robustness.robustness import Assessment, assess, assess_robustness
from solver.robustness.search import DrawSearch
from solver.solving.shared_ram import RamUse
from solver.solving.solving import solve_graph
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import actions, graph, op, tensor
from tests.support.graphs.graph_strategies import (
    action_lists,
    examples,
    least_energy_by_exhaustion,
    tight_problems,
)
from tests.support.graphs.profiles import made_up_profile
from tests.support.graphs.schedules import schedule_of
from tests.support.said import sentences

EXACT = SolverOptions(gap=0.0, threads=1)
Ends = tuple[float, float]


def with_intervals(
    plain: CostedGraph,
    energy_j: Mapping[str, Ends] | None = None,
    time_s: Mapping[str, Ends] | None = None,
    keys: Mapping[str, str] | None = None,
) -> CostedGraph:
    """``plain`` with the intervals of its ops by name."""
    ops = [
        each.model_copy(
            update={
                "energy_j_interval": (energy_j or {}).get(each.name),
                "time_s_interval": (time_s or {}).get(each.name),
                "cost_key": (keys or {}).get(each.name),
            }
        )
        for each in plain.ops
    ]
    return graph(ops, plain.tensors, name=plain.name)


def assessed(problem: CostedGraph, budget: Budget, draws: CostDraws) -> Assessment:
    schedule = solve_graph(problem, budget, EXACT)
    with ThreadPoolExecutor(1) as executor:
        return assess(schedule, draws, 0, EXACT, Pool(executor, lambda: 1), 60.0)


# --- a problem by pencil and paper ----------------------------------------------------------------

BUDGET = Budget(ram_bytes=10)
PAGE_FIRST_J, PAGE_SECOND_J = 4.5, 2.5
# At 2 J an op is cheaper than either page; its average of about 3.5 J lies between the two.
MAKE_J, MAKE_ENDS_J = 2.0, (1.9, 12.0)


def two_to_bring_back() -> CostedGraph:
    """``first`` and ``second`` are read before and after ``big``, which needs their room.

    Each is recomputed at the cost measured for ``make``, or paged.
    """
    plain = graph(
        [
            op("make-first", "x", "first", energy_j=MAKE_J),
            op("make-second", "x", "second", energy_j=MAKE_J),
            op("look", "first second", "seen"),
            op("grow", "seen", "big"),
            op("shrink", "big", "small"),
            op("last", "first second small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("first", 4, page_out=(1.0, 2.0), page_in=(1.0, PAGE_FIRST_J - 2.0)),
            tensor("second", 4, page_out=(1.0, 1.0), page_in=(1.0, PAGE_SECOND_J - 1.0)),
            tensor("seen", 1),
            tensor("big", 8),
            tensor("small", 1),
            tensor("end", 1),
        ],
    )
    makes = ("make-first", "make-second")
    return with_intervals(
        plain, dict.fromkeys(makes, MAKE_ENDS_J), keys=dict.fromkeys(makes, "make")
    )


@pytest.fixture(scope="module")
def swapping() -> tuple[CostDraws, Assessment]:
    problem = two_to_bring_back()
    draws = draw_costs(problem, 40, seed=1)
    return draws, assessed(problem, BUDGET, draws)


def _again(schedule: Schedule) -> tuple[list[str], list[str]]:
    """Names of the recomputed ops and of the paged-in tensors."""
    made = [action.op for action in schedule.actions if isinstance(action, Compute)]
    paged = [action.tensor for action in schedule.actions if isinstance(action, PageIn)]
    return sorted({name for name in made if made.count(name) > 1}), paged


@pytest.mark.slow
def test_best_schedule_on_average_differs_from_best_at_stated_costs(
    swapping: tuple[CostDraws, Assessment],
) -> None:
    _, found = swapping
    assert _again(found.least_energy) == (["make-first", "make-second"], [])
    assert found.best_on_average is not None
    # One of each: neither the schedule for cheap draws nor that for dear ones.
    assert _again(found.best_on_average) == (["make-first"], ["second"])


@pytest.mark.slow
def test_shares_and_regrets_by_pencil_and_paper(swapping: tuple[CostDraws, Assessment]) -> None:
    draws, found = swapping
    make_j = draws.energy_j[:, 0]
    # Both ops once, and four ops of 1 J.
    best_j = 2 * make_j + 4 + np.minimum(make_j, PAGE_FIRST_J) + np.minimum(make_j, PAGE_SECOND_J)
    needed_j = {
        "least_energy": 4 * make_j + 4,
        "best_on_average": 3 * make_j + 4 + PAGE_SECOND_J,
    }
    for name, energies_j in needed_j.items():
        figures = getattr(found.robustness, name)
        regrets = energies_j / best_j - 1
        assert figures.regrets == pytest.approx(regrets.tolist(), abs=1e-12)
        assert figures.mean_regret == pytest.approx(regrets.mean())
        assert figures.regret_95 == pytest.approx(np.quantile(regrets, 0.95))
        assert figures.mean_energy_j == pytest.approx(energies_j.mean())
        assert figures.within.value == pytest.approx((regrets <= 0.01).mean())
        assert 0 < figures.within.low < figures.within.value < figures.within.high < 1
        assert figures.provably_within.value <= figures.within.value
        assert figures.in_time is None
    assert found.robustness.mean_bound_j <= needed_j["best_on_average"].mean()
    assert found.robustness.mean_bound_j == pytest.approx(needed_j["best_on_average"].mean(), 0.01)


@pytest.mark.slow
def test_figures_of_the_schedule_best_on_average_use_the_stated_costs(
    swapping: tuple[CostDraws, Assessment],
) -> None:
    _, found = swapping
    least, offered = found.least_energy, found.best_on_average
    assert least.status == "optimal"
    assert offered is not None
    assert offered.status == "feasible"
    result = verify(two_to_bring_back(), offered.actions, BUDGET)
    assert offered.energy_j == result.energy_j == pytest.approx(12.5)
    assert (offered.time_s, offered.peak_bytes) == (result.time_s, result.peak_bytes)
    assert offered.bytes_written_to_storage == result.bytes_written_to_storage == 4
    assert offered.energy_bound_j == pytest.approx(least.energy_j)
    assert offered.gap == pytest.approx(0.5 / 12.5)


@pytest.mark.slow
def test_intervals_of_no_width_change_no_result() -> None:
    ends = (MAKE_J, MAKE_J)
    problem = with_intervals(two_to_bring_back(), {"make-first": ends, "make-second": ends})
    found = assessed(problem, BUDGET, draw_costs(problem, 20, seed=0))
    figures = found.robustness.least_energy
    assert figures.within.value == figures.provably_within.value == 1.0
    assert figures.mean_regret == figures.regret_95 == 0.0
    assert found.robustness.best_on_average == figures
    assert found.best_on_average == found.least_energy
    # The proof at the stated costs holds for every draw.
    assert found.robustness.solved_draws == 0


@pytest.mark.slow
def test_better_schedule_found_for_a_draw_is_taken() -> None:
    problem = two_to_bring_back()
    poor = solve_graph(problem, BUDGET.model_copy(update={"rematerialization": False}), EXACT)
    poor = poor.model_copy(update={"budget": BUDGET, "energy_bound_j": 0.0})
    draws = draw_costs(problem, 2, seed=0)
    with ThreadPoolExecutor(1) as executor:
        found = assess(poor, draws, 0, EXACT, Pool(executor, lambda: 1), 60.0)
    assert found.least_energy.energy_j is not None
    assert poor.energy_j is not None
    assert found.least_energy.energy_j < poor.energy_j


class RamWithoutRecomputation:
    """A board whose RAM has no room for the records of schedules that recompute."""

    largest_arena_bytes = BUDGET.ram_bytes

    def has_room(self, _budget: Budget) -> bool:
        return False

    def use(self, schedule: Schedule) -> RamUse:
        # A late schedule fits as well as one in time; it is not the RAM that refuses it.
        assert schedule.budget.deadline_s is None
        recomputed, _ = _again(schedule)
        return RamUse(schedule.arena_bytes or 0, len(recomputed), BUDGET.ram_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(("robust", "deadline_s"), [(False, None), (True, 1000.0)])
def test_schedules_that_cannot_run_are_neither_chosen_nor_compared_with(
    robust: bool, deadline_s: float | None
) -> None:
    """The cheaper schedules recompute; they do not cost the assessed one its statistics."""
    problem = two_to_bring_back()
    budget = BUDGET.model_copy(update={"deadline_s": deadline_s})
    paging = budget.model_copy(update={"rematerialization": False})
    poor = solve_graph(problem, paging, EXACT)
    poor = poor.model_copy(
        update={"budget": budget, "energy_bound_j": 0.0, "any_order_bound_j": 0.0}
    )
    draws, limited = draw_costs(problem, 2, seed=0), replace(EXACT, time_limit_s=60.0)
    found = assess_on_screen(Console(), poor, draws, limited, robust, RamWithoutRecomputation())
    assert found.actions == poor.actions
    assert found.robustness is not None
    assert found.robustness.least_energy == found.robustness.best_on_average
    assert found.robustness.least_energy.mean_regret == 0.0
    assert found.robustness.schedules == 1


@pytest.mark.slow
@pytest.mark.parametrize(("limit_s", "searches"), [(30.0, False), (60.0, True)])
def test_no_search_begins_with_less_time_than_checking_its_result_takes(
    limit_s: float, searches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.robustness.search.checks_s", lambda _graph, _covers: 10.0)
    problem = two_to_bring_back()
    schedule = solve_graph(problem, BUDGET, EXACT)
    draws = draw_costs(problem, 2, seed=0)
    with ThreadPoolExecutor(1) as executor:
        found = assess(schedule, draws, 0, EXACT, Pool(executor, lambda: 1), limit_s)
    # A quarter of the time for the mean costs; a tenth for single draws.
    assert (found.robustness.schedules > 1) == searches
    assert found.robustness.solved_draws == 0
    assert found.robustness.draws == 2


class Dying(Executor):
    """Searches at once. One search fails, and after a worker's death all that follow."""

    def __init__(self, error: Exception, failing: int) -> None:
        self.error, self.failing = error, failing
        self.searches = 0

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self.searches += 1
        future = Future[Any]()
        if self.searches > self.failing and isinstance(self.error, BrokenExecutor):
            raise self.error
        if self.searches == self.failing:
            future.set_exception(self.error)
        else:
            future.set_result(task(*arguments, **named))
        return future


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "failing", "said"),
    [
        (BrokenExecutor("killed"), 2, "a worker ended before its task was finished: killed"),
        (EngineFailed("the engine was killed"), 1, "the engine was killed"),
    ],
)
def test_what_was_searched_counts_if_a_search_fails(
    error: Exception, failing: int, said: str
) -> None:
    problem = two_to_bring_back()
    schedule = solve_graph(problem, BUDGET, EXACT)
    draws = draw_costs(problem, 3, seed=1)
    pool = Pool(Dying(error, failing), lambda: 1)
    found = assess(schedule, draws, 0, EXACT, pool, 60.0)
    assert found.robustness.schedules > 1
    assert found.notes == (f"a search at drawn costs failed, the others count: {said}",)


@pytest.mark.slow
def test_what_was_searched_counts_if_ctrl_c_comes_before_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(running: Iterable[Future[Any]], *_: object) -> None:
        wait(running)
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.robustness.robustness.wait", interrupted)
    problem = two_to_bring_back()
    found = assessed(problem, BUDGET, draw_costs(problem, 3, seed=1))
    assert found.robustness.schedules == 2
    assert not found.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [((None, None), True), (("confirmed", "confirmed"), True), (("confirmed", "undecided"), False)],
)
def test_bounds_over_draws_are_certified_if_the_schedule_is(
    outcomes: tuple[str | None, str | None], counts: bool
) -> None:
    schedule = solve_graph(two_to_bring_back(), BUDGET, EXACT)
    stated, drawn = (
        schedule.model_copy(
            update={"certificate": outcome and Certificate(outcome=outcome, engine="CBC")}
        )
        for outcome in outcomes
    )
    unproven = stated.model_copy(update={"energy_bound_j": 0.0, "any_order_bound_j": 0.0})
    search = DrawSearch(unproven, draw_costs(two_to_bring_back(), 2, seed=0), EXACT, 60.0)
    before_j = search.evaluation.proven_mean_j
    task = search.next_task()
    assert task is not None
    assert task.certified == (outcomes[0] is not None)
    search.take(task, drawn)
    assert (search.evaluation.proven_mean_j > before_j) == counts


@pytest.mark.slow
def test_a_bound_for_an_order_does_not_survive_a_schedule_in_another_one() -> None:
    problem = two_to_bring_back()
    given = replace(EXACT, order="given")
    poor = solve_graph(problem, BUDGET.model_copy(update={"rematerialization": False}), given)
    first, page_out, second, *others = poor.actions
    swapped = poor.model_copy(
        update={
            "actions": (second, first, page_out, *others),
            "budget": BUDGET,
            "energy_bound_j": poor.energy_j,
            "any_order_bound_j": 1.0,
            "restrictions": (OWN_ORDER,),
        }
    )
    found = assess_robustness(swapped, draw_costs(problem, 2, seed=0), given, robust=False)
    assert first_executions(found.actions) == tuple(op.name for op in problem.ops)
    assert (found.energy_bound_j, found.restrictions) == (1.0, ())
    assert found.robustness is not None
    assert found.robustness.mean_bound_j == 0.0
    assert found.robustness.least_energy.provably_within.value == 0.0


# --- with a deadline ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_schedule_best_on_average_meets_the_deadline_in_most_draws() -> None:
    """Recomputing takes 1 s, or much more in a bad draw; paging takes 1 s in all, and 2 J."""
    plain = graph(
        [
            op("make", "x", "a", energy_j=1.0),
            op("look", "a", "seen"),
            op("grow", "seen", "big"),
            op("shrink", "big", "small"),
            op("last", "a small", "end"),
        ],
        [
            tensor("x", 1, home="ram"),
            tensor("a", 4, page_out=(0.5, 1.0), page_in=(0.5, 1.0)),
            tensor("seen", 1),
            tensor("big", 8),
            tensor("small", 1),
            tensor("end", 1),
        ],
    )
    problem = with_intervals(plain, time_s={"make": (0.9, 4.0)})
    # Computed twice: 4 s and 2 · make; computed once and paged: 5 s and make.
    budget = Budget(ram_bytes=10, deadline_s=8.6)
    draws = draw_costs(problem, 40, seed=3)
    make_s = draws.time_s[:, 0]
    late = 4 + 2 * make_s > 8.6
    assert 0.05 < late.mean() < 0.5
    assert (5 + make_s <= 8.6).mean() >= 0.95
    found = assessed(problem, budget, draws)
    least, average = found.robustness.least_energy, found.robustness.best_on_average
    assert least.in_time is not None
    assert least.in_time.value == pytest.approx(1 - late.mean())
    assert least.within.value == least.in_time.value
    assert [regret is None for regret in least.regrets] == late.tolist()
    assert average is not None
    assert average.in_time is not None
    assert average.in_time.value >= 0.95
    assert found.best_on_average is not None
    assert _again(found.best_on_average) == ([], ["a"])
    # The mean bound also covers late schedules.
    assert found.robustness.mean_bound_j <= least.mean_energy_j


def test_no_schedule_is_offered_if_none_is_in_time_often_enough() -> None:
    plain = graph([op("only", "x", "y")], [tensor("x", 1, home="ram"), tensor("y", 1)])
    problem = with_intervals(plain, time_s={"only": (0.5, 2.0)})
    draws = draw_costs(problem, 40, seed=0)
    found = assessed(problem, Budget(ram_bytes=2, deadline_s=1.0), draws)
    assert found.best_on_average is found.robustness.best_on_average is None
    in_time = found.robustness.least_energy.in_time
    assert in_time is not None
    assert in_time.value == pytest.approx((draws.time_s[:, 0] <= 1.0).mean())
    assert found.robustness.least_energy.within.value == in_time.value


def _only_op(times_s: Sequence[float], deadline_s: float | None) -> tuple[Schedule, CostDraws]:
    """A schedule of one op of 1 s, and draws in which it takes ``times_s``."""
    plain = graph([op("only", "x", "y")], [tensor("x", 1, home="ram"), tensor("y", 1)])
    items = Items(plain)
    energy_j, time_s = (np.tile(costs, (len(times_s), 1)) for costs in items.costs())
    time_s[:, 0] = times_s
    budget = Budget(ram_bytes=2, deadline_s=deadline_s)
    return schedule_of(plain, keep_everything(plain), budget=budget), CostDraws(
        items, energy_j, time_s
    )


@pytest.mark.parametrize(("late", "is_tightened"), [(2, False), (3, True)])
def test_the_deadline_is_tightened_where_less_than_95_percent_of_the_draws_are_in_time(
    late: int, is_tightened: bool
) -> None:
    """47 of 50 draws are 94 %; a quantile between the draws is 9.98 s, and in time."""
    schedule, draws = _only_op([9.9] * (50 - late) + [10.05] * late, deadline_s=10.0)
    search = DrawSearch(schedule, draws, EXACT, 60.0)
    deadlines_s = []
    while (task := search.next_task()) is not None:
        if task.kind == "mean":
            deadlines_s.append(task.deadline_s)
        search.take(task, task.start)
        if len(deadlines_s) == 2:
            break
    tightened_s = pytest.approx(10.0 / 1.005)
    assert deadlines_s == ([10.0, tightened_s] if is_tightened else [10.0])


@pytest.mark.parametrize(
    ("deadline_s", "names"),
    [
        (10.0, ("mean excess over the best known, if in time", "in 95 % of these draws at most")),
        (None, ("mean excess over the best known ", "in 95 % of the draws at most")),
    ],
)
def test_excesses_are_stated_of_the_draws_in_time(
    deadline_s: float | None, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    schedule, draws = _only_op([9.0] * 6 + [11.0] * 4, deadline_s)
    with ThreadPoolExecutor(1) as executor:
        found = assess(schedule, draws, 0, EXACT, Pool(executor, lambda: 1), 60.0)
    summarise_robustness(Console(), schedule.model_copy(update={"robustness": found.robustness}))
    printed = capsys.readouterr().out
    assert [name for name in names if name not in printed] == []


def beside_ops(deadline_s: float | None) -> tuple[CostedGraph, Schedule]:
    """A schedule that pages ``first`` out while ops run; durations have intervals."""
    plain = two_to_bring_back()
    ends_s = dict.fromkeys(("make-second", "look", "grow"), (0.3, 2.5))
    uncertain = with_intervals(plain, time_s=ends_s)
    problem = CostedGraph(
        name="with DMA", ops=uncertain.ops, tensors=plain.tensors, asynchronous_transfers=True
    )
    beside = actions("compute make-first; page_out first") + actions(
        "compute make-second; free x; compute look"
    )
    schedule = [
        action.model_copy(update={"asynchronous": True}) if isinstance(action, PageOut) else action
        for action in (
            *beside,
            *actions("free first; page_out second; free second; compute grow; free seen"),
            *actions("compute shrink; free big; page_in first; page_in second; compute last"),
            *actions("free first; free second; free small; free end"),
        )
    ]
    budget = Budget(ram_bytes=10, deadline_s=deadline_s)
    return problem, schedule_of(problem, schedule, budget=budget)


def test_time_with_asynchronous_transfers_is_that_of_the_referee() -> None:
    problem, schedule = beside_ops(deadline_s=9.0)
    draws = draw_costs(problem, 20, seed=0)
    evaluation = Evaluation(draws, schedule.budget)
    evaluation.add(schedule)
    drawn = map(draws.items.graph_at, draws.energy_j, draws.time_s)
    expected_s = [replay(each, schedule.actions).time_s for each in drawn]
    assert len(set(expected_s)) == 20
    assert replay(problem, schedule.actions).time_s < 10.0  # the sum without overlap
    assert evaluation.times_s.tolist() == [pytest.approx(expected_s)]


@pytest.mark.parametrize("deadline_s", [None, 9.0])
def test_no_graph_is_made_for_each_draw_of_a_schedule(
    deadline_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a thousand draws of a large graph, that would take minutes beyond any time limit."""

    def make(*_: object) -> CostedGraph:
        raise AssertionError("a graph was made")

    monkeypatch.setattr("solver.robustness.draws.Items.graph_at", make)
    problem, schedule = beside_ops(deadline_s)
    evaluation = Evaluation(draw_costs(problem, 3, seed=0), schedule.budget)
    assert evaluation.add(schedule) == 0
    assert evaluation.on_time.shape == (1, 3)


def test_ctrl_c_while_the_first_schedule_is_evaluated_leaves_its_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate = Evaluation.add

    def interrupted(evaluation: Evaluation, schedule: Schedule) -> int:
        signal.raise_signal(signal.SIGINT)
        return evaluate(evaluation, schedule)

    monkeypatch.setattr(Evaluation, "add", interrupted)
    problem, schedule = beside_ops(deadline_s=None)
    draws = draw_costs(problem, 3, seed=0)
    with ThreadPoolExecutor(1) as executor:
        found = assess(schedule, draws, 0, EXACT, Pool(executor, lambda: 1), 60.0)
    assert (found.robustness.schedules, found.robustness.solved_draws) == (1, 0)


# --- laws -----------------------------------------------------------------------------------------


@st.composite
def uncertain_problems(draw: st.DrawFn) -> tuple[CostedGraph, Budget]:
    """Small problems with intervals of energy, also for paging."""
    problem, budget = draw(tight_problems())
    factors = st.sampled_from([(1.0, 1.0), (0.9, 1.1), (0.5, 3.0), (0.0, 2.0)])

    def ends(cost: float) -> Ends:
        low, high = draw(factors)
        return cost * low, cost * high

    def uncertain(cost: object) -> object:
        if cost is None:
            return None
        assert hasattr(cost, "energy_j")
        assert hasattr(cost, "model_copy")
        return cost.model_copy(update={"energy_j_interval": ends(cost.energy_j)})

    ops = [
        each.model_copy(
            update={
                "energy_j_interval": ends(each.energy_j),
                "cost_key": draw(st.sampled_from([None, "shared"])),
            }
        )
        for each in problem.ops
    ]
    tensors = [
        each.model_copy(
            update={"page_out": uncertain(each.page_out), "page_in": uncertain(each.page_in)}
        )
        for each in problem.tensors
    ]
    return graph(ops, tensors), budget


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(problem_and_budget=uncertain_problems(), above=st.sampled_from([1e-3, 0.1, math.inf]))
@examples(25)
def test_bound_proven_at_stated_costs_bounds_the_optimum_of_every_draw(
    problem_and_budget: tuple[CostedGraph, Budget], above: float
) -> None:
    """The bound holds for any value of the best known schedule that can still be improved."""
    problem, budget = problem_and_budget
    least_j = least_energy_by_exhaustion(problem, budget)
    assume(least_j is not None)
    assert least_j is not None
    draws = draw_costs(problem, 3, seed=3)
    graphs = map(draws.items.graph_at, draws.energy_j, draws.time_s)
    drawn_j = np.array([least_energy_by_exhaustion(at, budget) for at in graphs], dtype=np.float64)
    bounds = DrawBounds(Problem(problem, budget), draws.energy_j)
    unproven_j = bounds.at(np.full(3, np.inf))
    # Times do not vary here, so that a proof holds for every deadline.
    bounds.prove(draws.items.costs()[0], least_j)
    assert (bounds.at(np.full(3, np.inf)) >= unproven_j).all()
    assert (bounds.at(drawn_j * (1 + above) + 1e-6) <= drawn_j * (1 + 1e-9) + 1e-9).all()


@given(problem_and_budget=uncertain_problems())
@examples(2)
def test_no_schedule_beats_the_best_known_or_the_bound(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    assume(least_energy_by_exhaustion(problem, budget) is not None)
    found = assessed(problem, budget, draw_costs(problem, 4, seed=3)).robustness
    for figures in (found.least_energy, found.best_on_average):
        assert figures is not None
        assert all(regret is not None and regret >= 0 for regret in figures.regrets)
        assert figures.provably_within.value <= figures.within.value
        assert found.mean_bound_j <= figures.mean_energy_j * (1 + 1e-9)
    assert found.best_on_average is not None
    assert found.best_on_average.mean_energy_j <= found.least_energy.mean_energy_j * (1 + 1e-9)


@given(data=st.data(), problem_and_budget=uncertain_problems())
@examples(15)
def test_energy_and_time_in_a_draw_equal_those_of_the_referee(
    data: st.DataObject, problem_and_budget: tuple[CostedGraph, Budget]
) -> None:
    problem, _ = problem_and_budget
    assert problem.tensor  # the graph's cached tensors must not appear in the draws' graphs
    schedule = with_frees(problem, data.draw(action_lists(problem)))
    draws = draw_costs(problem, 2, seed=4)
    counts = draws.items.counts(schedule)
    for energy_j, time_s in zip(draws.energy_j, draws.time_s, strict=True):
        result = replay(draws.items.graph_at(energy_j, time_s), schedule)
        assert result.energy_j == pytest.approx(float(counts @ energy_j), abs=1e-12)
        assert result.time_s == pytest.approx(float(counts @ time_s), abs=1e-12)


# --- draws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("median", "ends"), [(2.0, (1.5, 9.0)), (2.0, (0.0, 3.0)), (0.0, (0.0, 3.0)), (5.0, (5.0, 6.0))]
)
def test_draws_have_the_stated_median_and_interval(median: float, ends: Ends) -> None:
    plain = graph(
        [op("only", "x", "y", energy_j=median)], [tensor("x", 1, home="ram"), tensor("y", 1)]
    )
    drawn = draw_costs(with_intervals(plain, {"only": ends}), 20_000, seed=0).energy_j[:, 0]
    quantiles = np.quantile(drawn, [0.025, 0.5, 0.975])
    assert quantiles == pytest.approx([ends[0], median, ends[1]], rel=0.04, abs=0.06)
    assert drawn.min() >= 0
    if ends[0] < median < ends[1]:
        assert (drawn < ends[0]).mean() + (drawn > ends[1]).mean() == pytest.approx(
            0.05 if ends[0] else 0.025, abs=0.005
        )


def test_costs_from_one_measurement_share_a_draw() -> None:
    ends = dict.fromkeys(("f", "g", "h"), (0.5, 3.0))
    page = {"time_s": 1.0, "energy_j": 1.0, "energy_j_interval": (0.5, 4.0)}
    plain = graph(
        [op("f", "x", "a"), op("g", "a", "b"), op("h", "b", "c")],
        [
            tensor("x", 1, home="ram"),
            *(
                tensor(name, 1).model_validate(
                    {**tensor(name, 1).model_dump(), "page_out": page, "page_in": page}
                )
                for name in "abc"
            ),
        ],
    )
    problem = with_intervals(plain, ends, ends, {"f": "conv", "g": "conv"})
    draws = draw_costs(problem, 50, seed=0)
    f, g, h = draws.energy_j[:, :3].T
    assert f.tolist() == g.tolist()
    assert abs(np.corrcoef(f, h)[0, 1]) < 0.4
    # Energy and time of one operation come from the same windows.
    assert draws.time_s[:, :3] == pytest.approx(draws.energy_j[:, :3])
    page_outs, page_ins = draws.energy_j[:, 4:7].T, draws.energy_j[:, 8:11].T
    for direction in (page_outs, page_ins):
        assert direction[0].tolist() == direction[1].tolist() == direction[2].tolist()
    assert abs(np.corrcoef(page_outs[0], page_ins[0])[0, 1]) < 0.4


@pytest.mark.parametrize(
    ("correlation", "of_energies"),
    [(None, None), (0.2, None), (1.0, None), (None, 0.9), (0.2, 0.0)],
)
def test_a_sum_of_drawn_costs_has_the_interval_that_costing_and_run_state(
    correlation: float | None, of_energies: float | None
) -> None:
    names = [f"op-{index}" for index in range(50)]
    plain = graph([op(name, "x", "") for name in names], [tensor("x", 1, home="ram")])
    ends = dict.fromkeys(names, (1 / 1.2, 1.2))
    problem = with_intervals(plain, ends, ends).model_copy(
        update={"error_correlation": correlation, "energy_error_correlation": of_energies}
    )
    schedule = solve_graph(problem, Budget(ram_bytes=1), SolverOptions(addresses=False))
    expected = expected_step(problem, schedule)
    step_s = CostingResult(problem, (), ()).step_time_s
    draws = draw_costs(problem, 4000, seed=0)
    for drawn, stated in (
        (draws.time_s, step_s),
        (draws.time_s, expected.time_s),
        (draws.energy_j, expected.energy_j),
    ):
        low, high = np.quantile(drawn.sum(axis=1), [0.025, 0.975])
        assert high - low == pytest.approx(stated.high - stated.low, rel=0.1)


def test_errors_of_transfers_correlate_as_the_graph_states() -> None:
    problem = _uncertain_transfers().model_copy(update={"error_correlation": 0.5})
    draws = draw_costs(problem, 4000, seed=0)
    # An op, a page-out and a page-in.
    logs = np.log(draws.energy_j[:, [0, 2, 4]])
    correlations = np.corrcoef(logs, rowvar=False)[np.triu_indices(3, 1)]
    assert correlations == pytest.approx([0.5] * 3, abs=0.05)


def _uncertain_transfers() -> CostedGraph:
    """An op whose result can be paged; all costs are 1, from 0.5 to 2."""
    plain = graph([op("f", "x", "a")], [tensor("x", 1, home="ram"), tensor("a", 1)])
    page = PageCost(time_s=1.0, energy_j=1.0, energy_j_interval=(0.5, 2.0))
    tensors = [
        each.model_copy(update={"page_out": page, "page_in": page} if each.name == "a" else {})
        for each in plain.tensors
    ]
    return with_intervals(graph(plain.ops, tensors), {"f": (0.5, 2.0)})


@pytest.mark.parametrize("correlation", [None, 0.2])
def test_more_draws_of_a_seed_begin_with_the_same_draws(correlation: float | None) -> None:
    problem = two_to_bring_back().model_copy(update={"error_correlation": correlation})
    some, more, others = (
        draw_costs(problem, count, seed) for count, seed in ((10, 5), (30, 5), (10, 6))
    )
    assert some.energy_j.tolist() == more.energy_j[:10].tolist()
    assert some.energy_j.tolist() != others.energy_j.tolist()


def test_drawing_needs_at_least_one_interval() -> None:
    plain = graph([op("only", "x", "y")], [tensor("x", 1, home="ram"), tensor("y", 1)])
    with pytest.raises(NoDrawsError, match="no cost in this graph has an interval"):
        draw_costs(plain, 10, seed=0)


def test_more_draws_than_fit_in_memory_are_refused() -> None:
    plain = graph([op("only", "x", "y")], [tensor("x", 1, home="ram"), tensor("y", 1)])
    some = with_intervals(plain, {plain.ops[0].name: (0.5, 2.0)})
    with pytest.raises(NoDrawsError, match="need too much memory; at most"):
        draw_costs(some, 2**31 - 1, seed=0)


# --- intervals of a profile -----------------------------------------------------------------------


def test_a_costed_graph_carries_the_intervals_of_its_profile() -> None:
    step = build_model("linear", 2)
    missing = step.distinct_specs[0]
    profile = made_up_profile(list(step.distinct_specs[1:]))
    result = cost_graph(step, profile)
    for each, step_op in zip(result.graph.ops, step.ops, strict=True):
        assert each.cost_key == step_op.spec.key
        if step_op.spec == missing:
            (prediction,) = result.predicted
            time_s, energy_j = prediction.time_s, prediction.energy_j
        else:
            cost = profile.by_spec[step_op.spec].cost(profile.cost_basis)
            assert cost.energy_j is not None
            time_s, energy_j = cost.time_s, cost.energy_j
        assert each.time_s_interval == (time_s.low, time_s.high)
        assert each.energy_j_interval == (energy_j.low, energy_j.high)
    for t in result.graph.tensors:
        assert profile.storage is not None
        assert t.page_in is not None
        assert t.page_out is not None
        assert (t.page_in.time_s, t.page_in.energy_j) == profile.storage.read_cost(t.bytes)
        assert (t.page_out.time_s, t.page_out.energy_j) == profile.storage.write_cost(t.bytes)
        assert t.page_in.energy_j_interval is not None
        assert t.page_in.energy_j_interval[0] < t.page_in.energy_j < t.page_in.energy_j_interval[1]
        assert t.page_out.time_s_interval is not None


def test_published_rates_have_no_intervals() -> None:
    published = cost_graph(build_model("linear"), load_published("m4")).graph
    assert all(each.time_s_interval is each.energy_j_interval is None for each in published.ops)
    assert all(t.page_in is None or t.page_in.time_s_interval is None for t in published.tensors)
    with pytest.raises(NoDrawsError):
        draw_costs(published, 10, seed=0)


def _storage(errors: list[float], half_width: float = 0.0, **more: object) -> StorageCosts:
    """Storage with reads of 1 ms plus 1 ms per page, measured with these relative errors."""
    sweep = []
    for power, error in enumerate(errors):
        time_s = (1e-3 + 1e-3 * 2**power) / (1 + error)
        interval = Interval(
            median=time_s, low=time_s / (1 + half_width), high=time_s * (1 + half_width)
        )
        sweep.append(SweepPoint(bytes=512 * 2**power, time_s=interval, energy_j=interval.scaled(2)))
    law = AffinePageCost(
        fixed_s=1e-3, per_page_s=1e-3, fixed_j=2e-3, per_page_j=2e-3, sweep=tuple(sweep), **more
    )
    return StorageCosts(medium="test", page_bytes=512, method="test", read=law, write=law)


def test_exact_fit_to_exact_points_has_an_interval_of_no_width() -> None:
    found = page_in_intervals(_storage([0.0] * 6), 3000).time_s
    assert found.low == pytest.approx(found.median)
    assert found.high == pytest.approx(found.median)


def test_scatter_about_the_fit_widens_the_interval_of_a_page_cost() -> None:
    """Six points leave four degrees of freedom: Student's quantile 2.776; s² = 6 · 0.05² / 4."""
    found = page_in_intervals(_storage([0.05, -0.05, 0.05, -0.05, 0.05, -0.05]), 3000)
    scatter = 2.776 * 0.05 * math.sqrt(6 / 4)
    for interval in (found.time_s, found.energy_j):
        assert interval is not None
        half = math.log(interval.high / interval.median)
        assert scatter < half < scatter * math.sqrt(2)
        assert math.log(interval.median / interval.low) == pytest.approx(half)


def test_an_error_above_the_cost_widens_the_interval_in_proportion() -> None:
    """Three points leave one degree of freedom: Student's quantile 12.706.

    A sweep of so few sizes on a busy computer once gave an upper end of 7e26 s.
    """
    found = page_in_intervals(_storage([0.0, 0.0, 20.0]), 3000).time_s
    deviation = 12.706 * 20.0
    factor = found.high / found.median
    assert math.e * deviation < factor < math.e * deviation * math.sqrt(2)
    assert found.low == pytest.approx(found.median / factor)


def test_errors_common_to_all_points_are_not_averaged() -> None:
    exact = [0.0] * 6
    found = page_in_intervals(_storage(exact, half_width=0.2), 3000).time_s
    assert found.high == pytest.approx(found.median * 1.2)
    assert found.low == pytest.approx(found.median / 1.2)


def test_stated_fit_error_is_used_without_points() -> None:
    found = page_in_intervals(_storage([], fit_error=0.1), 3000).time_s
    assert found.high == pytest.approx(found.median * math.exp(0.196), rel=1e-4)


def test_interval_of_erasing_adds_to_that_of_writing() -> None:
    storage = _storage([0.0] * 6, half_width=0.2)
    erasing = storage.model_copy(update={"erase": storage.write, "erase_block_bytes": 512})
    written, erased = page_out_intervals(storage, 3000), page_out_intervals(erasing, 3000)
    assert erased.time_s.median == pytest.approx(erasing.write_cost(3000)[0])
    block = page_out_intervals(storage, 512).time_s
    assert erased.time_s.high == pytest.approx(written.time_s.high + 6 * block.high)


# --- output ---------------------------------------------------------------------------------------


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    return write_json(tmp_path / "uncertain.json", two_to_bring_back())


def _run(tmp_path: Path, *argv: object) -> int:
    return cli.main(["solve", *map(str, argv), "--out", str(tmp_path / "schedule.json")])


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_robustness_report_is_printed_and_written_with_the_schedule(
    graph_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--graph", graph_file, "--ram-budget", 10, "--draws", 10, "--time-limit", 120)
    assert _run(tmp_path, *asked, "--robust", "--pictures", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "within 1 % of the best known" in printed
    assert "the schedule that is best on average is written" in printed
    document = json.loads((tmp_path / "schedule.json").read_text())
    assert document["robustness"]["schedule"] == "best_on_average"
    assert document["robustness"]["draws"] == 10
    schedule = Schedule.model_validate_json((tmp_path / "schedule.json").read_text())
    assert _again(schedule) == (["make-first"], ["second"])
    assert schedule.status == "feasible"
    assert (tmp_path / "schedule-robustness.png").exists()


def test_draws_that_are_impossible_are_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = ("--profile", "m4", "--model", "linear", "--ram-budget", "80%")
    assert _run(tmp_path, *published, "--draws", 10) == 2
    budget, said = sentences(capsys.readouterr().err)
    assert budget.startswith("RAM budget: ")
    assert said.startswith("error: ")
    assert "no cost in this graph has an interval" in said
    assert _run(tmp_path, *published, "--robust") == 2
    assert "--robust needs --draws" in capsys.readouterr().err
    assert not (tmp_path / "schedule.json").exists()


@pytest.mark.slow
def test_robustness_picture_states_how_often_each_schedule_is_good_enough(
    swapping: tuple[CostDraws, Assessment], tmp_path: Path
) -> None:
    _, found = swapping
    report = found.robustness
    picture = tmp_path / "robustness.svg"
    draw_picture(found.least_energy.model_copy(update={"robustness": report}), picture)
    said = "\n".join(re.findall(r"<!-- (.*?) -->", picture.read_text(encoding="utf-8")))
    assert report.best_on_average is not None
    for figures in (report.least_energy, report.best_on_average):
        assert f"within 1 % in {100 * figures.within.value:.0f} % of the draws" in said
    assert "40 draws" in said
    with pytest.raises(ValueError, match="not assessed with draws"):
        draw_picture(found.least_energy, picture)
    assert keep_everything(two_to_bring_back()) != found.least_energy.actions
