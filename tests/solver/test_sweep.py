"""Trade-off curves: knowledge shared between points, pools of workers, records and output."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli
from benchmarks.claims.oracle import Oracle
from commands.sweep.summary import event_line
from devices.documents.document import DocumentError, read_json
from devices.errors import EngineFailed
from devices.program import STOPS
from plots.tradeoff import tradeoff
from solver.baselines.baseline import TIME_LIMIT_S
from solver.baselines.registry import BASELINES
from solver.baselines.scheduled import schedules_by_baseline
from solver.constructed import keep_everything
from solver.options import SolverOptions
from solver.pools import Pool, PoolError, cluster_pool, lasting_pools, local_pool
from solver.problem.claims import GIVEN_ORDER, OWN_ORDER, Claim, Claims
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.quantities import QuantityError, parse_ram_bytes
from solver.problem.schedule import Budget, Schedule, first_executions
from solver.referee.referee import replay, verify
from solver.solving.shared_ram import RamUse
from solver.solving.solving import solve_graph
from solver.sweep.directory import SweepDirectory, SweepSubject
from solver.sweep.frontier import Frontier, Offer
from solver.sweep.grid import budget_grid
from solver.sweep.record import SOLVED, SweepRecord, SweepRow
from solver.sweep.sweep import BaselineRun, Event, PointSolved, Study, sweep
from tests.support.boards.processes import (
    VARIABLE,
    marked,
    new_mark,
    started_as_by_a_shell,
    wait_until,
)
from tests.support.cluster import local_cluster
from tests.support.documents import write_json
from tests.support.graphs.graph_examples import (
    hard_problem,
    training_chain,
    two_layers,
    unconstrained_peak,
)
from tests.support.graphs.graph_strategies import action_lists, examples, small_graphs
from tests.support.graphs.schedules import UNSEARCHED
from tests.support.pictures import texts_of
from tests.support.proofs import in_a_patient_worker, search_all_schedules

EXACT = SolverOptions(gap=0.0, threads=1)
GRID = "40%,75%,85%,90%"
DEADLINES = "none,1.3x"


class SameProcessExecutor(Executor):
    """An executor that runs tasks in this process, ``together`` at a time, and counts them."""

    def __init__(self, together: int = 1) -> None:
        self.submitted: list[tuple[Any, ...]] = []
        self._together = together
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted.append(args)
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*args, **kwargs)))
        if len(self._waiting) == self._together:
            for waiting, work in self._waiting:
                try:
                    waiting.set_result(work())
                except Exception as error:
                    waiting.set_exception(error)
            self._waiting.clear()
        return future

    @property
    def pool(self) -> Pool:
        return Pool(self, lambda: self._together)


def solved(
    graph: CostedGraph, budgets: Sequence[Budget], pool: Pool, options: SolverOptions = EXACT
) -> dict[Budget, Schedule]:
    """The schedule of each point after the sweep."""
    found = {}

    def keep(event: Event) -> None:
        assert isinstance(event, PointSolved)
        found.update({schedule.budget: schedule for schedule in event.schedules})

    sweep([Study(graph.name, graph, budgets)], options, pool, keep)
    return found


# --- knowledge shared between points --------------------------------------------------------------


def found(
    graph: CostedGraph, budget: Budget, actions: Sequence[Any], bound_j: float = 0.0, **more: Any
) -> Schedule:
    """A schedule as a search might return it."""
    actions = with_frees(graph, actions)
    played = replay(graph, actions, budget.covers)
    fields: dict[str, Any] = {
        "status": "feasible",
        "energy_bound_j": bound_j,
        "gap": 1 - bound_j / played.energy_j if played.energy_j else 0.0,
        "restrictions": ("the given order",),
        **more,
    }
    return without_actions(
        graph,
        budget,
        energy_j=played.energy_j,
        time_s=played.time_s,
        peak_bytes=played.peak_bytes,
        actions=actions,
        **fields,
    )


def without_actions(graph: CostedGraph, budget: Budget, **fields: Any) -> Schedule:
    fields = {"status": "infeasible", **fields}
    return Schedule(
        graph=graph.name, solver=UNSEARCHED, budget=budget, bound_covers="schedules in", **fields
    )


@st.composite
def searches(draw: st.DrawFn) -> tuple[CostedGraph, list[Schedule]]:
    """Schedules, good and bad, each within its own budget, with bounds that always hold.

    Some bounds are stated for the schedule's own order, above the one for any order.
    """
    graph = draw(small_graphs())
    least_j = math.fsum(op.energy_j for op in graph.ops)
    schedules: dict[Budget, Schedule] = {}
    for _ in range(draw(st.integers(2, 5))):
        actions = draw(action_lists(graph))
        played = replay(graph, with_frees(graph, actions))
        budget = Budget(
            ram_bytes=played.peak_bytes + draw(st.integers(0, 4)),
            deadline_s=draw(st.sampled_from([None, played.time_s, played.time_s + 2])),
        )
        of_any, of_class = sorted(draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in range(2))
        schedules[budget] = found(
            graph,
            budget,
            actions,
            least_j * of_class,
            any_order_bound_j=least_j * of_any,
            restrictions=(draw(st.sampled_from([GIVEN_ORDER, OWN_ORDER, "a restriction"])),),
        )
    return graph, list(schedules.values())


def is_roomier(roomy: Budget, tight: Budget) -> bool:
    later = tight.deadline_s if roomy.deadline_s is None else roomy.deadline_s
    in_time = roomy.deadline_s is None or (
        tight.deadline_s is not None and later is not None and later >= tight.deadline_s
    )
    return roomy.ram_bytes >= tight.ram_bytes and in_time


def order_of(schedule: Schedule) -> tuple[str, ...]:
    return first_executions(schedule.actions)


@pytest.mark.slow
@given(case=searches(), chance=st.randoms(use_true_random=False))
@examples(60)
def test_point_is_no_worse_than_tighter_and_proven_no_less_than_roomier_ones(
    case: tuple[CostedGraph, list[Schedule]], chance: Any
) -> None:
    graph, schedules = case
    frontier = Frontier(graph, gap=0.0)
    for schedule in schedules:
        first, *others = frontier.add(schedule)
        assert first.budget == schedule.budget
        assert all(frontier.schedules[other.budget] == other for other in [first, *others])
    known = frontier.schedules
    for budget, schedule in known.items():
        assert schedule.energy_j is not None
        assert schedule.energy_bound_j is not None
        assert verify(graph, schedule.actions, budget).energy_j == schedule.energy_j
        assert schedule.any_order_bound_j is not None
        assert schedule.any_order_bound_j <= schedule.energy_bound_j <= schedule.energy_j
        assert (schedule.status == "optimal") <= (schedule.energy_bound_j == schedule.energy_j)
        for other, roomier in known.items():
            if is_roomier(other, budget):
                assert roomier.energy_j is not None
                assert roomier.energy_bound_j is not None
                assert roomier.any_order_bound_j is not None
                assert roomier.energy_j <= schedule.energy_j
                assert roomier.any_order_bound_j <= schedule.any_order_bound_j
                if order_of(roomier) == order_of(schedule):
                    assert roomier.energy_bound_j <= schedule.energy_bound_j
    # The order in which the points arrive does not matter.
    chance.shuffle(schedules)
    again = Frontier(graph, gap=0.0)
    for schedule in schedules:
        again.add(schedule)
    assert {b: (s.energy_j, s.any_order_bound_j) for b, s in known.items()} == {
        b: (s.energy_j, s.any_order_bound_j) for b, s in again.schedules.items()
    }


@st.composite
def searches_and_offers(draw: st.DrawFn) -> tuple[CostedGraph, list[Schedule], list[Offer]]:
    """Points as of :func:`searches`, and schedules of other methods, whose arenas may be larger."""
    graph, schedules = draw(searches())
    offers = []
    for number in range(draw(st.integers(1, 4))):
        actions = draw(action_lists(graph))
        peak_bytes = replay(graph, with_frees(graph, actions)).peak_bytes
        arena_bytes = peak_bytes + draw(st.integers(0, 4))
        budget = Budget(ram_bytes=arena_bytes)
        schedule = found(graph, budget, actions, arena_bytes=arena_bytes)
        offers.append(Offer(schedule, f"method {number}"))
    return graph, schedules, offers


@pytest.mark.slow
@given(case=searches_and_offers(), chance=st.randoms(use_true_random=False))
@examples(60)
def test_point_is_no_worse_than_any_offer_that_fits_it(
    case: tuple[CostedGraph, list[Schedule], list[Offer]], chance: Any
) -> None:
    graph, schedules, offers = case
    frontier = Frontier(graph, gap=0.0)
    things = [*schedules, *offers]
    chance.shuffle(things)
    for thing in things:
        before = dict(frontier.schedules)
        if isinstance(thing, Offer):
            changed = frontier.offer(thing)
        else:
            first, *changed = frontier.add(thing)
            assert frontier.schedules[thing.budget] == first
            before[thing.budget] = first
        # What has changed is returned, for it must be kept.
        before.update({point.budget: point for point in changed})
        assert frontier.schedules == before
    known = frontier.schedules
    assert set(known) == {schedule.budget for schedule in schedules}
    for budget, point in known.items():
        verify(graph, point.actions, budget)
        for offer in offers:
            if fits(offer.schedule, budget):
                assert energy_of(point) <= energy_of(offer.schedule)


@pytest.mark.slow
@given(case=searches_and_offers(), more=st.integers(0, 4))
@examples(60)
def test_a_search_starts_with_the_best_that_fits_and_what_may_be_better(
    case: tuple[CostedGraph, list[Schedule], list[Offer]], more: int
) -> None:
    graph, schedules, offers = case
    frontier = Frontier(graph, gap=0.0)
    for schedule in schedules:
        frontier.add(schedule)
    for offer in offers:
        frontier.offer(offer)
    all_known = [*frontier.schedules.values(), *(offer.schedule for offer in offers)]
    least_bytes = min(schedule.peak_bytes or 0 for schedule in all_known)
    budget = Budget(ram_bytes=least_bytes + more)
    fitting = [energy_of(schedule) for schedule in all_known if fits(schedule, budget)]
    starts = frontier.starts(budget)
    energies_j = [verify(graph, start, budget).energy_j for start in starts]
    if fitting:
        assert energies_j[0] == min(fitting)
    # The search ends with one that is within the gap of the sum of all ops, even without addresses.
    least_j = math.fsum(op.energy_j for op in graph.ops)
    assert energies_j == sorted(energies_j, reverse=True)
    better = {
        energy_of(schedule)
        for schedule in all_known
        if (schedule.peak_bytes or 0) <= budget.ram_bytes and energy_of(schedule) > least_j
    }
    if better and (not fitting or min(better) < min(fitting)):
        assert energies_j[-1] == min(better)


def fits(schedule: Schedule, budget: Budget) -> bool:
    assert schedule.time_s is not None
    in_time = budget.deadline_s is None or schedule.time_s <= budget.deadline_s
    takes_bytes = max(schedule.peak_bytes or 0, schedule.arena_bytes or 0)
    return in_time and takes_bytes <= budget.ram_bytes


def energy_of(schedule: Schedule) -> float:
    assert schedule.energy_j is not None
    return schedule.energy_j


def chain_and_actions() -> tuple[CostedGraph, list[Any]]:
    graph = training_chain(4)
    free = [action for action in keep_everything(graph) if action.do != "free"]
    return graph, free


def test_bound_is_shared_only_with_points_for_which_it_holds() -> None:
    graph, actions = chain_and_actions()
    peak = unconstrained_peak(graph)
    tight, roomy = Budget(ram_bytes=peak), Budget(ram_bytes=2 * peak)

    def bound_of_tight(restrictions: tuple[str, ...]) -> tuple[float | None, tuple[str, ...]]:
        frontier = Frontier(graph, gap=0.0)
        frontier.add(found(graph, tight, actions, 1.0, restrictions=("a", "b")))
        frontier.add(found(graph, roomy, actions, 5.0, restrictions=restrictions))
        schedule = frontier.schedules[tight]
        return schedule.energy_bound_j, schedule.restrictions

    for restrictions in ((), ("b",), ("a", "b"), ("a", "c")):
        named = (GIVEN_ORDER, *restrictions) if restrictions else ()
        assert bound_of_tight(restrictions) == (5.0, named)
    assert bound_of_tight((OWN_ORDER,)) == (5.0, (GIVEN_ORDER,))


def test_bound_of_an_earlier_deadline_is_not_shared_with_a_later_one() -> None:
    graph, actions = chain_and_actions()
    ram_bytes = unconstrained_peak(graph)
    patient, hurried = (Budget(ram_bytes=ram_bytes, deadline_s=d) for d in (None, 50.0))
    frontier = Frontier(graph, gap=0.0)
    frontier.add(found(graph, patient, actions, 1.0))
    frontier.add(found(graph, hurried, actions, 5.0))
    assert frontier.schedules[patient].energy_bound_j == 1.0
    frontier.add(found(graph, patient, actions, 6.0))
    assert frontier.schedules[hurried].energy_bound_j == 6.0


def test_a_schedule_outside_the_restrictions_may_cost_less_than_their_bound() -> None:
    graph, actions = chain_and_actions()
    budget = Budget(ram_bytes=unconstrained_peak(graph))
    dear = found(graph, budget, [actions[0], *actions])
    frontier = Frontier(graph, gap=0.0)
    frontier.add(dear.model_copy(update={"energy_bound_j": dear.energy_j, "status": "optimal"}))
    frontier.add(found(graph, budget, actions))
    both = frontier.schedules[budget]
    assert both.energy_j is not None
    assert both.energy_bound_j == both.energy_j
    assert both.gap == 0


def test_smallest_budget_is_at_most_any_feasible_budget() -> None:
    graph, actions = chain_and_actions()
    peak = unconstrained_peak(graph)
    tight = Budget(ram_bytes=100, deadline_s=50.0)
    frontier = Frontier(graph, gap=0.0)
    frontier.add(without_actions(graph, tight, smallest_ram_bytes=2 * peak, notes=("not proven",)))
    frontier.add(found(graph, Budget(ram_bytes=3 * peak), actions))
    assert frontier.schedules[tight].status == "infeasible"
    assert frontier.schedules[tight].smallest_ram_bytes == peak
    assert frontier.schedules[tight].limiting_op is not None


def test_bound_for_any_order_is_shared_with_every_tighter_point() -> None:
    graph, actions = chain_and_actions()
    peak = unconstrained_peak(graph)
    tight, roomy = Budget(ram_bytes=peak), Budget(ram_bytes=2 * peak)
    frontier = Frontier(graph, gap=0.0)
    frontier.add(found(graph, tight, actions))
    frontier.add(found(graph, roomy, actions, restrictions=("x",), any_order_bound_j=3.0))
    assert frontier.schedules[tight].any_order_bound_j == 3.0


def test_schedule_with_too_large_an_arena_is_not_taken_over() -> None:
    graph, actions = chain_and_actions()
    peak = unconstrained_peak(graph)
    tight, roomy = Budget(ram_bytes=peak), Budget(ram_bytes=2 * peak)
    frontier = Frontier(graph, gap=0.0)
    frontier.add(without_actions(graph, tight, status="no_solution"))
    frontier.add(found(graph, roomy, actions, arena_bytes=peak + 1))
    assert frontier.schedules[tight].status == "no_solution"
    assert frontier.starts(tight) == ()
    frontier.add(found(graph, roomy, actions, arena_bytes=peak))
    taken = frontier.schedules[tight]
    assert taken.status == "feasible"
    assert taken.arena_bytes == peak
    assert any(str(2 * peak) in note for note in taken.notes)


def test_infeasible_budget_rules_out_tighter_budgets() -> None:
    graph, _ = chain_and_actions()
    frontier = Frontier(graph, gap=0.0)
    frontier.add(
        without_actions(
            graph,
            Budget(ram_bytes=300, deadline_s=9.0),
            smallest_ram_bytes=450,
            smallest_ram_bound_bytes=400,
            limiting_op="f1",
        )
    )

    def inferred(ram_bytes: int, deadline_s: float | None = 9.0) -> Schedule | None:
        return frontier.without_search(Budget(ram_bytes=ram_bytes, deadline_s=deadline_s))

    below = inferred(200)
    assert below is not None
    assert (below.status, below.smallest_ram_bytes) == ("infeasible", 450)
    assert below.limiting_op == "f1"
    between = inferred(399)
    assert between is not None
    assert between.status == "infeasible"
    assert inferred(400) is None
    assert inferred(300, None) is None
    hurried = inferred(300, 8.0)
    assert hurried is not None
    assert (hurried.status, hurried.smallest_ram_bytes) == ("infeasible", None)


@pytest.mark.parametrize(
    ("asked_bytes", "status", "smallest_bytes"),
    [(350, "infeasible", 450), (500, "no_solution", None)],
)
def test_budget_that_was_searched_for_less_ram_keeps_only_advice_about_itself(
    asked_bytes: int, status: str, smallest_bytes: int | None
) -> None:
    """Records of a firmware left 300 bytes, for which no schedule exists."""
    graph, _ = chain_and_actions()
    smaller = without_actions(
        graph,
        Budget(ram_bytes=300),
        smallest_ram_bytes=450,
        smallest_ram_bound_bytes=400,
        limiting_op="f1",
    )
    (stated,) = Frontier(graph, gap=0.0).add(smaller, asked=Budget(ram_bytes=asked_bytes))
    assert (stated.budget.ram_bytes, stated.status) == (asked_bytes, status)
    assert stated.smallest_ram_bytes == smallest_bytes
    assert (stated.limiting_op is None) == (smallest_bytes is None)


def test_unproven_smallest_budget_rules_nothing_out() -> None:
    graph, _ = chain_and_actions()
    frontier = Frontier(graph, gap=0.0)
    frontier.add(
        without_actions(graph, Budget(ram_bytes=300), smallest_ram_bytes=400, notes=("not proven",))
    )
    assert frontier.without_search(Budget(ram_bytes=300)) is not None
    assert frontier.without_search(Budget(ram_bytes=301)) is None


def test_known_schedule_and_bound_that_meet_need_no_search() -> None:
    graph, actions = chain_and_actions()
    again = [actions[0], *actions]  # one op more than needed
    dear = found(graph, Budget(ram_bytes=10_000), again)
    assert dear.energy_j is not None
    frontier = Frontier(graph, gap=0.001)
    frontier.add(found(graph, Budget(ram_bytes=10_000), again, dear.energy_j * 0.9995))
    inferred = frontier.without_search(Budget(ram_bytes=5_000))
    assert inferred is not None
    assert inferred.status == "optimal"
    assert inferred.energy_j == dear.energy_j
    assert inferred.solver.seconds == 0.0
    assert Frontier(graph, gap=0.001).without_search(Budget(ram_bytes=5_000)) is None


def test_work_to_state_what_is_proven_grows_with_the_points_and_not_with_their_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, actions = chain_and_actions()
    peak = unconstrained_peak(graph)
    points = [
        found(
            graph, Budget(ram_bytes=peak + more), actions, 5.0 - more / 100, any_order_bound_j=1.0
        )
        for more in range(40)
    ]
    times = 0
    about = Claims.about

    def counted(*words: Any) -> Claim:
        nonlocal times
        times += 1
        return about(*words)

    monkeypatch.setattr(Claims, "about", counted)
    study = Study(graph.name, graph, [], known=points)
    sweep([study], EXACT, SameProcessExecutor().pool, lambda _event: None)
    assert 0 < times <= 4 * len(points)
    times = 0
    frontier = Frontier(graph, gap=0.0)
    for point in points:
        frontier.add(point)
    assert 0 < times <= 4 * len(points)


# --- the grid -------------------------------------------------------------------------------------


def test_a_grid_has_every_budget_with_every_deadline_once() -> None:
    graph = two_layers()  # 25 bytes, 7.5 s
    grid = budget_grid(graph, "20, 100%,40%..80%/3,10B", "none, 2x,15.0,20", "all")
    assert [(b.ram_bytes, b.deadline_s) for b in grid] == [
        (ram_bytes, deadline_s)
        for deadline_s in (15.0, 20.0, None)
        for ram_bytes in (10, 15, 20, 25)
    ]
    assert {b.covers for b in budget_grid(graph, "90%", "none", "activations")} == {"activations"}


@pytest.mark.parametrize(
    ("ram_budgets", "deadlines", "told"),
    [
        ("40%,,50%", "none", "'' is not a RAM budget"),
        ("40%..50%", "none", "'40%..50%' is not a RAM budget"),
        ("50%..40%/3", "none", "a smaller and a larger budget"),
        ("40%..50%/1", "none", "a number of at least 2"),
        ("40%", "never", "'never' is not a deadline"),
        ("40%", "1x,-3", "or none"),
    ],
)
def test_invalid_grid_is_reported(ram_budgets: str, deadlines: str, told: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(told)):
        budget_grid(two_layers(), ram_budgets, deadlines, "all")


@pytest.mark.parametrize(
    ("text", "ram_bytes"),
    [
        ("64.1kB", 64_100),
        ("1.001kB", 1001),
        ("1.005kB", 1005),
        ("4.1MB", 4_100_000),
        ("0.5KiB", 512),
        ("1.0009765625KiB", 1025),
        ("1.9999B", 1),
        ("64.1%", 641),
        ("0.3%", 3),
    ],
)
def test_a_ram_budget_has_the_bytes_that_are_written(text: str, ram_bytes: int) -> None:
    """Products of binary numbers may be less: 64.1 × 1000 is one of them."""
    assert parse_ram_bytes(text, peak_bytes=1000) == ram_bytes


# --- sweeping -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain() -> CostedGraph:
    return training_chain(5, seed=3)


@pytest.fixture(scope="module")
def serial(chain: CostedGraph) -> dict[Budget, Schedule]:
    with pytest.MonkeyPatch.context() as patch:
        search_all_schedules(patch)
        return solved(chain, budget_grid(chain, GRID, DEADLINES, "all"), SameProcessExecutor().pool)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_more_ram_and_time_need_less_energy(
    chain: CostedGraph, serial: dict[Budget, Schedule]
) -> None:
    assert set(serial) == set(budget_grid(chain, GRID, DEADLINES, "all"))
    energies_j = {}
    for budget, schedule in serial.items():
        assert schedule.budget == budget
        if schedule.actions:
            energies_j[budget] = verify(chain, schedule.actions, budget).energy_j
            assert schedule.energy_j == energies_j[budget]
            assert schedule.status == "optimal"
    for tight, energy_j in energies_j.items():
        for roomy, less_j in energies_j.items():
            assert not is_roomier(roomy, tight) or less_j <= energy_j
    assert len(set(energies_j.values())) > 4
    assert len(energies_j) < len(serial)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_every_point_is_as_good_as_if_solved_alone(
    chain: CostedGraph, serial: dict[Budget, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    search_all_schedules(monkeypatch)
    for budget in list(serial)[::4]:
        alone = solve_graph(chain, budget, EXACT)
        assert serial[budget].status == alone.status
        assert serial[budget].energy_j == pytest.approx(alone.energy_j)


def test_an_idle_worker_takes_the_upper_half_of_the_longest_chain() -> None:
    graph = two_layers()
    workers = SameProcessExecutor(together=2)
    budgets = [Budget(ram_bytes=25 + more) for more in range(8)]
    assert set(solved(graph, budgets, workers.pool)) == set(budgets)
    sizes = [budget.ram_bytes - 25 for _, budget, *_ in workers.submitted]
    # The second worker took the upper half of points 1 to 7, which the first one had left.
    assert sizes[:2] == [0, 4]
    assert sorted(sizes) == list(range(8))


@pytest.mark.slow
def test_each_point_begins_with_the_schedule_of_a_smaller_budget(chain: CostedGraph) -> None:
    workers = SameProcessExecutor()
    first, second = budget_grid(chain, "70%,90%", "none", "all")
    points = solved(chain, [second, first], workers.pool)
    assert [starts for *_, starts in workers.submitted] == [(), (points[first].actions,)]


@contextmanager
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    yield
    # The resource tracker of loky lives as long as this process.
    wait_until(lambda: all(b"resource_tracker" in command(p) for p in marked(mark)))


def command(process: int) -> bytes:
    """Command line of a process; empty after it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_parallel_sweep_equals_serial_sweep_and_leaves_no_process(
    chain: CostedGraph, serial: dict[Budget, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Patient(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return pool.executor.submit(in_a_patient_worker, fn, *args, **kwargs)

    with no_process_left(monkeypatch), local_pool(2) as pool:
        parallel = solved(chain, list(serial), Pool(Patient(), pool.width))
    assert {b: s.energy_j for b, s in parallel.items()} == pytest.approx(
        {b: s.energy_j for b, s in serial.items()}
    )
    assert {b: s.status for b, s in parallel.items()} == {b: s.status for b, s in serial.items()}


def test_workers_ignore_ctrl_c() -> None:
    with local_pool(1) as pool:
        assert pool.executor.submit(signal.raise_signal, signal.SIGINT).exception() is None


INTERRUPTED = """
import os
import signal
import sys
from loky.backend import fork_exec, resource_tracker
from solver.pools import local_pool

def then_ctrl_c(begun):
    def interrupted(*words, **named):
        result = begun(*words, **named)
        os.killpg(0, signal.SIGINT)
        return result
    return interrupted

moment = sys.argv[1]
register = then_ctrl_c(resource_tracker.register)
try:
    if moment == "opening":
        resource_tracker.register = register
    with local_pool(1) as pool:
        if moment == "submitting":
            resource_tracker.register = register
        fork_exec.fork_exec = then_ctrl_c(fork_exec.fork_exec)
        print(pool.submit(pow, 2, 3).result())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("moment", ["opening", "submitting", "starting a worker"])
def test_ctrl_c_while_a_pool_begins_leaves_no_process_and_no_semaphore(moment: str) -> None:
    pipe = subprocess.PIPE
    started = started_as_by_a_shell("-c", INTERRUPTED, moment, stdout=pipe, stderr=pipe)
    with started as (process, mark):
        assert process.communicate(timeout=60) == ("interrupted\n", "")
        wait_until(lambda: not marked(mark))


MASKS = """
import signal
from loky.backend import fork_exec
from solver.pools import local_pool

def noted(*words, **named):
    print(*sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, set()))))
    return begun(*words, **named)

