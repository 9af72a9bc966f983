"""Transfers beside compute: the referee's clock, and schedules that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from devices.description import catalog_names, load_description
from devices.library import resolve_profile
from networks.models import build_model
from solver.addresses.plan import Addressed, plan_addresses, with_addresses
from solver.addresses.repair import Packed
from solver.costing.costing import cost_graph
from solver.formulations.compact.formulation import CompactFormulation
from solver.options import FormulationName, SolverOptions
from solver.overlap.overlap import meet_deadline, one_at_a_time, overlap_transfers
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut
from solver.referee.referee import RefereeError, Replay, replay, verify
from solver.search.search import Search
from solver.solving import packing
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit
from tests.support.graphs.graph_examples import actions, graph, op, tensor, two_layers
from tests.support.graphs.graph_strategies import (
    action_lists,
    examples,
    least_energy_by_exhaustion,
    small_graphs,
    tight_problems,
)
from tests.support.graphs.overlap_exhaustion import least_energy_beside_ops


def _with_dma(
    problem: CostedGraph, processor_share: float | None = None, handover_s: float | None = None
) -> CostedGraph:
    return problem.model_copy(
        update={
            "asynchronous_transfers": True,
            "processor_share": processor_share,
            "handover_s": handover_s,
        }
    )


def _beside(text: str) -> tuple[Action, ...]:
    """``actions``, where ``begin_in`` and ``begin_out`` stand for asynchronous transfers."""
    plain = actions(text.replace("begin_", "page_"))
    return tuple(
        action.model_copy(update={"asynchronous": True})
        if part.strip().startswith("begin_")
        else action
        for action, part in zip(plain, text.split(";"), strict=True)
    )


def _clock(result: Replay) -> list[tuple[float, float, float]]:
    """Start, duration and preceding wait in seconds of each action with a duration or a wait."""
    return [
        (m.start_s, m.time_s, m.waited_s)
        for m in result.moments
        if m.time_s or m.waited_s or m.transfer_start_s is not None
    ]


def _transfers(result: Replay) -> list[tuple[float | None, float | None]]:
    return [
        (m.transfer_start_s, m.transfer_end_s)
        for m in result.moments
        if isinstance(m.action, PageIn | PageOut)
    ]


# --- the clock ------------------------------------------------------------------------------------


def test_a_transfer_runs_beside_the_actions_after_it() -> None:
    result = replay(
        _with_dma(two_layers()),
        _beside(
            "compute conv; free x; compute relu; begin_out r; compute linear; free r;"
            "page_in r; compute grad; free y; free r; compute update; free g"
        ),
    )
    assert _clock(result) == [
        (0.0, 1.0, 0.0),  # conv
        (1.0, 0.5, 0.0),  # relu
        (1.5, 0.0, 0.0),  # the page-out of r takes the processor no time
        (1.5, 2.0, 0.0),  # linear, beside it
        (3.5, 0.5, 0.0),  # the page-in of r, as before
        (4.0, 3.0, 0.0),  # grad
        (7.0, 1.0, 0.0),  # update
    ]
    assert _transfers(result) == [(1.5, 1.75), (3.5, 4.0)]
    assert result.time_s == 8.0
    assert result.hidden_s == 0.25
    assert result.energy_j == 71.0


def test_op_waits_for_the_page_in_of_its_input() -> None:
    result = replay(
        _with_dma(_two_parameters()),
        _beside("begin_in u; begin_in v; compute first; free u; compute second; free v"),
    )
    # u is paged in from 0 to 3, then v until 7; first runs from 3 to 5.
    assert _transfers(result) == [(0.0, 3.0), (3.0, 7.0)]
    assert _clock(result) == [
        (0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (3.0, 2.0, 3.0),
        (7.0, 1.0, 2.0),
    ]
    assert result.time_s == 8.0
    assert result.hidden_s == 2.0


def test_a_synchronous_transfer_waits_for_the_channel() -> None:
    result = replay(
        _with_dma(_two_parameters()),
        _beside("begin_in v; page_in u; compute first; free u; compute second; free v"),
    )
    assert _transfers(result) == [(0.0, 4.0), (4.0, 7.0)]
    assert _clock(result) == [(0.0, 0.0, 0.0), (4.0, 3.0, 4.0), (7.0, 2.0, 0.0), (9.0, 1.0, 0.0)]


def test_a_transfer_takes_its_share_of_the_processor_when_it_is_handed_over() -> None:
    result = replay(
        _with_dma(_two_parameters(), 0.25),
        _beside("begin_in u; begin_in v; compute first; free u; compute second; free v"),
    )
    # u is paged in from 0 to 3; v is handed over at 0.75 and follows until 7.
    assert _transfers(result) == [(0.0, 3.0), (3.0, 7.0)]
    assert _clock(result) == [
        (0.0, 0.75, 0.0),
        (0.75, 1.0, 0.0),
        (3.0, 2.0, 1.25),  # 1.75 s are spent on both transfers, and first waits for u
        (7.0, 1.0, 2.0),
    ]
    assert result.time_s == 8.0
    assert result.hidden_s == 2.0


def test_the_processors_share_of_a_transfer_lengthens_the_step() -> None:
    steps = (
        "compute conv; free x; compute relu; begin_out r; compute linear; free r;"
        "page_in r; compute grad; free y; free r; compute update; free g"
    )
    result = replay(_with_dma(two_layers(), 0.5), _beside(steps))
    assert _transfers(result) == [(1.5, 1.75), (3.625, 4.125)]
    assert result.time_s == 8.125
    assert result.hidden_s == 0.125
    assert result.energy_j == 71.0


@pytest.mark.parametrize(
    ("handover_s", "clock"),
    [
        # u takes the processor for 0.5 + 3 / 4 s, v for 0.5 + 4 / 4 s.
        (0.5, [(0.0, 1.25, 0.0), (1.25, 1.5, 0.0), (3.0, 2.0, 0.25), (7.0, 1.0, 2.0)]),
        # Handing over takes the processor no longer than the transfers.
        (9.0, [(0.0, 3.0, 0.0), (3.0, 4.0, 0.0), (7.0, 2.0, 0.0), (9.0, 1.0, 0.0)]),
    ],
)
def test_handing_a_transfer_over_takes_the_processor_besides(
    handover_s: float, clock: list[tuple[float, float, float]]
) -> None:
    result = replay(
        _with_dma(_two_parameters(), 0.25, handover_s),
        _beside("begin_in u; begin_in v; compute first; free u; compute second; free v"),
    )
    assert _transfers(result) == [(0.0, 3.0), (3.0, 7.0)]
    assert _clock(result) == clock


def test_only_transfers_that_take_longer_than_handing_them_over_run_beside_ops() -> None:
    problem = _with_dma(_two_parameters(), handover_s=3.0)
    plain = actions("page_in u; page_in v; compute first; free u; compute second; free v")
    found = overlap_transfers(Problem(problem, Budget(ram_bytes=100)), plain)
    assert {a.tensor: a.asynchronous for a in found if isinstance(a, PageIn)} == {
        "u": False,
        "v": True,
    }
    assert replay(problem, found).time_s == 9.0


@pytest.mark.parametrize("deadline_s", [None, 20.0])
def test_transfers_that_gain_nothing_run_alone_where_the_deadline_is_met(
    deadline_s: float | None,
) -> None:
    problem = Problem(
        _with_dma(_two_parameters(), handover_s=30.0),
        Budget(ram_bytes=100, deadline_s=deadline_s),
    )
    beside = _beside("begin_in u; compute first; free u; begin_in v; compute second; free v")
    found = meet_deadline(problem, beside)
    assert found == _beside("page_in u; compute first; free u; page_in v; compute second; free v")
    assert replay(problem.graph, found).time_s == replay(problem.graph, beside).time_s == 10.0


def _two_parameters() -> CostedGraph:
    return graph(
        [
            op("first", "u", "a", time_s=2.0),
            op("second", "v a", "b", time_s=1.0, in_place={"b": "a"}),
        ],
        [
            tensor("u", 1, kind="parameter", home="storage", page_in=(3.0, 1.0)),
            tensor("v", 1, kind="parameter", home="storage", page_in=(4.0, 1.0)),
            tensor("a", 1),
            tensor("b", 1, persist="ram"),
        ],
    )


def test_freeing_or_overwriting_waits_for_the_page_out() -> None:
    problem = _with_dma(
        graph(
            [op("make", "", "a"), op("over", "a", "b", in_place={"b": "a"}), op("end", "", "c")],
            [tensor("a", 1, page_out=(5.0, 1.0)), tensor("b", 1), tensor("c", 1)],
        )
    )
    overwritten = replay(
        problem, _beside("compute make; begin_out a; compute over; free b; compute end; free c")
    )
    assert overwritten.moments[2].waited_s == 5.0
    assert overwritten.time_s == 8.0
    other = _with_dma(
        graph(
            [op("make", "", "b"), op("end", "", "c", time_s=2.0)],
            [tensor("b", 1, page_out=(5.0, 1.0)), tensor("c", 1)],
        )
    )
    at_once = replay(other, _beside("compute make; begin_out b; free b; compute end; free c"))
    assert [m.waited_s for m in at_once.moments] == [0.0, 0.0, 5.0, 0.0, 0.0]
    assert at_once.time_s == 8.0
    later = replay(other, _beside("compute make; begin_out b; compute end; free c; free b"))
    assert [m.waited_s for m in later.moments] == [0.0, 0.0, 0.0, 0.0, 3.0]
    assert later.time_s == 6.0
    # A later free keeps the bytes in RAM meanwhile.
    assert (at_once.peak_bytes, later.peak_bytes) == (1, 2)


def test_page_in_starts_after_the_page_out_of_the_same_tensor() -> None:
    problem = _with_dma(
        graph(
            [op("make", "", "a"), op("use", "a", "b")],
            [tensor("a", 1, page_out=(5.0, 1.0), page_in=(2.0, 1.0)), tensor("b", 1)],
        )
    )
    result = replay(
        problem,
        _beside("compute make; begin_out a; free a; begin_in a; compute use; free a; free b"),
    )
    assert _transfers(result) == [(1.0, 6.0), (6.0, 8.0)]
    assert result.time_s == 9.0


def test_step_ends_with_its_last_transfer() -> None:
    problem = _with_dma(
        graph(
            [op("make", "", "a")],
            [tensor("a", 1, persist="ram", page_out=(5.0, 1.0))],
        )
    )
    assert replay(problem, _beside("compute make; begin_out a")).time_s == 6.0


def test_a_transfer_beside_compute_needs_dma() -> None:
    with pytest.raises(RefereeError) as refused:
        replay(_two_parameters(), _beside("begin_in u; compute first"))
    assert (refused.value.action, refused.value.reason) == (
        0,
        "moves 'u' asynchronously, which storage without DMA cannot",
    )


def test_only_a_tensor_being_paged_out_may_be_freed_late() -> None:
    problem = _with_dma(
        graph(
            [op("make", "", "a"), op("use", "a", "b"), op("end", "", "c")],
            [tensor("a", 1, page_out=(1.0, 1.0)), tensor("b", 1), tensor("c", 1)],
        )
    )
    text = "compute make; {} a; compute use; free b; compute end; free c; free a"
    replay(problem, _beside(text.format("begin_out")))
    with pytest.raises(RefereeError, match="frees 'a' late"):
        replay(problem, _beside(text.format("page_out")))
    with pytest.raises(RefereeError, match="still in RAM"):
        replay(problem, _beside(text.format("begin_out"))[:-1])


# --- making transfers asynchronous ----------------------------------------------------------------


def _overlapped(problem: CostedGraph, plain: Sequence[Action], ram_bytes: int) -> Replay:
    budget = Budget(ram_bytes=ram_bytes)
    found = overlap_transfers(Problem(problem, budget), plain)
    return verify(problem, found, budget)


def test_page_out_runs_beside_later_ops_if_ram_has_room() -> None:
    problem = _with_dma(
        graph(
            [op("make", "", "a"), op("next", "", "b", time_s=3.0), op("use", "a b", "c")],
            [
                tensor("a", 4, page_out=(2.0, 1.0), page_in=(1.0, 1.0)),
                tensor("b", 4),
                tensor("c", 4),
            ],
        )
    )
    plain = actions(
        "compute make; page_out a; free a; compute next; page_in a; compute use; free a; free b;"
        "free c"
    )
    assert replay(problem, plain).time_s == 1 + 2 + 3 + 1 + 1
    # With room for both, a is paged out beside `next`; it is paged in only after it was freed.
    assert _overlapped(problem, plain, 12).time_s == 1 + 3 + 1 + 1
    # Without that room, `next` waits until a has been paged out.
    tight = _with_dma(
        problem.model_copy(
            update={
                "ops": (
                    problem.ops[0],
                    problem.ops[1].model_copy(update={"workspace_bytes": 8}),
                    problem.ops[2],
                )
            }
        )
    )
    assert _overlapped(tight, plain, 12).time_s == 1 + 2 + 3 + 1 + 1


def test_page_ins_start_early_if_ram_has_room() -> None:
    names = "abcd"
    problem = _with_dma(
        graph(
            [op(f"use_{n}", n, f"{n}1", time_s=2.0) for n in names],
            [tensor(n, 4, home="storage", page_in=(2.0, 1.0)) for n in names]
            + [tensor(f"{n}1", 1) for n in names],
        )
    )
    plain = actions(";".join(f"page_in {n}; compute use_{n}; free {n}1; free {n}" for n in names))
    assert replay(problem, plain).time_s == 16.0
    assert _overlapped(problem, plain, 9).time_s == 10.0  # nothing runs during the first transfer
    assert _overlapped(problem, plain, 8).time_s == 16.0  # one byte too few for two of them


def test_only_the_page_out_whose_bytes_are_needed_is_waited_for() -> None:
    problem = _with_dma(
        graph(
            [
                op("make_a", "", "a"),
                op("work", "", "u", time_s=2.0),
                op("make_b", "u", "b"),
                op("crowd", "u", "v", time_s=2.0, workspace_bytes=8),
                op("use", "a b v", "w"),
            ],
            [tensor(n, 4, page_out=(2.0, 1.0), page_in=(1.0, 1.0)) for n in "ab"]
            + [tensor(n, 1) for n in "uvw"],
        )
    )
    plain = actions(
        "compute make_a; page_out a; free a; compute work; compute make_b; page_out b; free b;"
        "compute crowd; free u; page_in a; page_in b; compute use; free w; free a; free b; free v"
    )
    assert replay(problem, plain).time_s == 13.0
    # a is paged out beside `work`; b has no room beside `crowd`, and the page-ins have none either.
    assert _overlapped(problem, plain, 13).time_s == 11.0


def test_only_page_ins_with_room_start_early() -> None:
    sizes = {"a": 4, "b": 4, "c": 6, "d": 4}
    problem = _with_dma(
        graph(
            [op(f"use_{n}", n, f"{n}1", time_s=2.0) for n in sizes],
            [tensor(n, s, home="storage", page_in=(2.0, 1.0)) for n, s in sizes.items()]
            + [tensor(f"{n}1", 1) for n in sizes],
        )
    )
    plain = actions(";".join(f"page_in {n}; compute use_{n}; free {n}1; free {n}" for n in sizes))
    assert replay(problem, plain).time_s == 16.0
    assert _overlapped(problem, plain, 10).time_s == 14.0  # b beside `use_a`


def test_schedule_without_dma_or_transfers_is_unchanged() -> None:
    budget = Budget(ram_bytes=25)
    paged = actions(
        "compute conv; free x; compute relu; page_out r; compute linear; free r;"
        "page_in r; compute grad; free y; free r; compute update; free g"
    )
    assert overlap_transfers(Problem(two_layers(), budget), paged) == paged
    kept = actions(
        "compute conv; free x; compute relu; compute linear; compute grad; free y; free r;"
        "compute update; free g"
    )
    assert overlap_transfers(Problem(_with_dma(two_layers()), budget), kept) == kept


_TIMES_S = st.sampled_from([0.0, 0.5, 1.0, 3.0])
SHARES = st.sampled_from([None, 0.25, 1.0])
"""Shares of its time for which a transfer beside ops takes the processor."""
HANDOVERS_S = st.sampled_from([None, 0.25, 9.0])
"""Seconds of the processor for handing it over."""


@st.composite
def _graphs_with_dma(draw: st.DrawFn) -> CostedGraph:
    problem = draw(small_graphs())
    ops = [o.model_copy(update={"time_s": draw(_TIMES_S)}) for o in problem.ops]
    tensors = []
    for t in problem.tensors:
        costs = {
            name: cost.model_copy(update={"time_s": draw(_TIMES_S)})
            for name, cost in (("page_out", t.page_out), ("page_in", t.page_in))
            if cost is not None
        }
        tensors.append(t.model_copy(update=costs))
    changed = problem.model_copy(update={"ops": tuple(ops), "tensors": tuple(tensors)})
    return _with_dma(changed, draw(SHARES), draw(HANDOVERS_S))


@given(data=st.data(), problem=_graphs_with_dma(), above=st.integers(0, 8))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_overlap_is_never_slower_and_has_the_same_actions_within_budget(
    data: st.DataObject, problem: CostedGraph, above: int
) -> None:
    plain = with_frees(problem, data.draw(action_lists(problem)))
    before = replay(problem, plain)
    budget = Budget(ram_bytes=before.peak_bytes + above)
    found = overlap_transfers(Problem(problem, budget), plain)
    after = verify(problem, found, budget)
    assert after.time_s <= before.time_s
    assert after.energy_j == pytest.approx(before.energy_j)
    assert _done(found) == _done(plain)
    computed = [action for action in plain if isinstance(action, Compute)]
    assert [action for action in found if isinstance(action, Compute)] == computed
    moved_s = sum(m.transfer_s for m in after.moments)
    busy_s = sum(_op_time_s(problem, action) for action in computed)
    busy_s += sum(problem.processor_time_s(m.transfer_s) for m in after.moments)
    assert after.time_s >= max(busy_s, moved_s) - 1e-9


@given(data=st.data(), problem=_graphs_with_dma())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_transfer_of_a_valid_schedule_may_be_asynchronous(
    data: st.DataObject, problem: CostedGraph
) -> None:
    actions = data.draw(action_lists(problem))
    beside = [
        action.model_copy(update={"asynchronous": data.draw(st.booleans())})
        if isinstance(action, PageIn | PageOut)
        else action
        for action in actions
    ]
    plain, other = (replay(problem, with_frees(problem, a)) for a in (actions, beside))
    assert other.time_s <= plain.time_s + 1e-9
    assert other.hidden_s == pytest.approx(plain.time_s - other.time_s)
    assert [m.bytes_during for m in other.moments] == [m.bytes_during for m in plain.moments]


@pytest.mark.slow
@given(data=st.data(), problem=_graphs_with_dma())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_what_gains_nothing_runs_alone_and_nothing_takes_longer(
    data: st.DataObject, problem: CostedGraph
) -> None:
    beside = [
        action.model_copy(update={"asynchronous": data.draw(st.booleans())})
        if isinstance(action, PageIn | PageOut)
        else action
        for action in data.draw(action_lists(problem))
    ]
    before = replay(problem, with_frees(problem, beside))
    found = meet_deadline(
        Problem(problem, Budget(ram_bytes=before.peak_bytes)), with_frees(problem, beside)
    )
    after = replay(problem, found)
    assert after.time_s == before.time_s
    assert after.peak_bytes <= before.peak_bytes
    assert _done(found) == _done(with_frees(problem, beside))
    for moment in after.moments:
        works_throughout = problem.processor_time_s(moment.transfer_s) >= moment.transfer_s > 0
        assert not (
            works_throughout and moment.is_beside_ops and moment.transfer_start_s == moment.start_s
        )


def _op_time_s(problem: CostedGraph, action: Compute) -> float:
    return next(o.time_s for o in problem.ops if o.name == action.op)


def _done(found: Sequence[Action]) -> Counter[tuple[str, str]]:
    return Counter(
        (action.do, action.op if isinstance(action, Compute) else action.tensor)
        for action in found
        if not isinstance(action, Free)
    )


# --- solving --------------------------------------------------------------------------------------

EXACT = SolverOptions(gap=0.0, threads=1)


def _paging_or_nothing() -> tuple[CostedGraph, Budget]:
    """A problem whose ops take 8 s and which must page ``a`` out and in for 2 s each.

    ``a`` cannot be recomputed.
    """
    problem = graph(
        [
            op("make", "", "a", time_s=2.0, recomputable=False),
            op("grow", "a", "b", time_s=2.0, workspace_bytes=2),
            op("shrink", "b", "c", time_s=2.0, workspace_bytes=6),
            op("last", "a c", "d", time_s=2.0),
        ],
        [
            tensor("a", 4, page_out=(2.0, 1.0), page_in=(2.0, 1.0)),
            tensor("b", 4),
            tensor("c", 1),
            tensor("d", 1),
        ],
    )
    return _with_dma(problem), Budget(ram_bytes=11)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["compact", "poet"])
def test_overlap_meets_a_deadline_that_no_synchronous_schedule_meets(
    formulation: FormulationName,
) -> None:
    problem, budget = _paging_or_nothing()
    hurried = budget.model_copy(update={"deadline_s": 10.0})
    options = SolverOptions(formulation=formulation, order="given", gap=0.0, threads=1)
    assert least_energy_by_exhaustion(problem, hurried) is None
    assert least_energy_beside_ops(problem, hurried) == 6.0
    schedule = solve_graph(problem, hurried, options)
    assert (schedule.status, schedule.energy_j, schedule.energy_bound_j) == ("optimal", 6.0, 6.0)
    # The page-out is hidden; the page-in has no room beside `shrink`.
    assert schedule.time_s == 10.0
    assert verify(problem, schedule.actions, hurried).hidden_s == 2.0


def test_schedules_that_replace_one_without_addresses_meet_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Annealing counts on transfers beside ops, and leaves it to others to make them so."""
    problem, budget = _paging_or_nothing()
    hurried = Problem(problem, budget.model_copy(update={"deadline_s": 10.0}))
    alone = actions(
        "compute make; page_out a; compute grow; free a; compute shrink; free b; page_in a;"
        "compute last; free a; free c; free d"
    )
    assert verify(problem, alone, budget).time_s == 12.0
    beside = meet_deadline(hurried, alone)
    offered: list[tuple[Action, ...]] = []

    def fit(_: Problem, found: tuple[Action, ...], again: Any, *rest: Any) -> Packed:
        offered.extend((again(budget.ram_bytes), rest[-2].actions))
        plan = plan_addresses(problem, found, "all", budget.ram_bytes, 0.0)
        return Packed(with_addresses(found, plan), plan, ())

    monkeypatch.setattr(packing, "fit_into_arena", fit)
    monkeypatch.setattr(packing, "_annealed", lambda *_: alone)
    spare = Addressed(alone, plan_addresses(problem, alone, "all", budget.ram_bytes, 0.0))
    packing.pack(hurried, beside, SolverOptions(), TimeLimit.after(20.0), spare=spare)
    assert [verify(problem, each, hurried.budget).time_s for each in offered] == [10.0, 10.0]


