"""A schedule by rule packs where no schedule near the best one does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.published import load_published
from networks.models import build_model
from solver.addresses import repair
from solver.addresses.packing import count_pairs
from solver.addresses.plan import AddressPlan, plan_addresses, with_addresses
from solver.addresses.repair import Packed
from solver.addresses.residencies import blocks_of, spans_of
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget
from solver.referee.addresses import verify_addresses
from solver.referee.referee import replay, verify
from solver.search.search import Progress
from solver.solving import packing, solving
from solver.solving.advice import Advice
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit
from tests.support.graphs.graph_strategies import examples, small_graphs


def test_schedule_by_rule_replaces_schedules_that_do_not_pack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = cost_graph(build_model("resnet8"), load_published("m4")).graph
    kept = replay(graph, keep_everything(graph))
    budget = Budget(ram_bytes=3 * kept.peak_bytes // 4)
    problem = Problem(graph, budget)
    wanted = page_everything(problem)
    too_large = plan_addresses(graph, keep_everything(graph), "all", kept.peak_bytes, 0.0)
    assert too_large.arena_bytes > budget.ram_bytes
    monkeypatch.setattr(
        packing, "fit_into_arena", lambda *_: Packed(wanted, too_large, ("does not pack",))
    )
    packed = packing.pack(problem, wanted, SolverOptions(), TimeLimit.after(60.0))
    assert packed.plan.arena_bytes <= budget.ram_bytes
    assert verify(graph, packed.actions, budget).energy_j < verify(graph, wanted, budget).energy_j
    verify_addresses(
        graph, packed.actions, packed.plan.resident_address, packed.plan.arena_bytes, "all"
    )
    assert "a greedy schedule packs" in packed.notes[0]


def test_tensors_are_paged_out_of_the_way_where_no_time_is_left_for_small_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = cost_graph(build_model("resnet8"), load_published("m4")).graph
    kept = replay(graph, keep_everything(graph))
    budget = Budget(ram_bytes=3 * kept.peak_bytes // 4)
    problem = Problem(graph, budget)
    wanted = greedy_schedule(problem, thorough=False)
    assert wanted is not None
    too_large = plan_addresses(graph, keep_everything(graph), "all", kept.peak_bytes, 0.0)
    monkeypatch.setattr(
        packing, "fit_into_arena", lambda *_: Packed(wanted, too_large, ("does not pack",))
    )
    # A greedy schedule for less RAM packs too, and takes more.
    monkeypatch.setattr(packing, "greedy_schedule", lambda *_, **__: None)
    packed = packing.pack(problem, wanted, SolverOptions(), TimeLimit.after(60.0))
    wanted_j = verify(graph, wanted, budget).energy_j
    everything_j = verify(graph, page_everything(problem), budget).energy_j
    assert wanted_j <= verify(graph, packed.actions, budget).energy_j < everything_j / 2
    verify_addresses(
        graph, packed.actions, packed.plan.resident_address, packed.plan.arena_bytes, "all"
    )
    assert "one that pages tensors out of the way packs" in packed.notes[0]


@pytest.mark.slow
@given(graph=small_graphs(), paged=st.booleans())
@examples(100)
def test_addresses_without_time_are_valid(graph: CostedGraph, paged: bool) -> None:
    everything = keep_everything(graph)
    budget = Budget(ram_bytes=replay(graph, everything).peak_bytes)
    actions = page_everything(Problem(graph, budget)) if paged else everything
    with TimeLimit.after(0.0).enforced():
        plan = plan_addresses(graph, actions, "all", 0, 0.0)
    placed = with_addresses(actions, plan)
    verify_addresses(graph, placed, plan.resident_address, plan.arena_bytes, "all")
    assert plan.bound_bytes <= plan.arena_bytes


@given(graph=small_graphs())
@examples(50)
def test_pairs_that_overlap_are_counted(graph: CostedGraph) -> None:
    shapes = spans_of(blocks_of(graph, keep_everything(graph), "all"))
    pairs = sum(
        one[0].start < other[-1].end and other[0].start < one[-1].end
        for one, other in combinations(shapes, 2)
    )
    assert count_pairs(shapes) == pairs


@pytest.mark.slow
def test_a_schedule_found_earlier_replaces_one_that_gets_no_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without paging, nothing can be paged out of the way."""
    graph = cost_graph(build_model("resnet8"), load_published("m4")).graph
    kept = replay(graph, keep_everything(graph))
    budget = Budget(ram_bytes=9 * kept.peak_bytes // 10, paging=False)
    problem = Problem(graph, budget)
    best, earlier = (
        greedy_schedule(Problem(graph, budget.model_copy(update={"ram_bytes": bytes_})))
        for bytes_ in (budget.ram_bytes, 9 * budget.ram_bytes // 10)
    )
    assert best is not None
    assert earlier is not None

    def planned(graph: CostedGraph, actions: Sequence[Action], *rest: Any, **more: Any) -> Any:
        plan = plan_addresses(graph, actions, *rest, **more)
        is_earlier = tuple(actions) == earlier
        return plan if is_earlier else replace(plan, arena_bytes=budget.ram_bytes + 1)

    monkeypatch.setattr(repair, "plan_addresses", planned)
    packed = repair.fit_into_arena(
        problem,
        best,
        lambda _: None,
        time.monotonic() + 2.0,
        0.0,
        earlier=(earlier,),
    )
    assert packed.plan.arena_bytes <= budget.ram_bytes
    assert "a schedule found earlier packs" in packed.notes[0]
    assert [each.do for each in packed.actions] == [each.do for each in earlier]


# --- interruptions --------------------------------------------------------------------------------


def interrupting(monkeypatch: pytest.MonkeyPatch, module: object, plans: range) -> list[int]:
    """Let these address plans of a module, counted from 0, be interrupted by Ctrl-C.

    Returns the numbers of the plans that have begun.
    """
    begun: list[int] = []

    def interrupted(*arguments: object) -> AddressPlan:
        begun.append(len(begun))
        if begun[-1] in plans:
            raise KeyboardInterrupt
        return plan_addresses(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "plan_addresses", interrupted)
    return begun


def resnet8_under_three_quarters() -> tuple[CostedGraph, Budget]:
    graph = cost_graph(build_model("resnet8"), load_published("m4")).graph
    peak_bytes = replay(graph, keep_everything(graph)).peak_bytes
    return graph, Budget(ram_bytes=3 * peak_bytes // 4)


@pytest.mark.slow
def test_ctrl_c_while_addresses_are_planned_leaves_a_schedule_with_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, budget = resnet8_under_three_quarters()
    interrupting(monkeypatch, repair, range(1))
    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=20.0, gap=0.9))
    assert schedule.arena_bytes is not None
    assert schedule.arena_bytes <= budget.ram_bytes
    verify(graph, schedule.actions, budget)


@pytest.mark.slow
def test_ctrl_c_while_schedules_by_rule_are_tried_leaves_the_best_that_packs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, budget = resnet8_under_three_quarters()
    wanted = page_everything(Problem(graph, budget))
    peak_bytes = replay(graph, keep_everything(graph)).peak_bytes
    too_large = plan_addresses(graph, keep_everything(graph), "all", peak_bytes, 0.0)
    monkeypatch.setattr(packing, "fit_into_arena", lambda *_: Packed(wanted, too_large, ("",)))
    begun = interrupting(monkeypatch, packing, range(1, 2))
    packed = packing.pack(Problem(graph, budget), wanted, SolverOptions(), TimeLimit.after(60.0))
    assert begun == [0, 1]
    assert packed.plan.arena_bytes <= budget.ram_bytes
    verify(graph, packed.actions, budget)


def test_a_second_ctrl_c_while_addresses_are_planned_leaves_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, budget = resnet8_under_three_quarters()
    interrupting(monkeypatch, repair, range(2))
    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=20.0, gap=0.9))
    assert schedule.arena_bytes is None
    assert any("interrupted before addresses were found" in note for note in schedule.notes)
    verify(graph, schedule.actions, budget)


