"""Solving: the optimum of every small graph, and results as a user sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.claims.oracle import Oracle
from solver.constructed import keep_everything
from solver.options import EngineName, FormulationName, SolverOptions
from solver.problem.claims import OWN_ORDER, Claim, Claims, ScheduleClass
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.schedule import (
    Action,
    Budget,
    Compute,
    Free,
    PageIn,
    PageOut,
    Schedule,
    first_executions,
)
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, replay, verify
from solver.requests.summary import summary
from solver.search.search import Ending, Progress
from solver.solving.outcome import Outcome
from solver.solving.solving import solve_graph
from solver.time_limit import OutOfTime
from tests.support.boards.processes import (
    VARIABLE,
    marked,
    new_mark,
    started_as_by_a_shell,
    wait_until,
)
from tests.support.graphs.graph_examples import (
    graph,
    hard_problem,
    op,
    tensor,
    tight,
    training_chain,
    two_layers,
    unconstrained_peak,
)
from tests.support.graphs.graph_strategies import (
    examples,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)
from tests.support.proofs import AMPLE_S, search_all_schedules

EXACT = SolverOptions(gap=0.0, threads=1, order="given")
IN_ANY_ORDER = SolverOptions(gap=0.99)
"""Ends with the first schedule, or when none is proven to exist."""
both_engines = pytest.mark.parametrize("engine", ["highs", "cbc"])


def _assert_sound(problem: CostedGraph, budget: Budget, schedule: Schedule) -> None:
    """Check that both referees agree with the schedule and every figure in it."""
    result = verify(problem, schedule.actions, budget)
    assert schedule.energy_j == result.energy_j
    assert schedule.time_s == result.time_s
    assert schedule.peak_bytes == result.peak_bytes
    assert schedule.bytes_written_to_storage == result.bytes_written_to_storage
    assert schedule.energy_bound_j is not None
    assert schedule.gap is not None
    assert schedule.energy_bound_j <= schedule.energy_j
    gap_j = schedule.energy_j - schedule.energy_bound_j
    assert schedule.gap * schedule.energy_j == pytest.approx(gap_j)
    assert schedule.arena_bytes is not None
    assert schedule.resident_address is not None
    assert schedule.arena_bytes <= budget.ram_bytes
    verify_addresses(
        problem,
        schedule.actions,
        schedule.resident_address,
        schedule.arena_bytes,
        budget.covers,
    )
    assert schedule.budget == budget
    assert schedule.graph == problem.name


# --- the optimum ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_the_optimum_of_every_small_graph_is_found() -> None:
    overheads_j: list[float] = []

    @given(problem_and_budget=tight_problems())
    @examples(50)
    def compare(problem_and_budget: tuple[CostedGraph, Budget]) -> None:
        problem, budget = problem_and_budget
        least_j = least_energy_by_exhaustion(problem, budget)
        assume(least_j is not None)
        assert least_j is not None
        schedule = solve_graph(problem, budget, EXACT)
        assert schedule.status == "optimal"
        assert schedule.energy_j == pytest.approx(least_j)
        _assert_sound(problem, budget, schedule)
        overheads_j.append(least_j - replay(problem, keep_everything(problem)).energy_j)

    compare()
    # Most examples must have needed recomputation or paging.
    assert sum(overhead_j > 0 for overhead_j in overheads_j) > 30


@pytest.fixture
def _all_schedules_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    search_all_schedules(monkeypatch)


@pytest.fixture
def _ample_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least budget of a small graph is exact if the time suffices to search all schedules."""
    monkeypatch.setattr("solver.solving.advice._SEARCH_S", AMPLE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines", "_all_schedules_searched", "_ample_advice")
@given(problem_and_budget=tight_problems())
@examples(7)
def test_infeasible_problem_is_reported_with_feasible_limits(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    document = problem.model_dump(mode="json", exclude_none=True)

    def feasible(**changes: object) -> bool:
        changed = budget.model_copy(update=changes)
        return Oracle(document, changed.model_dump(exclude_none=True)).least_energy_j() is not None

    assume(not feasible())
    schedule = solve_graph(problem, budget, SolverOptions(gap=0.0))
    assert schedule.status == "infeasible"
    assert not schedule.actions
    assert schedule.energy_j is None
    if schedule.smallest_ram_bytes is None:
        assert not feasible(ram_bytes=unconstrained_peak(problem))
    else:
        assert schedule.smallest_ram_bytes == schedule.smallest_ram_bound_bytes
        assert feasible(ram_bytes=schedule.smallest_ram_bytes)
        assert not feasible(ram_bytes=schedule.smallest_ram_bytes - 1)
    if budget.deadline_s is None:
        assert schedule.smallest_deadline_s is None
    elif schedule.smallest_deadline_s is None:
        assert not feasible(deadline_s=None)
    else:
        assert feasible(deadline_s=schedule.smallest_deadline_s)
        # All times are whole seconds.
        assert not feasible(deadline_s=schedule.smallest_deadline_s - 1)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines", "_all_schedules_searched")
@pytest.mark.parametrize(("seed", "paging"), [(28964, False), (2, True)])
def test_reported_smallest_budget_is_feasible_and_its_bound_is_not(seed: int, paging: bool) -> None:
    problem = training_chain(7, seed=seed)
    budget = tight(problem, 0.1, paging=paging)
    advice = solve_graph(problem, budget, EXACT)
    found, bound = advice.smallest_ram_bytes, advice.smallest_ram_bound_bytes
    assert advice.status in ("infeasible", "exhausted")
    assert found is not None
    assert bound is not None
    assert budget.ram_bytes < found
    assert bound <= found
    enough = budget.model_copy(update={"ram_bytes": found})
    assert solve_graph(problem, enough, IN_ANY_ORDER).actions
    less = budget.model_copy(update={"ram_bytes": bound - 1})
    assert solve_graph(problem, less, IN_ANY_ORDER, with_advice=False).status == "infeasible"


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines", "_all_schedules_searched")
def test_reported_shortest_deadline_is_feasible_and_its_bound_is_not() -> None:
    problem = training_chain(7, seed=3)
    budget = tight(problem, 0.35, deadline_s=_stretched(problem, 1.1))
    advice = solve_graph(problem, budget, EXACT)
    found, bound = advice.smallest_deadline_s, advice.smallest_deadline_bound_s
    assert advice.status in ("infeasible", "exhausted")
    assert found is not None
    assert bound is not None
    enough = budget.model_copy(update={"deadline_s": found})
    assert solve_graph(problem, enough, IN_ANY_ORDER).actions
    less = budget.model_copy(update={"deadline_s": bound * 0.9999})
    assert solve_graph(problem, less, IN_ANY_ORDER, with_advice=False).status == "infeasible"


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(problem_and_budget=tight_problems())
@examples(7)
def test_no_action_of_an_optimal_schedule_can_be_left_out_or_changed(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    assume(least_energy_by_exhaustion(problem, budget) is not None)
    schedule = solve_graph(problem, budget, EXACT)
    whole = _figures(problem, schedule.actions, budget)
    assert whole is not None
    for index, action in enumerate(schedule.actions):
        before, after = schedule.actions[:index], schedule.actions[index + 1 :]
        if not isinstance(action, Free):
            without = _figures(problem, (*before, *after), budget)
            assert without is None or (without != whole and without[0] >= whole[0])
        for wrong in _other_actions(problem, action):
            changed = _figures(problem, (*before, wrong, *after), budget)
            assert changed is None or changed[0] >= whole[0]


def _figures(
    problem: CostedGraph, actions: tuple[Action, ...], budget: Budget
) -> tuple[float, float, int] | None:
    """Energy, time and bytes written; None if the referee refuses the schedule."""
    try:
        result = verify(problem, actions, budget)
    except RefereeError:
        return None
    return result.energy_j, result.time_s, result.bytes_written_to_storage


def _other_actions(problem: CostedGraph, action: Action) -> Iterator[Action]:
    """Actions of the same kind on other ops or tensors."""
    if isinstance(action, Compute):
        yield from (Compute(op=op.name) for op in problem.ops if op.name != action.op)
    else:
        others = (t.name for t in problem.tensors if t.name != action.tensor)
        yield from (action.model_copy(update={"tensor": name}) for name in others)


@pytest.mark.usefixtures("_kept_engines")
@given(problem=small_graphs(), above=st.integers(0, 3))
@examples(8)
def test_everything_is_kept_if_it_fits(problem: CostedGraph, above: int) -> None:
    budget = Budget(ram_bytes=unconstrained_peak(problem) + above)
    schedule = solve_graph(problem, budget, EXACT)
    assert schedule.status == "optimal"
    _assert_sound(problem, budget, schedule)
    assert schedule.energy_j == replay(problem, keep_everything(problem)).energy_j


def test_no_search_is_needed_if_everything_fits() -> None:
    schedule = solve_graph(two_layers(), Budget(ram_bytes=25), EXACT)
    assert schedule.status == "optimal"
    assert schedule.energy_j == schedule.energy_bound_j == 66
    assert schedule.gap == 0
    assert schedule.solver.engine == "none"
    assert schedule.solver.rounds == 0
    assert schedule.solver.version == "no search was needed"


@pytest.mark.parametrize(
    ("first_without_time", "engine", "version"),
    [
        ("search.greedy_schedule", "none", "only starting schedules were tried"),
        ("bounds.CrossingSearch", "annealing", "no engine"),
    ],
)
def test_a_search_that_the_time_limit_ends_early_is_not_called_unneeded(
    monkeypatch: pytest.MonkeyPatch, first_without_time: str, engine: str, version: str
) -> None:
    def out_of_time(*_arguments: object, **_options: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(f"solver.solving.auto.{first_without_time}", out_of_time)
    problem = training_chain(7, seed=3)
    schedule = solve_graph(problem, tight(problem, 0.5), SolverOptions(time_limit_s=20.0))
    assert schedule.ended_by == "time_limit"
    assert (schedule.solver.engine, schedule.solver.version) == (engine, version)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_recomputation_and_paging_by_pencil_and_paper() -> None:
    """``a`` is read at the end, and ``big`` needs its room in between.

    It is paged in for 3 J, or recomputed for ``make_j``.
    """

    def problem(make_j: float) -> CostedGraph:
        return graph(
            [
                op("make", "x", "a", energy_j=make_j),
                op("grow", "x", "big", energy_j=1.0),
                op("shrink", "big", "small", energy_j=1.0),
                op("last", "a small", "end", energy_j=1.0),
            ],
            [
                tensor("x", 1, home="ram"),
                tensor("a", 4, page_out=(1.0, 2.0), page_in=(1.0, 1.0)),
                tensor("big", 8),
                tensor("small", 1),
                tensor("end", 1),
            ],
        )

    budget = Budget(ram_bytes=10)
    cheap = solve_graph(problem(make_j=2.5), budget, EXACT)
    dear = solve_graph(problem(make_j=3.5), budget, EXACT)
    assert cheap.energy_j == pytest.approx(2.5 + 3 + 2.5)
    assert [s.op for s in cheap.actions if isinstance(s, Compute)].count("make") == 2
    assert dear.energy_j == pytest.approx(3.5 + 3 + 3)
    moved = [s for s in dear.actions if isinstance(s, PageOut | PageIn)]
    assert [(s.do, s.tensor) for s in moved] == [("page_out", "a"), ("page_in", "a")]
    assert dear.bytes_written_to_storage == 4
    unable = solve_graph(problem(make_j=3.5), budget.model_copy(update={"paging": False}), EXACT)
    assert unable.energy_j == pytest.approx(3.5 + 3 + 3.5)
    unwilling = solve_graph(
        problem(make_j=2.5), budget.model_copy(update={"rematerialization": False}), EXACT
    )
    assert unwilling.energy_j == pytest.approx(2.5 + 3 + 3)
    hurried = budget.model_copy(update={"deadline_s": 5.5})
    assert solve_graph(problem(make_j=3.5), hurried, EXACT).energy_j == pytest.approx(10.0)


# --- options --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@pytest.mark.parametrize(("engine", "gap"), [("highs", 0.05), ("highs", 0.15), ("cbc", 0.05)])
def test_the_gap_that_was_asked_for_is_kept(engine: EngineName, gap: float) -> None:
    problem = training_chain(10, seed=3)
    budget = tight(problem, 0.2)
    schedule = solve_graph(problem, budget, SolverOptions(engine=engine, gap=gap, threads=1))
    assert schedule.status == "optimal"
    _assert_sound(problem, budget, schedule)
    assert schedule.gap is not None
    assert schedule.gap <= gap
    optimum_j = _optimum_j(problem, budget)
    assert schedule.energy_bound_j is not None
    assert schedule.energy_j is not None
    assert schedule.energy_bound_j <= optimum_j * (1 + 1e-9)
    assert optimum_j <= schedule.energy_j * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@pytest.mark.parametrize("stretch", [None, 1.4])
@pytest.mark.parametrize("seed", [1, 2])
def test_engines_agree_on_the_optimum_of_a_chain(seed: int, stretch: float | None) -> None:
    problem = training_chain(7, seed=seed)
    _assert_engines_agree(problem, tight(problem, 0.35, deadline_s=_stretched(problem, stretch)))


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(problem_and_budget=tight_problems())
@examples(4)
def test_engines_agree_on_small_graphs(problem_and_budget: tuple[CostedGraph, Budget]) -> None:
    problem, budget = problem_and_budget
    assume(least_energy_by_exhaustion(problem, budget) is not None)
    _assert_engines_agree(problem, budget)


def _assert_engines_agree(problem: CostedGraph, budget: Budget) -> None:
    by_highs = solve_graph(problem, budget, EXACT)
    by_cbc = solve_graph(
        problem, budget, SolverOptions(engine="cbc", gap=0.0, threads=1, order="given")
    )
    assert by_highs.status == by_cbc.status == "optimal"
    assert by_highs.energy_j == pytest.approx(by_cbc.energy_j)
    if by_highs.solver.engine != "annealing":  # annealing may have found a proven optimum
        assert by_highs.solver.version.lower().startswith("highs")
    if by_cbc.solver.engine != "annealing":
        assert by_cbc.solver.version.lower().startswith("cbc")


def _stretched(problem: CostedGraph, stretch: float | None) -> float | None:
    """``stretch`` times the duration of all ops, as a deadline; None for no deadline."""
    return None if stretch is None else stretch * sum(op.time_s for op in problem.ops)


@pytest.mark.slow
@pytest.mark.parametrize("energy_unit_j", [1e-9, 1e6])
def test_decisions_do_not_depend_on_the_scale_of_energy(energy_unit_j: float) -> None:
    plain = training_chain(7)
    scaled = training_chain(7, energy_unit_j=energy_unit_j)
    budget = tight(plain, 0.25)
    in_joules = solve_graph(plain, budget, EXACT)
    in_others = solve_graph(scaled, budget, EXACT)
    assert in_joules.status == in_others.status == "optimal"
    # The order of the actions depends on when annealing ended.
    assert _decisions(in_joules) == _decisions(in_others)
    assert in_joules.energy_j is not None
    assert in_others.energy_j == pytest.approx(in_joules.energy_j * energy_unit_j, rel=1e-9, abs=0)
    again = verify(plain, in_others.actions, budget)
    assert again.energy_j == pytest.approx(in_joules.energy_j, rel=1e-9, abs=0)


def _decisions(schedule: Schedule) -> Counter[tuple[str, str]]:
    """Number of executions of each op, and of page-ins and page-outs of each tensor."""
    return Counter(
        (action.do, action.op if isinstance(action, Compute) else action.tensor)
        for action in schedule.actions
        if not isinstance(action, Free)
    )


@pytest.mark.slow
def test_free_ops_keep_least_paging_energy_at_any_scale() -> None:
    def least_paging_j(energy_unit_j: float) -> float:
        problem = training_chain(10, seed=3, energy_unit_j=energy_unit_j)
        free_ops = tuple(op.model_copy(update={"energy_j": 0.0}) for op in problem.ops)
        problem = CostedGraph(name="free", ops=free_ops, tensors=problem.tensors)
        return _optimum_j(problem, tight(problem, 0.3, rematerialization=False))

    in_joules = least_paging_j(1.0)
    assert in_joules > 0
    assert least_paging_j(1e-9) == pytest.approx(in_joules * 1e-9, rel=1e-9, abs=0)


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_less_time_needs_more_energy() -> None:
    problem = training_chain(7, seed=2)
    budgets = [
        tight(problem, 0.35, deadline_s=_stretched(problem, stretch))
        for stretch in (None, 2.0, 1.5, 1.3)
    ]
    unhurried_j, slow_j, fast_j, fastest_j = (_optimum_j(problem, b) for b in budgets)
    assert unhurried_j == slow_j < fast_j < fastest_j


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_less_ram_needs_more_energy() -> None:
    problem = training_chain(7, seed=2)
    energies_j = [_optimum_j(problem, tight(problem, share)) for share in (1.0, 0.5, 0.35, 0.2)]
    assert energies_j == sorted(set(energies_j))


def _optimum_j(problem: CostedGraph, budget: Budget) -> float:
    schedule = solve_graph(problem, budget, EXACT)
    assert schedule.status == "optimal"
    _assert_sound(problem, budget, schedule)
    assert schedule.energy_j is not None
    return schedule.energy_j


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
def test_excluded_paging_or_recomputation_is_not_used() -> None:
    problem = training_chain(7, seed=2)
    both_j = _optimum_j(problem, tight(problem, 0.5))
    for excluded in ("paging", "rematerialization"):
        budget = tight(problem, 0.5, **{excluded: False})
        schedule = solve_graph(problem, budget, EXACT)
        assert schedule.status == "optimal"
        _assert_sound(problem, budget, schedule)
        assert schedule.energy_j is not None
        assert schedule.energy_j >= both_j
        pages = any(isinstance(action, PageIn | PageOut) for action in schedule.actions)
        computed = [action.op for action in schedule.actions if isinstance(action, Compute)]
        recomputes = len(computed) > len(problem.ops)
        assert (pages, recomputes) == (excluded != "paging", excluded == "paging")


# --- infeasible problems --------------------------------------------------------------------------


def test_the_op_that_needs_most_is_named() -> None:
    problem = two_layers()
    schedule = solve_graph(problem, Budget(ram_bytes=5), EXACT)
    assert schedule.status == "infeasible"
    # conv: x 10, w 4, a 6 and 5 of workspace; w has no copy elsewhere.
    assert schedule.smallest_ram_bytes == 25
    assert schedule.limiting_op == "conv"
    assert schedule.smallest_deadline_s is None


def test_tensors_in_ram_at_the_start_can_exceed_the_budget() -> None:
    problem = graph(
        [op("only", "x", "y")],
        [tensor("x", 2, home="ram"), tensor("y", 2), tensor("idle", 20, home="ram")],
    )
    schedule = solve_graph(problem, Budget(ram_bytes=10), EXACT)
    assert schedule.status == "infeasible"
    assert schedule.smallest_ram_bytes == 22
    assert schedule.limiting_op == "what is in RAM when the step begins"


def fragmented() -> CostedGraph:
    """Ten ops of 1 s, which need 11 bytes at a time and, in their order, 12 with addresses."""
    sizes = (2, 6, 1, 4, 2, 1, 3, 2, 5, 5)
    last_reads = {1: "t0", 3: "t1", 6: "t2 t3", 7: "t4", 8: "t6 t7", 9: "t5 t8"}
    return graph(
        [op(f"op{i}", last_reads.get(i, ""), f"t{i}") for i in range(len(sizes))],
        [tensor(f"t{i}", size) for i, size in enumerate(sizes)],
    )


@pytest.mark.slow
def test_the_smallest_budget_has_room_for_addresses() -> None:
    problem = fragmented()
    only_one = Budget(ram_bytes=5, paging=False, rematerialization=False)
    options = SolverOptions(order="given", time_limit_s=10.0)
    advice = solve_graph(problem, only_one, options)
    # At most 11 bytes are in RAM at a time, but no addresses leave the arena that small.
    assert (advice.smallest_ram_bound_bytes, advice.smallest_ram_bytes) == (11, 12)
    for ram_bytes, solved in ((11, False), (12, True)):
        budget = only_one.model_copy(update={"ram_bytes": ram_bytes})
        assert bool(solve_graph(problem, budget, options).actions) is solved


def test_the_shortest_deadline_is_that_of_a_schedule_with_addresses() -> None:
    problem = fragmented()
    options = SolverOptions(order="given", time_limit_s=10.0)
    for ram_bytes, shortest_s in ((11, None), (12, 10.0)):
        budget = Budget(ram_bytes=ram_bytes, deadline_s=5.0, paging=False, rematerialization=False)
        assert solve_graph(problem, budget, options).smallest_deadline_s == shortest_s


def test_a_deadline_before_every_op_was_computed_once_is_infeasible() -> None:
    schedule = solve_graph(two_layers(), Budget(ram_bytes=25, deadline_s=7.0), EXACT)
    assert schedule.status == "infeasible"
    assert schedule.smallest_ram_bytes is None
    assert schedule.smallest_deadline_s == 7.5


def _stored_chain(
    *, dma: bool = False, processor_share: float | None = None, handover_s: float | None = None
) -> CostedGraph:
    """20 ops of 1 s, each of which reads a parameter that a transfer of 2 s brings."""
    count = 20
    made = graph(
        [op(f"f{i}", f"a{i} w{i}", f"a{i + 1}") for i in range(count)],
        [
            *(tensor(f"a{i}", 4) for i in range(count + 1)),
            *(tensor(f"w{i}", 4, home="storage", page_in=(2.0, 1.0)) for i in range(count)),
        ],
    )
    return made.model_copy(
        update={
            "asynchronous_transfers": dma,
            "processor_share": processor_share,
            "handover_s": handover_s,
        }
    )


_SHARED = (
    "computing every op once takes 20 s, and the transfers that every schedule makes take 40 s,"
    " the processor for 30 s, whatever"
)


@pytest.mark.parametrize(
    ("dma", "share", "instantaneous", "least_s", "said"),
    [
        (
            False,
            None,
            False,
            60.0,
            "takes 20 s and the transfers that every schedule makes take 40 s",
        ),
        (True, None, False, 40.0, "the transfers that every schedule makes take 40 s, whatever"),
        (True, 0.75, False, 50.0, _SHARED),
        (True, 0.25, False, 40.0, "the transfers that every schedule makes take 40 s, whatever"),
        (False, None, True, 20.0, "computing every op once takes 20 s, whatever"),
    ],
)
def test_a_deadline_before_ops_and_unavoidable_transfers_is_infeasible_by_sums(
    dma: bool, share: float | None, instantaneous: bool, least_s: float, said: str
) -> None:
    problem = _stored_chain(dma=dma, processor_share=share)
    budget = Budget(ram_bytes=1000, deadline_s=least_s - 1, instantaneous_paging=instantaneous)
    late = solve_graph(problem, budget, EXACT, with_advice=False)
    assert (late.status, late.ended_by, late.restrictions) == ("infeasible", "proven", ())
    assert late.solver.engine == "none"
    kept = replay(problem, keep_everything(problem))
    assert said in "\n".join(map(str, summary(late, kept, problem)))


def test_handing_transfers_over_counts_against_a_deadline() -> None:
    """Each transfer takes 2 s, of which the processor needs 0.25 · 2 s and 1 s."""
    problem = _stored_chain(dma=True, processor_share=0.25, handover_s=1.0)
    late = solve_graph(problem, Budget(ram_bytes=1000, deadline_s=49.0), EXACT, with_advice=False)
    assert (late.status, late.ended_by, late.restrictions) == ("infeasible", "proven", ())
    assert late.solver.engine == "none"
    kept = replay(problem, keep_everything(problem))
    said = "\n".join(map(str, summary(late, kept, problem)))
    assert "transfers that every schedule makes take 40 s, the processor for 30 s, whatever" in said
    in_time = solve_graph(problem, Budget(ram_bytes=1000, deadline_s=52.0), EXACT)
    assert in_time.actions
    assert verify(problem, in_time.actions, Budget(ram_bytes=1000)).time_s <= 52.0


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["auto", "compact"])
def test_the_shortest_deadline_is_bounded_by_ops_and_unavoidable_transfers(
    formulation: FormulationName,
) -> None:
    options = replace(EXACT, formulation=formulation)
    late = solve_graph(_stored_chain(), Budget(ram_bytes=1000, deadline_s=50.0), options)
    assert late.status == "infeasible"
    assert late.solver.engine == "none"
    assert late.smallest_deadline_s == late.smallest_deadline_bound_s == 60.0


# --- time and interruption ------------------------------------------------------------------------


@contextmanager
def _no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    yield mark
    # A process that a thread still holds is given a moment to end.
    wait_until(lambda: not marked(mark))


@pytest.mark.slow
@both_engines
def test_the_time_limit_returns_the_best_so_far(
    engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, budget = hard_problem()
    heard: list[Progress] = []
    began = time.monotonic()
    with _no_process_left(monkeypatch):
        # With addresses, the schedule that is returned may need more than the best one found.
        options = SolverOptions(engine=engine, gap=0.0, time_limit_s=2.0, addresses=False)
        schedule = solve_graph(problem, budget, options, heard.append)
    assert time.monotonic() - began < 20.0
    assert schedule.status in ("feasible", "no_solution")
    assert schedule.ended_by == "time_limit"
    _assert_only_better(heard)
    if schedule.status == "feasible":
        assert schedule.energy_j == verify(problem, schedule.actions, budget).energy_j
        # An improvement that arrives with the end of the time is returned, not announced.
        assert heard[-1].value is not None
        assert schedule.energy_j <= heard[-1].value
    else:
        assert not schedule.actions


@pytest.mark.slow
@both_engines
def test_progress_ends_with_bound_and_value_together(engine: EngineName) -> None:
    problem = training_chain(12)
    heard: list[Progress] = []
    options = SolverOptions(engine=engine, gap=0.0, threads=1)
    schedule = solve_graph(problem, tight(problem, 0.2), options, heard.append)
    _assert_only_better(heard)
    assert schedule.status == "optimal"
    assert heard[-1].value == schedule.energy_j
    assert heard[-1].bound == pytest.approx(schedule.energy_j)
    bounds = [progress.bound for progress in heard]
    assert bounds[0] != bounds[-1]


def _assert_only_better(heard: list[Progress]) -> None:
    values = [progress.value for progress in heard if progress.value is not None]
    bounds = [progress.bound for progress in heard if progress.bound is not None]
    seconds = [progress.seconds for progress in heard]
    assert heard
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert seconds == sorted(seconds)


@pytest.mark.slow
@both_engines
def test_dead_engine_loses_no_schedule(engine: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, budget = hard_problem()
    over = threading.Event()

    def kill_engines(mark: str) -> None:
        while not over.wait(0.05):
            for process in marked(mark):
                os.kill(process, signal.SIGKILL)

    with _no_process_left(monkeypatch) as mark:
        killer = threading.Thread(target=kill_engines, args=(mark,))
        killer.start()
        try:
            schedule = solve_graph(problem, budget, SolverOptions(engine=engine, time_limit_s=60.0))
        finally:
            over.set()
            killer.join()
    assert schedule.status == "feasible"
    assert schedule.notes == (
        f"the {engine} process was killed by SIGKILL; what was found and proven before is kept",
    )


_DRIVER = """
from solver.options import SolverOptions
from solver.solving.solving import solve_graph
from tests.support.graphs.graph_examples import hard_problem

def tell(progress):
    print("progress", flush=True)

schedule = solve_graph(*hard_problem(), SolverOptions(gap=0.0), tell)
print(schedule.model_dump_json(by_alias=True, exclude_none=True), flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_returns_the_best_so_far() -> None:
    with started_as_by_a_shell("-c", _DRIVER, stdout=subprocess.PIPE) as (process, mark):
        assert process.stdout is not None
        assert process.stdout.readline() == "progress\n"
        wait_until(lambda: len(marked(mark)) > 1)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    # An engine that was just being started ends by itself, once its pipe is closed.
    wait_until(lambda: not marked(mark))
    schedule = Schedule.model_validate_json(output.splitlines()[-1], strict=True)
    assert schedule.status in ("feasible", "no_solution")
    assert schedule.ended_by == "interrupted"
    if schedule.status == "feasible":
        _assert_sound(*hard_problem(), schedule)


# --- validity of bounds ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(problem_and_budget=tight_problems())
@examples(12)
def test_bound_for_an_order_refers_to_the_order_of_its_schedule(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    assume(least_energy_by_exhaustion(problem, budget) is not None)
    schedule = solve_graph(problem, budget, SolverOptions(gap=0.0, threads=1))
    in_graph_order = first_executions(schedule.actions) == tuple(op.name for op in problem.ops)
    if not schedule.restrictions:
        assert schedule.bound_covers == "every schedule, in whatever order its ops are computed"
        assert schedule.energy_bound_j == schedule.any_order_bound_j
    else:
        assert (OWN_ORDER in schedule.restrictions) == (not in_graph_order)


def _two_orders() -> tuple[CostedGraph, Budget]:
    """In the graph's order, a must be recomputed; in another one, nothing."""
    problem = graph(
        [
            op("a", "in", "x", energy_j=1.0),
            op("b", "in", "y", energy_j=0.5),
            op("d", "y", "s", energy_j=1.0),
            op("e", "x s", "out", energy_j=1.0),
        ],
        [
            tensor("in", 1),
            tensor("x", 10),
            tensor("y", 100),
            tensor("s", 1),
            tensor("out", 1, persist="ram"),
        ],
    )
    return problem, Budget(ram_bytes=105)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["compact", "poet", "auto"])
def test_a_start_in_another_order_is_not_proven_by_a_bound_for_the_graphs(
    formulation: FormulationName,
) -> None:
    """The start takes 4 J; the least is 4.5 J in the graph's order, and 3.5 J in any."""
    problem, budget = _two_orders()
    order = [Compute(op=name) for name in "bdaeb"]
    start = with_frees(problem, order)
    assert replay(problem, start).energy_j == 4.0
    options = SolverOptions(formulation=formulation, gap=0.0, threads=1, addresses=False)
    schedule = solve_graph(problem, budget, options, starts=[start])
    assert schedule.energy_j is not None
    assert schedule.energy_bound_j is not None
    assert schedule.energy_j == {"auto": 3.5}.get(formulation, 4.5)
    assert (schedule.status == "optimal") == (schedule.energy_bound_j == schedule.energy_j)


@pytest.mark.parametrize(("ending", "bound_j"), [("proven", 3.5), ("infeasible", 4.0)])
def test_a_proof_counts_only_for_the_schedule_that_it_meets(ending: Ending, bound_j: float) -> None:
    problem, budget = _two_orders()
    of_order = ScheduleClass(problem.order)
    outcome = Outcome(
        ending=ending,
        actions=with_frees(problem, [Compute(op=name) for name in "bdaeb"]),
        energy_j=4.0,
        budget=budget,
        claims=Claims((Claim(bound_j, budget), Claim(4.5, budget, of_order))),
        formulation="compact",
        engine="highs",
        version="",
        rounds=1,
        build_s=0.0,
    ).sound(0.0)
    assert outcome.ending == ("proven" if bound_j == 4.0 else "spent")
    assert outcome.ended_by == ("proven" if bound_j == 4.0 else None)