def test_overlap_shortens_the_step_without_a_deadline() -> None:
    problem, budget = _paging_or_nothing()
    unhurried = solve_graph(problem, budget, EXACT)
    assert (unhurried.status, unhurried.energy_j, unhurried.time_s) == ("optimal", 6.0, 10.0)
    without_dma = problem.model_copy(update={"asynchronous_transfers": False})
    assert solve_graph(without_dma, budget, EXACT).time_s == 12.0


@pytest.mark.slow
def test_only_proven_deadlines_are_called_infeasible() -> None:
    problem, budget = _paging_or_nothing()
    options = SolverOptions(formulation="compact", order="given", gap=0.0, threads=1)
    too_early = budget.model_copy(update={"deadline_s": 7.9})
    impossible = solve_graph(problem, too_early, options)
    assert impossible.status == "infeasible"
    assert impossible.smallest_deadline_s == 10.0
    # The program does not model that the page-in has no room beside an op.
    unknown = solve_graph(problem, budget.model_copy(update={"deadline_s": 9.0}), options)
    assert unknown.status == "no_solution"
    assert any("not proven" in note for note in unknown.notes)


@pytest.mark.slow
def test_fastest_schedule_counts_overlapping_time_once() -> None:
    problem, budget = _paging_or_nothing()
    search = Search(Problem(problem, budget), "time", EXACT, bound=0.0)
    search.run(float("inf"))
    # Computing alone takes 8 s.
    assert (search.value, search.bound) == (10.0, 8.0)
    assert search.actions is not None
    assert verify(problem, search.actions, budget).time_s == 10.0