def test_ctrl_c_leaves_the_schedules_found_earlier_for_the_time_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, budget = resnet8_under_three_quarters()
    seen: list[list[tuple[Action, ...]]] = []

    def interrupted(*arguments: Any) -> Packed:
        *others, earlier = arguments
        seen.append(list(earlier))
        if len(seen) == 1:
            raise KeyboardInterrupt
        return repair.fit_into_arena(*others, seen[-1])

    monkeypatch.setattr(packing, "fit_into_arena", interrupted)
    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=20.0, gap=0.9))
    verify(graph, schedule.actions, budget)
    first, second = seen
    assert first
    assert first == second


@pytest.mark.slow
def test_ctrl_c_late_in_the_planning_leaves_time_for_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for addresses after Ctrl-C begins with it, however long they took before."""
    graph, budget = resnet8_under_three_quarters()
    interrupting(monkeypatch, repair, range(1))
    monkeypatch.setattr(solving, "_PACKING_AFTER_CTRL_C_S", 3.0)
    pack, calls = solving.pack, []

    def late(*arguments: Any) -> Packed:
        calls.append(arguments)
        if len(calls) == 1:
            time.sleep(4.0)
        return pack(*arguments)

    monkeypatch.setattr(solving, "pack", late)
    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=20.0))
    assert schedule.arena_bytes is not None
    assert schedule.arena_bytes <= budget.ram_bytes


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in", "after"])
def test_ctrl_c_reaches_python_in_and_after_an_exact_search(when: str) -> None:
    """In a process of its own, which the system's handler would end."""
    program = f"""
import os, random, signal, threading, time
from ortools.sat.python import cp_model
from solver.addresses.exact import pack_exactly
from solver.addresses.packing import Packing
from solver.addresses.residencies import Span
draw = random.Random(1)
starts = [draw.randrange(200) for _ in range(400)]
shapes = [(Span(a, a + draw.randrange(5, 60), draw.randrange(1, 999)),) for a in starts]
packing = Packing(shapes)
limit = packing.bound if "{when}" == "in" else 10**6
interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
if "{when}" == "in":
    threading.Timer(1.0, interrupt).start()
try:
    pack_exactly(packing, limit, time.monotonic() + 60.0, 0)
    interrupt()
    time.sleep(5.0)
except KeyboardInterrupt:
    print("interrupted")
"""
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "interrupted"), ran.stderr
    assert time.monotonic() - began < 50


def test_ctrl_c_again_and_again_after_a_first_schedule_leaves_the_schedule() -> None:
    graph, budget = resnet8_under_three_quarters()

    def stop(progress: Progress) -> None:
        if progress.value is not None:
            signal.raise_signal(signal.SIGINT)

    schedule = solve_graph(graph, budget, SolverOptions(time_limit_s=20.0), stop)
    assert schedule.ended_by == "interrupted"
    verify(graph, schedule.actions, budget)


def test_ctrl_c_in_the_advice_leaves_that_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = resnet8_under_three_quarters()

    def interrupted(*_: object) -> Advice:
        raise KeyboardInterrupt

    monkeypatch.setattr(solving, "advise", interrupted)
    assert solve_graph(graph, Budget(ram_bytes=1000), SolverOptions()).status == "infeasible"
