"""Annealing: its schedules are valid and better, and in another order where that pays."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from devices.errors import BuildFailed
from devices.published import load_published
from networks.models import build_model
from solver.addresses.plan import plan_of, with_addresses
from solver.annealing import Annealer
from solver.annealing import library as annealing_library
from solver.annealing.events import Events
from solver.constructed import keep_everything, page_everything
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph, PageCost, Tensor
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, PageOut
from solver.referee.addresses import verify_addresses
from solver.referee.referee import replay, verify
from solver.search.search import Search
from solver.solving.auto.annealers import Annealers
from solver.solving.auto.search import AutomaticSearch
from solver.solving.auto.task import Task
from solver.solving.outcome import Outcome
from solver.solving.solving import solve_graph
from tests.support.graphs.graph_examples import graph, op, tensor, training_chain, unlucky
from tests.support.graphs.graph_strategies import least_energy_by_exhaustion, tight_problems

_LONG_ENOUGH_S = 600.0


def annealed(
    problem: Problem, enough: Callable[[float], bool], *, free_order: bool
) -> tuple[Action, ...] | None:
    """The best schedule found once its energy is ``enough``, or after a time limit."""
    found = None
    start = keep_everything(problem.graph)
    with Annealer(problem, start, free_order=free_order) as annealer:
        until = time.monotonic() + _LONG_ENOUGH_S
        while time.monotonic() < until:
            found = annealer.found() or found
            if found and enough(verify(problem.graph, found, problem.budget).energy_j):
                break
            time.sleep(0.01)
    return found


# The same graphs every time: on a few others annealing ends in a local optimum.
@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(problem=tight_problems())
def test_annealing_finds_the_optimum_of_small_graphs(problem: tuple[CostedGraph, Budget]) -> None:
    costed, budget = problem
    least_j = least_energy_by_exhaustion(costed, budget)
    if least_j is None:
        return
    limit_j = least_j * (1 + 1e-9)
    found = annealed(
        Problem(costed, budget), lambda energy_j: energy_j <= limit_j, free_order=False
    )
    assert found is not None
    assert verify(costed, found, budget).energy_j == pytest.approx(least_j)


def test_first_executions_keep_the_given_order() -> None:
    costed = training_chain(9, seed=3)
    budget = Budget(ram_bytes=int(0.7 * replay(costed, keep_everything(costed)).peak_bytes))
    found = annealed(Problem(costed, budget), lambda _: True, free_order=False)
    assert found is not None
    order = list(dict.fromkeys(action.op for action in found if isinstance(action, Compute)))
    assert order == [op.name for op in costed.ops]


def two_branches() -> CostedGraph:
    """Two branches whose large tensors fit one after the other, but not in the given order."""
    return graph(
        [
            op("a1", "x", "a"),
            op("b1", "x", "b"),
            op("a2", "a", "p"),
            op("b2", "b", "q"),
            op("join", "p q", "y"),
        ],
        [
            tensor("x", 1, home="ram"),
            *(tensor(name, 8) for name in "ab"),
            *(tensor(name, 1) for name in "pq"),
            tensor("y", 1, persist="ram"),
        ],
    )


def test_free_order_saves_the_recomputation_of_the_given_order() -> None:
    costed, budget = two_branches(), Budget(ram_bytes=12)
    least_j = sum(op.energy_j for op in costed.ops)
    free = solve_graph(costed, budget, SolverOptions(gap=0.0))
    given_order = solve_graph(costed, budget, SolverOptions(gap=0.0, order="given"))
    assert free.status == given_order.status == "optimal"
    assert free.energy_j == pytest.approx(least_j)
    assert given_order.energy_j is not None
    assert given_order.energy_j > least_j
    assert not free.restrictions
    assert "order" in " ".join(given_order.restrictions)
    assert given_order.any_order_bound_j == pytest.approx(least_j)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(problem=tight_problems())
def test_schedule_survives_conversion_to_events_and_back(
    problem: tuple[CostedGraph, Budget],
) -> None:
    costed, budget = problem
    events = Events(Problem(costed, budget), "energy")
    actions = keep_everything(costed)
    again = events.actions(events.sequence(actions).tolist())
    assert replay(costed, again).energy_j == pytest.approx(replay(costed, actions).energy_j)
    assert replay(costed, again).peak_bytes == replay(costed, actions).peak_bytes
    assert with_frees(costed, [s for s in again if s.do != "free"]) == again


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=tight_problems(), data=st.data())
def test_a_sequence_without_a_saved_tensor_saves_the_others(
    problem: tuple[CostedGraph, Budget], data: st.DataObject
) -> None:
    own = Problem(*problem)
    events = Events(own, "energy")
    sequence = events.sequence(page_everything(own))
    saved = events.saved(sequence)
    paged_out = {a.tensor for a in page_everything(own) if isinstance(a, PageOut)}
    assert {own.graph.tensors[i].name for i in saved} <= paged_out
    assume(saved)
    tensor = data.draw(st.sampled_from(saved))
    rest = events.without(sequence, tensor)
    assert events.saved(rest) == [other for other in saved if other != tensor]
    barred = events.not_saved(rest)
    assert barred[tensor]
    assert not any(barred[other] for other in events.saved(rest))


@pytest.mark.slow
def test_no_transfer_is_left_where_recomputation_is_cheaper() -> None:
    """A page-out takes most of a step; one less takes a search for many recomputations at once."""
    costed = with_dear_transfers(
        cost_graph(build_model("mobilenet", 1), load_published("a72")).graph, 0.7
    )
    peak_bytes = replay(costed, keep_everything(costed)).peak_bytes
    problem = Problem(costed, Budget(ram_bytes=peak_bytes // 2))
    least_j = sum(op.energy_j for op in costed.ops)
    found = annealed(problem, lambda energy_j: energy_j < 1.7 * least_j, free_order=True)
    assert found is not None
    assert not any(isinstance(action, PageOut) for action in found)


def with_dear_transfers(costed: CostedGraph, share: float) -> CostedGraph:
    """A graph whose page-outs each cost a share of computing every op once."""
    least_j, least_s = (
        sum(getattr(op, unit) for op in costed.ops) for unit in ("energy_j", "time_s")
    )
    page_out = PageCost(energy_j=share * least_j, time_s=share * least_s)
    page_in = PageCost(energy_j=share * least_j / 20, time_s=share * least_s / 20)
    tensors = [
        each
        if each.page_out is None
        else Tensor(**dict(each) | {"page_out": page_out, "page_in": page_in})
        for each in costed.tensors
    ]
    return CostedGraph(**dict(costed) | {"tensors": tensors})


def test_search_without_a_compiler_goes_on_and_reports_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> None:
        raise BuildFailed("no C compiler was found")

    monkeypatch.setattr(annealing_library, "library", none)
    monkeypatch.setattr("solver.annealing.annealer.library", none)
    costed = training_chain(7, seed=3)
    budget = Budget(ram_bytes=int(0.8 * replay(costed, keep_everything(costed)).peak_bytes))
    schedule = solve_graph(costed, budget, SolverOptions(time_limit_s=60))
    assert schedule.actions
    assert any("no C compiler" in choice for choice in schedule.chosen)


@pytest.mark.slow
def test_schedules_of_annealing_for_addresses_have_them() -> None:
    """The referee of addresses accepts them, whatever is overwritten, recomputed or paged."""
    checked = 0

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(problem=tight_problems())
    def check(problem: tuple[CostedGraph, Budget]) -> None:
        nonlocal checked
        costed, budget = problem
        start = keep_everything(costed)
        with Annealer(Problem(costed, budget), start, free_order=True, packs=True) as annealer:
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                found = annealer.found_with_addresses()
                if found is not None:
                    _assert_addressed(costed, budget, *found)
                    checked += 1
                time.sleep(0.02)

    check()
    assert checked > 0


def _assert_addressed(
    costed: CostedGraph, budget: Budget, schedule: tuple[Action, ...], offsets: tuple[int, ...]
) -> None:
    verify(costed, schedule, budget)
    plan = plan_of(costed, schedule, budget.covers, offsets)
    assert plan.arena_bytes <= budget.ram_bytes
    addressed = with_addresses(schedule, plan)
    verify_addresses(costed, addressed, plan.resident_address, plan.arena_bytes, budget.covers)


@pytest.mark.slow
def test_annealing_for_addresses_finds_a_schedule_where_the_cheapest_gets_none() -> None:
    problem, schedule = unlucky()
    cheapest_j = verify(problem.graph, schedule, problem.budget).energy_j
    found = None
    with Annealer(problem, schedule, free_order=True, packs=True) as annealer:
        until = time.monotonic() + _LONG_ENOUGH_S
        while found is None and time.monotonic() < until:
            found = annealer.found_with_addresses()
            time.sleep(0.01)
    assert found is not None
    _assert_addressed(problem.graph, problem.budget, *found)
    assert replay(problem.graph, found[0]).energy_j >= cheapest_j


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_addresses_are_annealed_for_if_the_best_schedule_gets_none(threads: int) -> None:
    problem, schedule = unlucky()
    options = SolverOptions(threads=threads)
    search = Search(problem, "energy", options)
    search.offer(schedule)
    task = Task(problem, options, inf, search)
    with ExitStack() as stack:
        annealers = Annealers(task, stack)
        annealers.begin()
        annealers.watch_addresses()
        until = time.monotonic() + _LONG_ENOUGH_S
        while (spare := annealers.spare()) is None and time.monotonic() < until:
            time.sleep(0.01)
    assert any("get addresses" in choice for choice in task.chosen)
    assert spare is not None
    assert spare.plan.arena_bytes <= problem.budget.ram_bytes


@pytest.mark.slow
def test_addresses_are_annealed_for_once_a_better_schedule_gets_none() -> None:
    """The first schedule gets addresses, and is the spare one until another is found."""
    problem, schedule = unlucky()
    options = SolverOptions()
    search = Search(problem, "energy", options)
    search.offer(page_everything(problem))
    task = Task(problem, options, inf, search)
    with ExitStack() as stack:
        annealers = Annealers(task, stack)
        annealers.begin()
        annealers.watch_addresses()
        assert not annealers.seeks_addresses
        assert annealers.spare() is not None
        search.offer(schedule)
        annealers.offer(schedule)
        assert annealers.seeks_addresses
        assert annealers.spare() is not None


def without_addresses_once_proven() -> Problem:
    """It takes a search to recompute ``x`` or read it at once; the rest gets no addresses."""
    rest, _ = unlucky()
    ops = [op("p", "", "x"), *rest.graph.ops, op("q", "x", "")]
    return Problem(graph(ops, [*rest.graph.tensors, tensor("x", 7)]), rest.budget)


def searched(problem: Problem) -> Outcome:
    deadline = time.monotonic() + _LONG_ENOUGH_S
    return AutomaticSearch(problem, SolverOptions(), lambda _: None, deadline).run([])


@pytest.mark.slow
def test_a_search_that_ends_with_a_proof_waits_for_a_schedule_with_addresses() -> None:
    problem = without_addresses_once_proven()
    outcome = searched(problem)
    assert outcome.ending == "proven"
    assert outcome.energy_j == problem.unavoidable_energy_j
    assert outcome.spare is not None
    assert outcome.spare.plan.arena_bytes <= problem.budget.ram_bytes


def test_ctrl_c_while_a_schedule_with_addresses_is_waited_for_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pressed(_annealers: Annealers, _until: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Annealers, "wait_for_addresses", pressed)
    problem = without_addresses_once_proven()
    outcome = searched(problem)
    assert outcome.ending == "interrupted"
    assert outcome.stated.least_j == outcome.energy_j == problem.unavoidable_energy_j


def test_after_a_late_schedule_a_dearer_one_that_is_in_time_is_found() -> None:
    """Either ``p`` or ``q`` makes room for ``t``. Nothing runs beside the transfers of ``p``, which
    is made right before ``t`` and read right after it; half of their time would fit."""
    costed = graph(
        [
            op("a", "x", "q s", time_s=0.1),
            op("f", "s", "p r", time_s=0.9),
            op("t", "r", "y", time_s=0.1, workspace_bytes=5),
            op("g", "p y", "z", time_s=0.9),
            op("h", "q z", "end", time_s=0.1),
        ],
        [
            tensor("p", 4, page_out=(0.8, 0.5), page_in=(0.8, 0.5)),
            tensor("q", 4, page_out=(0.4, 3.0), page_in=(0.4, 3.0)),
            *(tensor(name, 1) for name in ("x", "s", "r", "y", "z", "end")),
        ],
    ).model_copy(update={"asynchronous_transfers": True})
    budget = Budget(ram_bytes=11, deadline_s=3.0, rematerialization=False)
    problem = Problem(costed, budget)
    options = SolverOptions()
    search = Search(problem, "energy", options)
    with ExitStack() as threads:
        annealers = Annealers(Task(problem, options, inf, search), threads)
        annealers.begin()
        annealers.wait_for_any(time.monotonic() + _LONG_ENOUGH_S)
    assert search.actions is not None
    assert verify(costed, search.actions, budget).energy_j == 5 + 6