@pytest.mark.slow
@pytest.mark.usefixtures("_kept_engines")
@given(data=st.data(), problem_and_budget=tight_problems())
@examples(5)
def test_the_bound_holds_for_every_timing(
    data: st.DataObject, problem_and_budget: tuple[CostedGraph, Budget]
) -> None:
    plain, budget = problem_and_budget
    slack_s = data.draw(st.sampled_from([0.0, 1.0, 2.0]))
    budget = budget.model_copy(update={"deadline_s": len(plain.ops) + slack_s})
    problem = _with_dma(plain, data.draw(SHARES), data.draw(HANDOVERS_S))
    least_j = least_energy_beside_ops(problem, budget)
    assume(least_j is not None and least_j > _least_j(problem))
    assert least_j is not None
    search = Search(Problem(problem, budget), "energy", EXACT, bound=0.0)
    ending = search.run(float("inf"))
    assert ending != "infeasible"
    assert search.bound is not None
    assert search.bound <= least_j + 1e-6
    if search.actions is not None:
        found_j = verify(problem, search.actions, budget).energy_j
        assert found_j >= least_j - 1e-6


def _least_j(problem: CostedGraph) -> float:
    return sum(o.energy_j for o in problem.ops)


def test_schedule_with_asynchronous_transfers_can_start_a_search() -> None:
    problem, budget = _paging_or_nothing()
    found = solve_graph(problem, budget, EXACT).actions
    plain = one_at_a_time(Problem(problem, budget), found)
    assert not any(isinstance(s, PageIn | PageOut) and s.asynchronous for s in plain)
    assert verify(problem, plain, budget).time_s == 12.0
    assert CompactFormulation(Problem(problem, budget)).encode(plain) is not None


