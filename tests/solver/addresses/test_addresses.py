"""Address plans, checked by a referee that is independent of the planner; proofs and repairs.

A schedule that cannot pack is proven not to, and repaired.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plots.arena import arena
from solver.addresses import plan as plan_module
from solver.addresses import repair as repair_module
from solver.addresses.first_fit import FirstFit
from solver.addresses.packing import Packing
from solver.addresses.plan import Addressed, AddressPlan, plan_addresses, with_addresses
from solver.addresses.repair import Packed, fit_into_arena
from solver.addresses.residencies import Span, blocks_of, spans_of
from solver.baselines.scheduled import schedule_by_baseline, schedules_by_baseline
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.files.figures import wrong_figures
from solver.options import Coverage, SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, PageIn
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, replay
from solver.solving.solving import solve_graph
from tests.support.graphs.graph_examples import (
    actions,
    graph,
    op,
    tensor,
    tight,
    training_chain,
    two_layers,
    unlucky,
)
from tests.support.graphs.graph_strategies import (
    action_lists,
    examples,
    small_graphs,
    tight_problems,
)

SMALLEST = 0  # an arena limit that no arena meets


def first_fit(packing: Packing, order: list[int]) -> list[int]:
    orders = FirstFit(packing, target_bytes=0)
    orders.place(order)
    return orders.best[1]


def _soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def _planned(
    problem: CostedGraph,
    schedule: tuple[Action, ...],
    covers: Coverage = "all",
    limit_bytes: int = SMALLEST,
) -> tuple[AddressPlan, tuple[Action, ...]]:
    """A plan that the referee of addresses accepts, and the actions with its addresses."""
    plan = plan_addresses(problem, schedule, covers, limit_bytes, _soon())
    addressed = with_addresses(schedule, plan)
    verify_addresses(problem, addressed, plan.resident_address, plan.arena_bytes, covers)
    return plan, addressed


# --- plans ----------------------------------------------------------------------------------------


def test_addresses_by_pencil_and_paper() -> None:
    schedule = actions(
        "compute conv; free x; compute relu; compute linear;"
        "compute grad; free y; free r; compute update; free g"
    )
    plan, addressed = _planned(two_layers(), schedule)
    # x 10, w 4, a 6 and 5 of workspace while conv runs; no other moment needs more.
    assert plan.arena_bytes == plan.bound_bytes == 25
    assert plan.fragmentation == 0
    assert set(plan.resident_address) == {"x", "w"}
    by_op = {action.op: action for action in addressed if isinstance(action, Compute)}
    assert by_op["conv"].address is not None
    assert by_op["conv"].workspace_address is not None
    # In place: at the address of the overwritten tensor.
    assert by_op["relu"].address == {"r": by_op["conv"].address["a"]}
    assert by_op["update"].address == {"w1": plan.resident_address["w"]}
    assert by_op["relu"].workspace_address is None


@pytest.mark.slow
@given(data=st.data())
@examples(150)
def test_every_valid_schedule_gets_addresses_that_hold(data: st.DataObject) -> None:
    problem = data.draw(small_graphs())
    schedule = with_frees(problem, data.draw(action_lists(problem)))
    plan, addressed = _planned(problem, schedule)
    peak_bytes = replay(problem, schedule).peak_bytes
    assert peak_bytes <= plan.bound_bytes <= plan.arena_bytes
    assert replay(problem, addressed).peak_bytes == peak_bytes


@pytest.mark.slow
@given(problem_and_budget=tight_problems())
@examples(40)
def test_every_method_gets_addresses_that_hold(
    problem_and_budget: tuple[CostedGraph, Budget],
) -> None:
    problem, budget = problem_and_budget
    indexed = Problem(problem, budget)
    greedy = greedy_schedule(indexed)
    for schedule in (keep_everything(problem), page_everything(indexed), greedy):
        if schedule is not None:
            plan, _ = _planned(problem, schedule)
            assert replay(problem, schedule).peak_bytes <= plan.bound_bytes <= plan.arena_bytes


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("seed", [1, 2])
def test_arena_of_a_solved_schedule_fits_its_budget(seed: int, share: float) -> None:
    problem = training_chain(10, seed=seed)
    budget = tight(problem, share)
    schedule = solve_graph(problem, budget, SolverOptions(gap=0.05, threads=1))
    assert schedule.arena_bytes is not None
    assert schedule.arena_bound_bytes is not None
    assert schedule.resident_address is not None
    assert schedule.peak_bytes is not None
    assert schedule.peak_bytes <= schedule.arena_bound_bytes <= schedule.arena_bytes
    assert schedule.arena_bytes <= budget.ram_bytes
    verify_addresses(
        problem, schedule.actions, schedule.resident_address, schedule.arena_bytes, budget.covers
    )


def test_tensors_outside_the_budget_are_not_in_the_arena() -> None:
    problem = two_layers()
    schedule = keep_everything(problem)
    plan, addressed = _planned(problem, schedule, "activations")
    named = {name for s in addressed if isinstance(s, Compute) for name in s.address or {}}
    assert named == {"a", "r", "y"}
    assert set(plan.resident_address) == {"x"}
    assert plan.arena_bytes == replay(problem, schedule, "activations").peak_bytes


def test_plan_within_the_limit_is_not_improved() -> None:
    problem = training_chain(30)
    schedule = keep_everything(problem)
    smallest, _ = _planned(problem, schedule)
    roomy, _ = _planned(problem, schedule, limit_bytes=2 * smallest.arena_bytes)
    assert smallest.arena_bytes < roomy.arena_bytes
    assert roomy.arena_bytes <= 2 * smallest.arena_bytes


# --- in place -------------------------------------------------------------------------------------


def _in_place(before: int, after: int) -> tuple[CostedGraph, tuple[Action, ...]]:
    """``b`` overwrites ``a``; ``early`` is in RAM together with ``a``, ``late`` with ``b``."""
    problem = graph(
        [
            op("make", "early", "a"),
            op("turn", "a", "b", in_place={"b": "a"}),
            op("grow", "b", "late"),
            op("end", "b late", "y"),
        ],
        [
            tensor("early", 10 - before, home="ram"),
            tensor("a", before),
            tensor("b", after),
            tensor("late", 10 - after),
            tensor("y", 0),
        ],
    )
    return problem, keep_everything(problem)


@pytest.mark.parametrize(("before", "after"), [(4, 4), (3, 7), (7, 3), (1, 9)])
def test_size_of_a_block_changes_with_its_tensor_in_place(before: int, after: int) -> None:
    problem, schedule = _in_place(before, after)
    plan, _ = _planned(problem, schedule)
    assert [block.bytes for block in blocks_of(problem, schedule, "all")] == [
        10 - before,
        max(before, after),
        10 - after,
    ]
    assert plan.arena_bytes == plan.bound_bytes == replay(problem, schedule).peak_bytes == 10
    # First fit alone shows it: the others lie right above the block's size at their time.
    packing = Packing(spans_of(blocks_of(problem, schedule, "all")))
    assert first_fit(packing, [1, 0, 2]) == [before, 0, after]


def test_a_block_that_cannot_change_size_beside_another_raises_the_bound() -> None:
    """The blocks change from 1 to 9 bytes and back, and never take more than 10 together.

    Whichever lies below, the other must lie above its 9 bytes.
    """
    shapes = [(Span(0, 1, 1), Span(1, 2, 9)), (Span(0, 1, 9), Span(1, 2, 1))]
    packing = Packing(shapes)
    assert max(packing.load) == 10
    assert packing.bound == 18
    assert packing.arena(first_fit(packing, [0, 1])) == 18


def test_blocks_that_change_size_pack_by_their_sizes_at_each_time() -> None:
    packing = Packing([(Span(0, 1, 1), Span(1, 2, 9)), (Span(1, 2, 1), Span(2, 3, 9))])
    assert packing.bound == 10
    assert first_fit(packing, [1, 0]) == [1, 0]
    assert first_fit(packing, [0, 1]) == [0, 9]


# --- the referee of addresses ---------------------------------------------------------------------


def _addressed() -> tuple[CostedGraph, AddressPlan, tuple[Action, ...]]:
    problem = two_layers()
    schedule = actions(
        "compute conv; free x; compute relu; page_out r; compute linear; free r;"
        "page_in r; compute grad; free y; free r; compute update; free g"
    )
    plan, addressed = _planned(problem, schedule)
    return problem, plan, addressed


Change = Callable[[Action], Action]


def _compute(name: str, **fields: object) -> Change:
    def change(action: Action) -> Action:
        found = isinstance(action, Compute) and action.op == name
        return action.model_copy(update=fields) if found else action

    return change


def _page_in(address: int | None) -> Change:
    def change(action: Action) -> Action:
        return (
            action.model_copy(update={"address": address}) if isinstance(action, PageIn) else action
        )

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_compute("conv", address=None), "'a' has no address"),
        (_compute("conv", workspace_address=None), "5 bytes of workspace of op 'conv' have no"),
        (_compute("relu", workspace_address=3), "0 bytes of workspace of op 'relu' have the"),
        (_compute("conv", address={"a": 20}), "'a' at 20 to 26 leaves the arena of 25 bytes"),
        (_compute("linear", address={"y": 0, "r": 8}), "'r' has an address but needs none here"),
        (_page_in(None), "'r' has no address"),
        (_page_in(24), "'r' at 24 to 30 leaves the arena of 25 bytes"),
    ],
)
def test_wrong_addresses_are_refused(change: Change, reason: str) -> None:
    problem, plan, addressed = _addressed()
    wrong = [change(action) for action in addressed]
    with pytest.raises(RefereeError, match=reason):
        verify_addresses(problem, wrong, plan.resident_address, plan.arena_bytes)


def test_tensor_resident_at_the_start_needs_an_address() -> None:
    problem, plan, addressed = _addressed()
    with pytest.raises(RefereeError, match="'w' has no address"):
        verify_addresses(problem, addressed, {"x": plan.resident_address["x"]}, plan.arena_bytes)


def test_in_place_result_at_another_address_is_refused() -> None:
    problem, plan, addressed = _addressed()
    wrong = [_compute("relu", address={"r": 19})(action) for action in addressed]
    with pytest.raises(RefereeError, match=r"writes 'r' at 19, in place of 'a', which is at \d"):
        verify_addresses(problem, wrong, plan.resident_address, plan.arena_bytes)


def test_every_overlap_is_caught() -> None:
    """Each block of a plan is moved to the offset of another one that lives at the same time."""
    caught = 0

    @given(data=st.data())
    @examples(60)
    def move_one(data: st.DataObject) -> None:
        nonlocal caught
        problem = data.draw(small_graphs())
        schedule = with_frees(problem, data.draw(action_lists(problem)))
        plan, _ = _planned(problem, schedule)
        pairs = [
            (i, j)
            for i, one in enumerate(plan.blocks)
            for j, other in enumerate(plan.blocks)
            if i != j and one.first < other.end and other.first < one.end
        ]
        assume(pairs)
        i, j = data.draw(st.sampled_from(pairs))
        offsets = list(plan.offsets)
        offsets[i] = offsets[j]
        wrong = AddressPlan(plan.blocks, tuple(offsets), 2 * plan.arena_bytes, plan.bound_bytes)
        with pytest.raises(RefereeError, match="overlaps"):
            verify_addresses(
                problem,
                with_addresses(schedule, wrong),
                wrong.resident_address,
                wrong.arena_bytes,
            )
        caught += 1

    move_one()
    assert caught > 30


# --- repair ---------------------------------------------------------------------------------------


def _assert_packs(problem: Problem, packed: Packed) -> None:
    assert packed.plan.arena_bytes <= problem.budget.ram_bytes
    verify_addresses(
        problem.graph,
        packed.actions,
        packed.plan.resident_address,
        packed.plan.arena_bytes,
        problem.budget.covers,
    )


@pytest.mark.slow
def test_unavoidable_fragmentation_is_proven() -> None:
    problem, schedule = unlucky()
    assert replay(problem.graph, schedule).peak_bytes == 7
    plan, _ = _planned(problem.graph, schedule)
    assert plan.arena_bytes == plan.bound_bytes == 8
    tightest, _ = _planned(problem.graph, schedule, limit_bytes=7)
    assert tightest.bound_bytes == 8
    stated = schedule_by_baseline(problem.graph, problem.budget, "keep-everything", 20.0)
    assert (stated.peak_bytes, stated.arena_bound_bytes) == (7, 8)
    assert not list(wrong_figures(problem.graph, stated))


@pytest.mark.slow
def test_a_baseline_without_addresses_within_the_budget_has_a_schedule_like_it_that_packs() -> None:
    problem, schedule = unlucky()
    found = schedules_by_baseline(problem, "keep-everything", 20.0)
    assert found.result.actions == schedule
    assert found.own is not None
    assert found.packed is not None
    assert (found.own.peak_bytes, found.own.arena_bytes, found.own.budget.ram_bytes) == (7, 8, 8)
    assert found.packed.budget == problem.budget
    for stated in (found.own, found.packed):
        assert not list(wrong_figures(problem.graph, stated))
    roomy = Problem(problem.graph, Budget(ram_bytes=8))
    assert schedules_by_baseline(roomy, "keep-everything", 20.0).packed is None


def test_bound_that_is_found_at_once_is_accepted_though_it_is_not_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``i`` shrinks in place and ``j`` grows, so that one of them has 4 bytes below the other."""
    problem = graph(
        [
            op("begin", "", "i j"),
            op("shrink", "i", "less", in_place={"less": "i"}),
            op("grow", "j", "more", in_place={"more": "j"}),
            op("end", "less more", "out"),
        ],
        [tensor(name, size) for name, size in (("i", 4), ("j", 1), ("less", 1), ("more", 4))]
        + [tensor("out", 1)],
    )
    searched, _ = _planned(problem, keep_everything(problem))
    assert searched.bound_bytes == searched.arena_bytes == 8
    monkeypatch.setattr(plan_module, "MANY_PAIRS", -1)
    quick = schedule_by_baseline(problem, Budget(ram_bytes=9), "keep-everything", 20.0)
    assert (quick.arena_bound_bytes, quick.arena_bytes) == (6, 9)
    assert not list(wrong_figures(problem, quick))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("means", "more_j"), [({"rematerialization": False}, 2.0), ({"paging": False}, 5.0), ({}, 2.0)]
)
def test_schedule_that_cannot_pack_is_changed_at_least_cost(
    means: dict[str, bool], more_j: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy computer, the addresses of a cheap change might come too late.
    monkeypatch.setattr(plan_module, "_LEAST_S", 60.0)
    monkeypatch.setattr(repair_module, "_PLAN_OF_A_CHANGE_S", 60.0)
    problem, schedule = unlucky(**means)
    packed = fit_into_arena(problem, schedule, lambda _: None, _soon(200.0), tolerance_j=0.0)
    _assert_packs(problem, packed)
    before_j = replay(problem.graph, schedule).energy_j
    assert replay(problem.graph, packed.actions).energy_j == before_j + more_j
    assert f"takes {more_j:.4g} J more" in packed.notes[0]
    assert "no addresses exist for it (at least 8 bytes, found 8 bytes)" in packed.notes[0]


def test_schedule_that_small_changes_cannot_repair_is_solved_again_for_less_ram() -> None:
    problem, schedule = unlucky(paging=False, rematerialization=False)
    asked: list[int] = []

    def solve_again(ram_bytes: int) -> tuple[Action, ...] | None:
        """The same schedule, or one in another order, which packs, for 5 bytes or less."""
        asked.append(ram_bytes)
        if ram_bytes > 5:
            return schedule
        order = [1, 0, 2, 3, 4, 5, 6]
        return with_frees(problem.graph, [Compute(op=f"o{k}") for k in order])

    packed = fit_into_arena(problem, schedule, solve_again, _soon(), tolerance_j=0.0)
    _assert_packs(problem, packed)
    assert asked == [6, 5]
    assert "solving it again for 5 bytes packs and takes 0 J more" in packed.notes[0]


def test_costly_changes_are_replaced_by_solving_again() -> None:
    problem, schedule = unlucky()
    order = [1, 0, 2, 3, 4, 5, 6]
    better = with_frees(problem.graph, [Compute(op=f"o{k}") for k in order])
    content = fit_into_arena(problem, schedule, lambda _: better, _soon(), tolerance_j=2.0)
    choosy = fit_into_arena(problem, schedule, lambda _: better, _soon(), tolerance_j=1.9)
    _assert_packs(problem, content)
    _assert_packs(problem, choosy)
    assert "paging tensors out of the way packs and takes 2 J more" in content.notes[0]
    assert "solving it again for 6 bytes packs and takes 0 J more" in choosy.notes[0]


def test_a_spare_schedule_takes_the_place_of_one_that_cannot_pack() -> None:
    problem, schedule = unlucky(paging=False, rematerialization=False)
    order = [1, 0, 2, 3, 4, 5, 6]
    spare = tuple(with_frees(problem.graph, [Compute(op=f"o{k}") for k in order]))
    addressed = Addressed(spare, _planned(problem.graph, spare)[0])
    packed = fit_into_arena(
        problem, schedule, lambda _: None, _soon(), tolerance_j=0.0, spare=addressed
    )
    _assert_packs(problem, packed)
    assert "packs and takes 0 J more" in packed.notes[0]
    assert f"which fits {replay(problem.graph, spare).peak_bytes} bytes as a sum" in packed.notes[0]


@pytest.mark.parametrize("offered", ["spare", "solved again"])
def test_a_schedule_that_would_pack_is_not_taken_if_it_is_late(offered: str) -> None:
    problem, schedule = unlucky(paging=False)
    on_time_s = replay(problem.graph, schedule).time_s
    timely = problem.budget.model_copy(update={"deadline_s": on_time_s})
    order = [1, 0, 1, 2, 3, 4, 5, 6]
    late = tuple(with_frees(problem.graph, [Compute(op=f"o{k}") for k in order]))
    assert replay(problem.graph, late).time_s > on_time_s
    addressed = Addressed(late, _planned(problem.graph, late)[0])
    if offered == "solved again":
        again, spare = (lambda _: late), None
    else:
        again, spare = (lambda _: None), addressed
    packed = fit_into_arena(
        Problem(problem.graph, timely), schedule, again, _soon(), tolerance_j=0.0, spare=spare
    )
    assert replay(problem.graph, packed.actions).time_s == on_time_s


def test_note_reports_that_no_schedule_packs() -> None:
    problem, schedule = unlucky(paging=False, rematerialization=False)
    packed = fit_into_arena(problem, schedule, lambda _: None, _soon(), tolerance_j=0.0)
    assert packed.plan.arena_bytes == 8
    assert "nor were any for the other schedules tried" in packed.notes[0]


@pytest.mark.slow
def test_solver_repairs_unpackable_schedule_and_reports_the_cost() -> None:
    problem, schedule = unlucky(rematerialization=False)
    least_j = replay(problem.graph, schedule).energy_j
    found = solve_graph(problem.graph, problem.budget, SolverOptions(gap=0.0, threads=1))
    assert found.status == "feasible"
    assert found.energy_bound_j == least_j
    assert found.energy_j == least_j + 2
    assert found.gap == pytest.approx(2 / (least_j + 2))
    assert found.arena_bytes == 7
    assert "takes 2 J more" in found.notes[0]
    accepted = solve_graph(problem.graph, problem.budget, SolverOptions(gap=0.1, threads=1))
    assert accepted.status == "optimal"


@pytest.mark.slow
def test_no_solution_if_no_schedule_packs() -> None:
    problem, _ = unlucky(paging=False, rematerialization=False)
    found = solve_graph(problem.graph, problem.budget, SolverOptions(gap=0.0, threads=1))
    assert found.status == "no_solution"
    assert not found.actions
    assert "no addresses exist for it" in found.notes[0]


# --- the picture ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_arena_picture_states_arena_budget_and_fragmentation(tmp_path: Path) -> None:
    problem, _ = unlucky(rematerialization=False)
    schedule = solve_graph(problem.graph, problem.budget, SolverOptions(gap=0.0, threads=1))
    arena(problem.graph, schedule, tmp_path / "arena.svg")
    words = (tmp_path / "arena.svg").read_text(encoding="utf-8")
    for said in (
        "unlucky: addresses over one training step",
        "arena 7 B of a budget of 7 B; this schedule needs at least 7 B: fragmentation 0 %",
        "activations",
        "t2",
    ):
        assert f"<!-- {said} -->" in words
    assert "workspace of an op" not in words


@pytest.mark.slow
def test_a_schedule_without_addresses_has_no_picture(tmp_path: Path) -> None:
    problem, _ = unlucky(paging=False, rematerialization=False)
    schedule = solve_graph(problem.graph, problem.budget, SolverOptions(gap=0.0, threads=1))
    with pytest.raises(ValueError, match="the schedule of unlucky has no addresses: no_solution"):
        arena(problem.graph, schedule, tmp_path / "arena.svg")