begun, fork_exec.fork_exec = fork_exec.fork_exec, noted
with local_pool(1) as pool:
    print(pool.submit(pow, 2, 3).result())
"""


def test_workers_are_started_while_what_stops_them_is_blocked() -> None:
    process = subprocess.run(
        [sys.executable, "-c", MASKS], capture_output=True, text=True, timeout=60, check=True
    )
    assert process.stdout.splitlines() == [
        " ".join(str(number) for number in sorted(map(int, STOPS))),
        "8",
    ]


ENDED_MEANWHILE = """
import sys
import threading
import time
from solver import pools
from solver.pools import local_pool

pools._SENDER_LIMIT_S = 60.0  # on a busy computer the thread takes longer than it sleeps

def late(*words):
    feed(*words)
    time.sleep(0.1)

def slowly(name):
    unlink(name)
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.5)

with local_pool(1) as pool:
    synchronize = sys.modules["loky.backend.synchronize"]
    unlink, synchronize.sem_unlink = synchronize.sem_unlink, slowly
    queues = sys.modules["loky.backend.queues"]
    feed, queues.Queue._feed = queues.Queue._feed, staticmethod(late)
    print(pool.submit(pow, 2, 3).result())
time.sleep(0.2)
"""


def test_a_process_does_not_end_while_a_thread_of_its_pool_removes_semaphores() -> None:
    pipe = subprocess.PIPE
    with started_as_by_a_shell("-c", ENDED_MEANWHILE, stdout=pipe, stderr=pipe) as (process, _):
        assert process.communicate(timeout=60) == ("8\n", "")


def test_dead_worker_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doomed(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return pool.executor.submit(os._exit, 1)

    with (
        no_process_left(monkeypatch),
        local_pool(1) as pool,
        pytest.raises(EngineFailed, match="a worker ended before its task was finished"),
    ):
        solved(two_layers(), [Budget(ram_bytes=20)], Pool(Doomed(), lambda: 1))


QUICK_BASELINES = (
    "keep-everything",
    "page-everything",
    "chen-sqrt-n",
    "griewank",
    "capuchin-like",
    "dtr",
    "coop",
)


def nothing_found(
    graph: CostedGraph, budget: Budget, *_: object, **__: object
) -> Schedule:  # of any search
    return without_actions(graph, budget, status="no_solution")


def compared(
    graph: CostedGraph, together: int
) -> tuple[dict[Budget, Schedule], list[BaselineRun], list[tuple[Any, ...]]]:
    """Points after a sweep with quick baselines, the runs of these, and what was submitted."""
    grid = budget_grid(graph, "20%..100%/5", "none,1.1x", "all")
    patient = grid[-1]
    baselines = [
        (name, patient.model_copy(update={"ram_bytes": ram_bytes}))
        for name in QUICK_BASELINES
        for ram_bytes in sorted({budget.ram_bytes for budget in grid})
    ]
    points: dict[Budget, Schedule] = {}
    runs: list[BaselineRun] = []

    def keep(event: Event) -> None:
        if isinstance(event, BaselineRun):
            runs.append(event)
            points.update({point.budget: point for point in event.improved})
        else:
            points.update({point.budget: point for point in event.schedules})

    workers = SameProcessExecutor(together)
    sweep([Study(graph.name, graph, grid, baselines=baselines)], EXACT, workers.pool, keep)
    assert set(points) == set(grid)
    assert [(run.name, run.budget) for run in runs] == baselines
    return points, runs, workers.submitted


@given(graph=small_graphs())
@examples(15)
@pytest.mark.slow
def test_no_point_is_worse_than_a_baseline_however_bad_the_search_is(graph: CostedGraph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("solver.sweep.sweep.solve_graph", nothing_found)
        points, runs, _ = compared(graph, together=1)
    for budget, point in points.items():
        if point.actions:
            verify(graph, point.actions, budget)
        for run in runs:
            if run.schedule is not None and fits(run.schedule, budget):
                assert point.actions
                assert energy_of(point) <= energy_of(run.schedule)
        for other, tighter in points.items():
            if is_roomier(budget, other) and tighter.actions:
                assert energy_of(point) <= energy_of(tighter)


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3])
def test_points_start_with_schedules_of_baselines_and_name_those_that_they_take(
    chain: CostedGraph, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.sweep.sweep.solve_graph", nothing_found)
    points, runs, submitted = compared(chain, together)
    tightest = min(
        (run.schedule for run in runs if run.schedule is not None),
        key=lambda schedule: (schedule.arena_bytes or 0, energy_of(schedule)),
    )
    roomy = [budget for budget in points if fits(tightest, budget)]
    assert roomy
    for budget in roomy:
        assert any(note.startswith("the schedule found ") for note in points[budget].notes)
    searched = {arguments[1]: arguments[-1] for arguments in submitted if len(arguments) == 5}
    assert set(searched) <= set(points)
    if together == 1:  # else some begin while baselines run
        assert all(searched[budget] for budget in roomy if budget in searched)


class Crowded:
    """A board whose firmware needs all of the RAM as soon as it runs any schedule."""

    largest_arena_bytes = 0

    def has_room(self, budget: Budget) -> bool:
        return True

    def use(self, schedule: Schedule) -> RamUse | None:
        return RamUse(schedule.arena_bytes or 0, 1, 0) if schedule.actions else None


@pytest.mark.parametrize(("ram", "status"), [(None, "feasible"), (Crowded(), "no_solution")])
def test_a_schedule_of_a_baseline_is_used_only_where_the_board_has_room_for_its_records(
    chain: CostedGraph,
    ram: Crowded | None,
    status: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("solver.sweep.sweep.solve_graph", nothing_found)
    budget = Budget(ram_bytes=unconstrained_peak(chain))
    study = Study(chain.name, chain, [budget], baselines=[("keep-everything", budget)], ram=ram)
    kept: list[Event] = []
    sweep([study], EXACT, SameProcessExecutor().pool, kept.append)
    run, point = kept
    assert isinstance(run, BaselineRun)
    assert run.schedule is not None
    assert isinstance(point, PointSolved)
    assert point.schedules[0].status == status


@pytest.mark.parametrize(("asked_s", "limit_s"), [(None, TIME_LIMIT_S), (2.0, 2.0)])
def test_a_baseline_has_the_threads_of_a_point_and_never_searches_without_a_limit_of_time(
    chain: CostedGraph, asked_s: float | None, limit_s: float
) -> None:
    """Points wait for baselines."""
    budget = Budget(ram_bytes=unconstrained_peak(chain))
    study = Study(chain.name, chain, [], baselines=[("keep-everything", budget)])
    workers = SameProcessExecutor()
    options = SolverOptions(gap=0.0, time_limit_s=asked_s, threads=3)
    sweep([study], options, workers.pool, lambda _event: None)
    ((*_, given_s, threads),) = workers.submitted
    assert (given_s, threads) == (limit_s, 3)


def test_points_are_solved_although_the_engine_of_a_baseline_failed(
    chain: CostedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise EngineFailed("the engine has ended")

    monkeypatch.setattr("solver.baselines.scheduled.run_baseline", failing)
    kept: list[Event] = []
    budget = Budget(ram_bytes=unconstrained_peak(chain))
    study = Study(chain.name, chain, [budget], baselines=[("dtr", budget)])
    sweep([study], EXACT, SameProcessExecutor().pool, kept.append)
    run, point = kept
    assert isinstance(run, BaselineRun)
    assert (run.schedule, run.result.note) == (None, "the engine has ended")
    assert event_line(run).endswith("dtr, failed: the engine has ended")
    assert isinstance(point, PointSolved)
    assert point.schedules[0].status == "optimal"


def two_points_at_once(chain: CostedGraph) -> list[Budget]:
    peak = unconstrained_peak(chain)
    return [Budget(ram_bytes=peak * share // 100) for share in (80, 90)]


def test_a_failed_point_takes_no_other_with_it_that_has_finished(chain: CostedGraph) -> None:
    class FirstFails(SameProcessExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return super().submit(fn if self.submitted else failing, *args, **kwargs)

    def failing(*_: object) -> None:
        raise EngineFailed("the engine has ended")

    kept: list[Event] = []
    study = Study(chain.name, chain, two_points_at_once(chain))
    with pytest.raises(EngineFailed, match="the engine has ended"):
        sweep([study], EXACT, FirstFails(together=2).pool, kept.append)
    assert [event.schedules[0].budget for event in kept if isinstance(event, PointSolved)] == [
        study.budgets[1]
    ]


@pytest.mark.slow
def test_ctrl_c_while_a_point_is_kept_loses_no_other_that_has_finished(chain: CostedGraph) -> None:
    kept: list[Event] = []

    def keep(event: Event) -> None:
        if not kept:
            signal.raise_signal(signal.SIGINT)
        kept.append(event)

    study = Study(chain.name, chain, two_points_at_once(chain))
    with pytest.raises(KeyboardInterrupt):
        sweep([study], EXACT, SameProcessExecutor(together=2).pool, keep)
    assert len(kept) == 2


@pytest.mark.slow
def test_a_point_that_cannot_be_kept_takes_no_other_with_it(chain: CostedGraph) -> None:
    tried: list[Event] = []

    def keep(event: Event) -> None:
        tried.append(event)
        if len(tried) == 1:
            raise OSError("the disk is full")

    study = Study(chain.name, chain, two_points_at_once(chain))
    with pytest.raises(OSError, match="the disk is full"):
        sweep([study], EXACT, SameProcessExecutor(together=2).pool, keep)
    assert len(tried) == 2


# --- records --------------------------------------------------------------------------------------


def kept(
    path: Path,
    graph: CostedGraph,
    ram_budgets: str,
    options: SolverOptions = EXACT,
    deadlines: str = "none",
) -> tuple[int, SweepRecord]:
    """Number of points solved, and the record afterwards, as it was written."""
    directory = SweepDirectory(path, options)
    grid = budget_grid(graph, ram_budgets, deadlines, "all")
    workers = SameProcessExecutor()
    study = directory.study(SweepSubject(graph, "all"), grid, [])
    sweep([study], options, workers.pool, directory.keep)
    return len(workers.submitted), read_json(path / "sweep.json", SweepRecord)


def test_a_baseline_whose_engine_failed_runs_again(
    tmp_path: Path, chain: CostedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise EngineFailed("the engine has ended")

    budget = Budget(ram_bytes=unconstrained_peak(chain))

    def left_after_a_sweep() -> int:
        directory = SweepDirectory(tmp_path, EXACT)
        study = directory.study(SweepSubject(chain, "all"), [], [("keep-everything", budget)])
        sweep([study], EXACT, SameProcessExecutor().pool, directory.keep)
        return len(study.baselines)

    with monkeypatch.context() as patch:
        patch.setattr("solver.baselines.scheduled.run_baseline", failing)
        assert left_after_a_sweep() == 1
    assert [left_after_a_sweep() for _ in range(2)] == [1, 0]


def test_baselines_run_again_only_with_a_longer_limit_whatever_the_gap_is(
    tmp_path: Path, chain: CostedGraph
) -> None:
    budget = Budget(ram_bytes=unconstrained_peak(chain))

    def left_after_a_sweep(limit_s: float | None, gap: float = 0.01) -> int:
        options = SolverOptions(gap=gap, time_limit_s=limit_s)
        directory = SweepDirectory(tmp_path, options)
        study = directory.study(SweepSubject(chain, "all"), [], [("keep-everything", budget)])
        sweep([study], options, SameProcessExecutor().pool, directory.keep)
        (row,) = read_json(tmp_path / "sweep.json", SweepRecord).points
        limits_s.append(row.time_limit_s)
        return len(study.baselines)

    limits_s: list[float | None] = []
    asked_s = [5.0, 4.0, None, 60.0, None, 600.0, None]
    assert [left_after_a_sweep(each) for each in asked_s] == [1, 0, 1, 0, 0, 1, 0]
    assert limits_s == [5.0, 5.0, 60.0, 60.0, 60.0, 600.0, 600.0]
    assert left_after_a_sweep(None, gap=0.0001) == 0


def test_baselines_of_files_that_state_no_limit_had_the_usual_one() -> None:
    row = row_of(method="dtr", time_limit_s=None)
    answered = [row.answers(0.0, each) for each in (None, TIME_LIMIT_S, TIME_LIMIT_S + 1)]
    assert answered == [True, True, False]


@pytest.mark.parametrize(("first", "second"), [("better", "worse"), ("worse", "better")])
@pytest.mark.parametrize("worse", ["costs more", "takes more RAM", "nothing"])
def test_the_better_result_of_a_baseline_stays(
    first: str, second: str, worse: str, tmp_path: Path, chain: CostedGraph
) -> None:
    budget = Budget(ram_bytes=2 * unconstrained_peak(chain))
    good = schedules_by_baseline(Problem(chain, budget), "keep-everything", 1.0)
    assert good.own is not None
    assert good.own.arena_bytes is not None
    once = [action for action in good.own.actions if action.do != "free"]
    bad = {
        "costs more": found(chain, budget, [once[0], *once]),
        "takes more RAM": good.own.model_copy(update={"arena_bytes": good.own.arena_bytes + 8}),
        "nothing": None,
    }
    schedules = {"better": good.own, "worse": bad[worse]}
    for number, name in enumerate((first, second)):
        directory = SweepDirectory(tmp_path, SolverOptions(time_limit_s=1.0 + number))
        study = directory.study(SweepSubject(chain, "all"), [], [("keep-everything", budget)])
        assert len(study.baselines) == 1
        directory.keep(BaselineRun(study, "keep-everything", budget, good.result, schedules[name]))
    (row,) = read_json(tmp_path / "sweep.json", SweepRecord).points
    assert (row.energy_j, row.arena_bytes) == (good.own.energy_j, good.own.arena_bytes)
    assert row.time_limit_s == 2.0
    assert read_json(tmp_path / str(row.schedule), Schedule) == good.own


def test_a_resumed_sweep_offers_schedules_like_those_of_baselines(
    tmp_path: Path, chain: CostedGraph
) -> None:
    """They are kept beside those that take more RAM with addresses than the baselines counted."""
    budget = Budget(ram_bytes=unconstrained_peak(chain))
    directory = SweepDirectory(tmp_path, EXACT)
    study = directory.study(SweepSubject(chain, "all"), [], [("keep-everything", budget)])
    found = schedules_by_baseline(Problem(chain, budget), "keep-everything", 1.0)
    assert found.own is not None
    larger = budget.model_copy(update={"ram_bytes": budget.ram_bytes + 8})
    own = found.own.model_copy(update={"budget": larger})
    run = BaselineRun(study, "keep-everything", budget, found.result, own, packed=found.own)
    directory.keep(run)
    again = SweepDirectory(tmp_path, EXACT).study(SweepSubject(chain, "all"), [budget], [])
    offered = [(offer.schedule.budget, offer.schedule.actions) for offer in again.offers]
    assert (budget, found.own.actions) in offered


def test_baselines_of_earlier_releases_stay_where_they_are_not_asked_for(tmp_path: Path) -> None:
    graph, budget = two_layers(), Budget(ram_bytes=30)
    kept(tmp_path, graph, "120%")
    (known,) = read_json(tmp_path / "sweep.json", SweepRecord).points
    sha256 = known.graph_sha256
    row = row_of(graph=graph.name, graph_sha256=sha256, method="dtr", ram_bytes=30, energy_j=1.0)
    write_json(tmp_path / "sweep.json", SweepRecord(points=(row,)))
    for asked in ([], [("dtr", budget)]):
        directory = SweepDirectory(tmp_path, SolverOptions(gap=0.01))
        study = directory.study(SweepSubject(graph, "all"), [], asked)
        assert list(study.baselines) == asked
        assert len(directory.record.points) == 1 - len(asked)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_a_point_is_kept_although_one_that_it_improves_could_not_be(
    tmp_path: Path, chain: CostedGraph, serial: dict[Budget, Schedule]
) -> None:
    directory = SweepDirectory(tmp_path, EXACT)
    study = directory.study(SweepSubject(chain, "all"), list(serial), [])
    found, lost = [each for each in serial.values() if each.actions][:2]
    directory.keep(PointSolved(study, [found, lost]))
    record = read_json(tmp_path / "sweep.json", SweepRecord)
    assert [row.budget for row in record.points] == [found.budget]


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_finished_points_are_not_solved_again(tmp_path: Path, chain: CostedGraph) -> None:
    def count(ram_budgets: str, options: SolverOptions = EXACT) -> tuple[int, SweepRecord]:
        return kept(tmp_path, chain, ram_budgets, options, "1.3x")

    first, record = count("75%,90%")
    assert first == 2
    assert count("75%,90%") == (0, record)
    assert count("90%,75%", SolverOptions(gap=0.01, time_limit_s=1.0)) == (0, record)
    more, longer = count("75%,85%,90%")
    assert more == 1
    assert len(longer.points) == 3
    assert set(record.points) < set(longer.points)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_deleted_or_changed_schedules_are_solved_again(tmp_path: Path, chain: CostedGraph) -> None:
    _, record = kept(tmp_path, chain, "75%,85%,90%", deadlines="1.3x")
    paths = [tmp_path / str(row.schedule) for row in record.points]
    paths[0].unlink()
    document = json.loads(paths[1].read_text())
    document["actions"] = document["actions"][1:]
    paths[1].write_text(json.dumps(document))
    count, again = kept(tmp_path, chain, "75%,85%,90%", deadlines="1.3x")
    assert count == 2
    assert [row.energy_j for row in again.points] == [row.energy_j for row in record.points]


@pytest.mark.slow
def test_figures_of_the_record_are_made_anew_from_the_schedules(
    tmp_path: Path, chain: CostedGraph
) -> None:
    _, record = kept(tmp_path, chain, "90%")
    document = json.loads((tmp_path / "sweep.json").read_text())
    document["points"][0] |= {
        "energy_j": 0.1,
        "energy_bound_j": 0.2,
        "energy_source": "measured",
        "unconstrained_energy_j": 9.0,
    }
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    assert kept(tmp_path, chain, "90%,99%")[1].points[0] == record.points[0]


@pytest.mark.slow
def test_sweep_continues_from_schedules_of_the_first_format(
    tmp_path: Path, chain: CostedGraph
) -> None:
    _, record = kept(tmp_path, chain, "75%,90%")
    for row in record.points:
        path = tmp_path / str(row.schedule)
        document = json.loads(path.read_text())
        del document["ended_by"]
        document |= {"schema": "schedule/1", "steps": document.pop("actions")}
        path.write_text(json.dumps(document))
    assert kept(tmp_path, chain, "75%,90%") == (0, record)


def test_records_of_another_graph_of_the_same_name_are_dropped(tmp_path: Path) -> None:
    graph, budget = two_layers(), Budget(ram_bytes=30)

    def left_to_run(sha256: str) -> tuple[list[Any], int]:
        row = row_of(graph=graph.name, graph_sha256=sha256, method="dtr", ram_bytes=30)
        write_json(tmp_path / "sweep.json", SweepRecord(points=(row,)))
        directory = SweepDirectory(tmp_path, SolverOptions(gap=0.01))
        study = directory.study(SweepSubject(graph, "all"), [], [("dtr", budget)])
        return list(study.baselines), len(directory.record.points)

    assert left_to_run("0") == ([("dtr", budget)], 0)
    kept(tmp_path, graph, "120%")
    (known,) = read_json(tmp_path / "sweep.json", SweepRecord).points
    assert left_to_run(known.graph_sha256) == ([], 1)


def row_of(**fields: Any) -> SweepRow:
    return SweepRow(
        **{
            "graph": "g",
            "graph_sha256": "0",
            "method": SOLVED,
            "ram_bytes": 100,
            "covers": "all",
            "status": "feasible",
            "unconstrained_peak_bytes": 200,
            "unconstrained_energy_j": 2.0,
            "unconstrained_time_s": 1.0,
            "asked_gap": 0.01,
            **fields,
        }
    )


def test_search_is_repeated_with_stricter_options() -> None:
    limited = row_of(gap=0.05, time_limit_s=10.0)
    assert limited.answers(0.01, 10.0)
    assert limited.answers(0.02, 5.0)
    assert limited.answers(0.05, None)
    assert not limited.answers(0.01, 11.0)
    assert not limited.answers(0.01, None)
    assert not limited.answers(0.001, 10.0)
    proven = row_of(gap=0.002, time_limit_s=None)
    assert proven.answers(0.002, None)
    assert not proven.answers(0.001, 10.0)
    assert row_of(status="infeasible", time_limit_s=1.0).answers(0.0, None)


def test_time_limited_point_continues_from_its_schedule(tmp_path: Path) -> None:
    graph, budget = hard_problem()
    text = f"{budget.ram_bytes}"
    _, first = kept(tmp_path, graph, text, SolverOptions(gap=0.0, threads=1, time_limit_s=0.5))
    directory = SweepDirectory(tmp_path, EXACT)
    study = directory.study(SweepSubject(graph, "all"), [budget], [])
    assert list(study.budgets) == [budget]
    assert [schedule.energy_j for schedule in study.known] == [first.points[0].energy_j]


def test_invalid_record_is_reported(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"schema": "sweep/1", "points": [{"graph": 3}]}')
    with pytest.raises(DocumentError, match=r"sweep\.json.*graph"):
        SweepDirectory(tmp_path, EXACT)


# --- the command ----------------------------------------------------------------------------------


def graph_file(directory: Path, graph: CostedGraph) -> Path:
    return write_json(directory / f"{re.sub('[^a-z0-9]+', '-', graph.name)}.json", graph)


def run(directory: Path, *words: str) -> int:
    defaults = ("--no-baselines", "--jobs", "1", "--out", str(directory / "out"))
    return cli.main(("sweep", *defaults, *words))


def table(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path / "sweep.parquet")


@pytest.mark.slow
def test_tables_record_and_output_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = graph_file(tmp_path, two_layers())
    words = ("--graph", str(file), "--ram-budgets", "20%,100%", "--deadlines", "none,2x")
    assert run(tmp_path, *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "sweep/1"
    out = tmp_path / "out"
    assert read_json(out / "sweep.json", SweepRecord) == SweepRecord.model_validate(document)
    parquet = table(out)
    comma_separated = pd.read_csv(out / "sweep.csv", dtype=parquet.dtypes.to_dict())
    pd.testing.assert_frame_equal(parquet, comma_separated)
    assert list(parquet.ram_bytes) == [5, 25, 5, 25]
    assert list(parquet.status) == ["infeasible", "optimal"] * 2
    assert parquet.energy_j.isna().tolist() == [True, False] * 2
    assert parquet.smallest_ram_bytes.dropna().unique().tolist() == [25]
    for name in parquet.schedule:
        schedule = read_json(out / name, Schedule)
        graph = read_json((out / name).with_suffix(".graph.json"), CostedGraph)
        if schedule.actions:
            verify(graph, schedule.actions, schedule.budget)
    assert (out / "two-layers.png").exists()


@pytest.mark.slow
def test_output_names_the_smallest_feasible_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = graph_file(tmp_path, two_layers())
    assert run(tmp_path, "--graph", str(file), "--ram-budgets", "20%,100%") == 0
    printed = capsys.readouterr()
    assert "the smallest feasible RAM budget without a deadline is 25 bytes" in printed.out
    assert "2 of 2" in printed.err
    assert run(tmp_path, "--graph", str(file), "--ram-budgets", "20%") == 5


@pytest.mark.slow
def test_output_and_picture_state_no_share_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peak, time and energy of keeping everything may be 0."""
    ops = [
        {"name": "f", "kind": "k.forward", "phase": "forward", "reads": ["p"], "writes": ["y"]},
        {"name": "u", "kind": "k.update", "phase": "update", "reads": ["p", "y"], "writes": ["q"]},
    ]
    kinds = {"p": "parameter", "y": "gradient", "q": "parameter"}
    tensors = [{"name": name, "bytes": 1000, "kind": kind} for name, kind in kinds.items()]
    for number, (time_s, energy_j) in enumerate([(0.001, 0.001), (0.0, 0.001), (0.001, 0.0)]):
        costed = [{**op, "time_s": time_s, "energy_j": energy_j} for op in ops]
        graph = CostedGraph.model_validate(
            {"name": f"g{number}", "ops": costed, "tensors": tensors}
        )
        words = ("--graph", str(graph_file(tmp_path, graph)), "--budget-covers", "activations")
        assert run(tmp_path, *words, "--ram-budgets", "1000", "--deadlines", "none,1") == 0
        assert re.search(r"1000 B +– +none +optimal", capsys.readouterr().out)
        picture = tmp_path / "out" / f"g{number}-activations.png"
        assert picture.exists() == (energy_j > 0)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("infeasible", "infeasible"), 5),
        (("infeasible", "exhausted"), 7),
        (("exhausted", "no_solution"), 6),
    ],
)
def test_the_exit_code_says_why_no_point_has_a_schedule(
    statuses: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsolved(
        studies: Sequence[Study], _options: object, _pool: object, keep: Callable[[Event], None]
    ) -> None:
        (study,) = studies
        for budget, status in zip(study.budgets, statuses, strict=True):
            schedule = without_actions(study.graph, budget, status=status)
            keep(PointSolved(study, [schedule]))

    monkeypatch.setattr("solver.sweep.sweep.sweep", unsolved)
    file = graph_file(tmp_path, two_layers())
    assert run(tmp_path, "--graph", str(file), "--ram-budgets", "20%,100%") == code


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_profiles_and_models_are_crossed(tmp_path: Path) -> None:
    words = ("--profile", "m0", "m4", "--model", "linear", "autoencoder")
    assert run(tmp_path, *words, "--ram-budgets", "100%") == 0
    rows = table(tmp_path / "out")
    assert sorted(zip(rows.profile, rows.model, strict=True)) == [
        (profile, model) for profile in ("m0", "m4") for model in ("autoencoder", "linear")
    ]
    assert set(rows.energy_source) == {"published"}


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_every_baseline_is_run_once_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("sweep", "--graph", str(graph_file(tmp_path, two_layers())), "--jobs", "1")
    words = (*words, "--ram-budgets", "30B", "--out", str(tmp_path / "out"))
    assert cli.main(words) == 0
    assert f"of {1 + 2 * len(BASELINES)}" in capsys.readouterr().err
    rows = table(tmp_path / "out")
    # At the budget, and at the RAM of keeping everything.
    assert sorted(zip(rows.method, rows.ram_bytes, strict=True)) == sorted(
        [(SOLVED, 30)] + [(name, ram_bytes) for name in BASELINES for ram_bytes in (25, 30)]
    )
    kept_j = rows[rows.method == "keep-everything"].energy_j
    assert kept_j.tolist() == [66.0, 66.0]
    assert cli.main(words) == 0
    assert " of " not in capsys.readouterr().err
    # One whose schedule is lost runs again.
    with_schedules = sorted((tmp_path / "out" / "baselines").iterdir())
    assert len(with_schedules) == rows[rows.method != SOLVED].energy_j.count()
    with_schedules[0].unlink()
    assert cli.main(words) == 0
    assert "1 of 1" in capsys.readouterr().err
    pd.testing.assert_frame_equal(table(tmp_path / "out"), rows)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_points_of_a_lax_search_are_no_worse_than_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed sweep knows the baselines of the first one."""
    words = ("sweep", "--graph", str(graph_file(tmp_path, training_chain(12))), "--jobs", "1")
    words = (*words, "--gap", "0.9", "--time-limit", "1", "--out", str(tmp_path / "out"))
    for ram_budgets in ("65%,90%", "65%,80%,90%"):
        grid = ("--ram-budgets", ram_budgets, "--deadlines", "none,1.2x")
        assert cli.main((*words, *grid)) == 0
        assert "whose addresses fit the RAM" in capsys.readouterr().out
        rows = table(tmp_path / "out")
        baselines = rows[(rows.method != SOLVED) & rows.energy_j.notna()]
        assert baselines.arena_bytes.notna().all()
        for point in rows[rows.method == SOLVED].itertuples():
            deadline_s = math.inf if pd.isna(point.deadline_s) else point.deadline_s
            fits_it = (baselines.arena_bytes <= point.ram_bytes) & (baselines.time_s <= deadline_s)
            valid = baselines[fits_it]
            assert valid.empty or point.energy_j <= valid.energy_j.min()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--graph", "GRAPH", "--ram-budgets", "12 parsecs"), "512KiB"),
        (("--graph", "GRAPH", "--ram-budgets", "40%..100%/20000000"), "at most 1000"),
        (("--graph", "GRAPH", "--ram-budgets", f"40%..100%/{'9' * 5000}"), "is not a RAM budget"),
        (("--graph", "GRAPH", "--ram-budgets", "50%", "--deadlines", "soon"), "or none"),
        (("--graph", "missing.json", "--ram-budgets", "50%"), "missing.json"),
        (("--graph", "GRAPH", "GRAPH", "--ram-budgets", "50%"), "two-layers"),
        (("--profile", "m4", "--model", "resnet8x", "--ram-budgets", "50%"), "resnet8?"),
        (("--profile", "m4x", "--model", "linear", "--ram-budgets", "50%"), "m4"),
        (
            ("--graph", "GRAPH", "--ram-budgets", "50%", "--scheduler", "tcp://127.0.0.1:1"),
            "no Dask scheduler answers at 'tcp://127.0.0.1:1'",
        ),
        (("--graph", "GRAPH", "--ram-budgets", "50%", "--scheduler", "x:y:z"), "'x:y:z'"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("solver.pools.CLUSTER_LIMIT_S", 0.5)
    file = str(graph_file(tmp_path, two_layers()))
    assert run(tmp_path, *(word.replace("GRAPH", file) for word in words)) == 2
    captured = capsys.readouterr()
    *waiting, error = captured.err.splitlines()
    assert told in error
    asks_a_cluster = "--scheduler" in words
    assert len(waiting) == asks_a_cluster
    assert all(line.startswith("waiting up to") for line in waiting)
    assert captured.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_lasting_pool_replaces_a_process_that_was_killed() -> None:
    with lasting_pools() as open_pool:
        first, second = open_pool(1), open_pool(1)
        before, other = first.submit(os.getpid).result(), second.submit(os.getpid).result()
        with pytest.raises(BrokenExecutor):
            first.submit(os.kill, before, signal.SIGKILL).result()
        after = first.submit(os.getpid).result()
        assert after not in {before, other}
        assert second.submit(os.getpid).result() == other
    for process in (after, other):
        assert not Path(f"/proc/{process}").exists()


def test_without_dask_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PoolError, match=r"pip install 'distributed"), cluster_pool("tcp://a:1"):
        pass


@pytest.mark.slow
def test_a_scheduler_that_is_lost_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.pools.CLUSTER_LIMIT_S", 10.0)
    with (
        local_cluster(1) as cluster,
        cluster_pool(cluster.scheduler_address) as pool,
    ):
        assert pool.width() == 1
        pool.submit(abs, -1).result()
        cluster.close()
        for _ in range(2):  # while its client waits for it, and after that
            with pytest.raises(PoolError, match="does not answer any more; start it again"):
                pool.width()


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.pools.CLUSTER_LIMIT_S", 120.0)
    search_all_schedules(monkeypatch)  # the workers are threads of this process
    graph = training_chain(4)
    file = graph_file(tmp_path, graph)
    words = ("--graph", str(file), "--ram-budgets", "60%,100%", "--gap", "0")
    assert run(tmp_path, *words) == 0
    with local_cluster(2) as cluster:
        address = cluster.scheduler_address
        assert run(tmp_path, *words, "--out", str(tmp_path / "far"), "--scheduler", address) == 0
    # What is found about the smallest budget depends on what else this computer does.
    of_time = ["seconds", "smallest_ram_bound_bytes", "smallest_ram_bytes", "limiting_op"]
    here, far = (table(tmp_path / out) for out in ("out", "far"))
    pd.testing.assert_frame_equal(here.drop(columns=of_time), far.drop(columns=of_time))
    document = graph.model_dump(mode="json", exclude_none=True)
    least_bytes = Oracle(document, {"ram_bytes": 0}).least_ram_bytes()
    assert least_bytes is not None
    for found in (here, far):
        (infeasible,) = found[found["status"] == "infeasible"].to_dict("records")
        assert 0 < infeasible["smallest_ram_bound_bytes"] <= least_bytes
        assert least_bytes <= infeasible["smallest_ram_bytes"]
        assert infeasible["limiting_op"] in {op.name for op in graph.ops}


@contextmanager
def interrupted_sweep(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A sweep in its own process after one of two points; the other is too hard to finish."""
    graph, budget = hard_problem()
    words = (
        *("cli.py", "sweep", "--no-baselines", "--gap", "0"),
        *("--graph", str(graph_file(directory, graph))),
        *("--ram-budgets", f"{budget.ram_bytes},100%"),
        *("--jobs", "2", "--out", str(directory / "out")),
    )
    with started_as_by_a_shell(*words, stderr=subprocess.PIPE) as (process, mark):
        wait_until((directory / "out" / "sweep.parquet").exists)
        wait_until(lambda: any(b"engines.worker" in command(p) for p in marked(mark)))
        yield process, mark


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_sweep_keeps_finished_points_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    with interrupted_sweep(tmp_path) as (process, mark):
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        wait_until(lambda: not marked(mark))
    told = [line for line in said.splitlines() if line.startswith("interrupted")]
    assert len(told) == 1
    assert told[0].startswith("interrupted; finished parts are kept")
    assert "Traceback" not in said
    assert "leaked" not in said
    rows = table(tmp_path / "out")
    assert list(rows.status) == ["optimal"]
    graph, _ = hard_problem()
    assert kept(tmp_path / "out", graph, "100%")[0] == 0


@pytest.mark.slow
def test_a_second_sweep_into_a_directory_is_refused_while_the_first_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = graph_file(tmp_path, two_layers())
    words = ("--graph", str(file), "--ram-budgets", "100%")
    with interrupted_sweep(tmp_path) as (first, _):
        capsys.readouterr()
        assert run(tmp_path, *words) == 2
        said = capsys.readouterr().err
        assert f"another program uses this directory: process {first.pid} on " in said
        assert "(cli.py sweep --no-baselines" in said
        first.kill()
        first.wait()
    assert run(tmp_path, *words) == 0


@pytest.mark.slow
def test_workers_do_not_outlive_a_sweep_that_is_killed(tmp_path: Path) -> None:
    with interrupted_sweep(tmp_path) as (process, mark):
        process.kill()
        process.communicate(timeout=60)
        wait_until(lambda: not marked(mark))


# --- the picture ----------------------------------------------------------------------------------


def point(ram_bytes: int, energy_j: float | None, **fields: Any) -> SweepRow:
    return row_of(ram_bytes=ram_bytes, peak_bytes=ram_bytes, energy_j=energy_j, **fields)


@pytest.mark.slow
def test_tradeoff_picture_names_curves_baselines_and_infeasible_points(tmp_path: Path) -> None:
    rows = [
        point(60, None, status="infeasible", smallest_ram_bytes=80),
        point(100, 2.5, any_order_bound_j=2.4),
        point(200, 2.0, any_order_bound_j=2.0),
        point(100, 2.6, deadline_s=1.5, energy_bound_j=2.5, gap=0.04, any_order_bound_j=2.4),
        point(100, 2.9, method="chen-sqrt-n"),
        point(200, 2.0, method="keep-everything"),
        point(100, None, method="griewank", status="no_solution"),
    ]
    picture = tmp_path / "curve.svg"
    tradeoff(rows, picture)
    texts = texts_of(picture)
    for text in (
        "Joulewright, no deadline",
        "Joulewright, 1.5× the time",
        "chen-sqrt-n",
        "nothing fits",
        "energy source not stated",
        "all points of curves are at most 8.34 % above the least",
        "2.200 J",
        "+10 %",
    ):
        assert text in texts, text
    assert texts.count("keep-everything") == 1
    tradeoff([*rows, point(150, 2.3)], picture)  # without a bound
    assert not any("above the least" in text for text in texts_of(picture))
    tradeoff([row for row in rows if row.status != "infeasible"], picture)
    assert "nothing fits" not in texts_of(picture)


def test_without_a_schedule_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no row has a schedule"):
        tradeoff([point(60, None, status="infeasible")], tmp_path / "curve.svg")