# --- DMA in descriptions ------------------------------------------------------------------------


def test_catalogue_states_which_boards_have_dma() -> None:
    storages = {name: load_description(name).storage for name in catalog_names()}
    without = {name for name, storage in storages.items() if storage is None or not storage.dma}
    emulated = {name for name in storages if name.startswith("emulated-")}
    assert without == {"mkr1000", "stm32f4-discovery"} | emulated


def test_costed_graph_repeats_dma_of_its_profile() -> None:
    profile = resolve_profile("a72")
    assert profile.storage is not None
    with_dma = profile.model_copy(
        update={"storage": profile.storage.model_copy(update={"dma": True})}
    )
    model = build_model("linear", 1, "sgd")
    assert not cost_graph(model, profile).graph.asynchronous_transfers
    assert cost_graph(model, with_dma).graph.asynchronous_transfers


def test_a_tensor_that_is_overwritten_while_it_is_paged_out_comes_back_in_time() -> None:
    """It has left RAM without a free; its next stay there ends with one right after its last use.

    ``x`` and ``y`` do not fit beside the workspace of ``C``, and ``x`` cannot be computed again.
    """
    problem = graph(
        [
            op("A", "", "x", recomputable=False),
            op("B", "x", "y", energy_j=9.0),
            op("K", "x", "z", in_place={"z": "x"}, recomputable=False),
            op("C", "z", "w", workspace_bytes=10, recomputable=False),
            op("D", "y w", "d"),
        ],
        [
            tensor("x", 4, page_out=(0.5, 0.1), page_in=(0.5, 0.1)),
            *(tensor("y", 10), tensor("z", 4), tensor("w", 1), tensor("d", 1)),
        ],
    ).model_copy(update={"asynchronous_transfers": True})
    budget = Budget(ram_bytes=16, deadline_s=20.0)
    schedule = solve_graph(problem, budget, SolverOptions(time_limit_s=20.0))
    assert schedule.status == "optimal"
    verify(problem, schedule.actions, budget)
    assert [a.op for a in schedule.actions if isinstance(a, Compute)] == ["A", "K", "C", "B", "D"]
