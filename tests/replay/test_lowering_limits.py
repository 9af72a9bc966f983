"""The end of a step: moves in a tight arena, copies in storage, and refused plans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from devices.plan import ArenaRange, Compute, ExecutionPlan
from networks.training import Network, TrainingStep, training_step
from replay.lowering.lowering import LoweringError, lower
from replay.lowering.moves import Mover, ordered_moves, with_targets
from replay.lowering.values import kept_values
from solver.addresses.plan import plan_addresses, with_addresses
from solver.constructed import keep_everything
from solver.costing.uncosted import uncosted_graph
from solver.problem.graph import CostedGraph, PageCost
from solver.problem.schedule import Action, Budget, PageOut, Schedule, SolverRecord

MIB = 1 << 20


def test_large_tensors_with_room_for_one_word_only_are_refused_at_once() -> None:
    """They would move in four million pieces."""
    movers = [Mover("a", ArenaRange(0, 16 * MIB), 4), Mover("b", ArenaRange(16 * MIB, 4), 0)]
    start_s = time.process_time()
    with pytest.raises(LoweringError, match=r"ends with a, b at .* gap of 0 free bytes"):
        ordered_moves(movers, 16 * MIB + 4)
    assert time.process_time() - start_s < 5.0


def test_results_without_a_fixed_place_do_not_overlap() -> None:
    """Both losses lie at the target of the parameters."""
    movers = [
        Mover("w", ArenaRange(40, 8), 0),
        Mover("first loss", ArenaRange(0, 4), None),
        Mover("second loss", ArenaRange(4, 4), None),
    ]
    found = with_targets(movers, 48)
    assert [mover.destination for mover in found] == [
        ArenaRange(0, 8),
        ArenaRange(8, 4),
        ArenaRange(12, 4),
    ]
    with pytest.raises(LoweringError, match="no room for the result second loss"):
        with_targets([replace(movers[0], block=ArenaRange(8, 8)), *movers[1:]], 12)


def test_a_result_that_overlaps_no_target_stays_and_its_place_is_not_reused() -> None:
    movers = [
        Mover("w", ArenaRange(40, 8), 0),
        Mover("first loss", ArenaRange(8, 4), None),
        Mover("second loss", ArenaRange(4, 4), None),
    ]
    assert [mover.target for mover in with_targets(movers, 48)] == [0, 8, 12]


# --- contents of storage after a step -----------------------------------------------------------


def trained() -> TrainingStep:
    """A step with two parameters, a weight and a bias, whose home is RAM."""
    net = Network("one layer", 1)
    x = net.linear("fc", net.input("vector", 1, 3), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    return training_step(net, "sgd")


def with_schedule(
    step: TrainingStep, first: Sequence[Action] = (), last: Sequence[Action] = ()
) -> tuple[CostedGraph, Schedule]:
    """A graph with pageable tensors, and a schedule that keeps everything.

    The actions ``first`` come before it and ``last`` after it.
    """
    free_of_cost = PageCost(time_s=0.0, energy_j=0.0)
    costs = {"page_out": free_of_cost, "page_in": free_of_cost}
    uncosted = uncosted_graph(step)
    tensors = tuple(tensor.model_copy(update=costs) for tensor in uncosted.tensors)
    graph = uncosted.model_copy(update={"tensors": tensors, "asynchronous_transfers": True})
    actions = (*first, *keep_everything(graph), *last)
    addresses = plan_addresses(graph, actions, "all", 0, time.monotonic())
    schedule = Schedule(
        graph=graph.name,
        status="feasible",
        solver=SolverRecord(
            engine="none",
            formulation="by hand",
            version="1",
            seconds=0.0,
            build_seconds=0.0,
            rounds=0,
            threads=1,
        ),
        budget=Budget(ram_bytes=addresses.arena_bytes),
        bound_covers="nothing",
        arena_bytes=addresses.arena_bytes,
        resident_address=addresses.resident_address,
        actions=tuple(with_addresses(actions, addresses)),
    )
    return graph, schedule


def lowered(
    step: TrainingStep, paged_out: Sequence[str] = (), first: Sequence[Action] = ()
) -> ExecutionPlan:
    """The plan of a step that pages some of its results out at its end."""
    last = [PageOut(tensor=name) for name in paged_out]
    graph, schedule = with_schedule(step, first, last)
    return lower(step, graph, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_a_step_that_pages_nothing_has_no_storage() -> None:
    plan = lowered(trained())
    assert (plan.slot_bytes, plan.afterwards) == ((), ())
    assert [kept.slot for kept in plan.kept] == [None, None]


def test_a_result_paged_out_by_the_step_is_not_stored_again_after_it() -> None:
    step = trained()
    first, second = kept_values(step)
    for done, left in ((first, second), (second, first)):
        plan = lowered(step, [done.result])
        assert plan.slot_bytes == (done.bytes, left.bytes)
        assert {kept.result: kept.slot for kept in plan.kept} == {done.result: 0, left.result: 1}
        (copy,) = plan.afterwards
        assert getattr(copy.does, "tensor", None) == left.result
    plan = lowered(step, [second.result, first.result])
    assert plan.slot_bytes == (second.bytes, first.bytes)
    assert plan.afterwards == ()


# --- waits of an action -----------------------------------------------------------------------


def test_only_actions_from_the_overwriting_one_on_wait_for_a_page_out() -> None:
    step = trained()
    value = kept_values(step)[0]
    plan = lowered(step, first=[PageOut(tensor=value.tensor, asynchronous=True)])
    update = next(
        index
        for index, action in enumerate(plan.actions)
        if isinstance(action.does, Compute) and action.does.op == value.updated_by
    )
    waits = [action.waits_for for action in plan.actions]
    assert waits == [0] * update + [1] * (len(waits) - update)
    assert update > 3


def test_actions_after_a_synchronous_transfer_count_it_as_done() -> None:
    step = trained()
    plan = lowered(step, first=[PageOut(tensor=kept_values(step)[0].tensor)])
    assert [action.waits_for for action in plan.actions] == [0] + [1] * (len(plan.actions) - 1)


# --- plans that are refused -------------------------------------------------------------------


@pytest.mark.parametrize("off", [1, 2, 3])
def test_a_misaligned_resident_tensor_is_refused(off: int) -> None:
    step = trained()
    graph, schedule = with_schedule(step)
    assert schedule.arena_bytes is not None
    address = schedule.arena_bytes + off
    resident = dict(schedule.resident_address or {}) | {"labels": address}
    changes = {"resident_address": resident, "arena_bytes": schedule.arena_bytes + 64}
    assert len(resident) == len(schedule.resident_address or {})
    with pytest.raises(LoweringError, match=f"tensor labels is at address {address}, which is not"):
        lower(
            step, graph, schedule.model_copy(update=changes), dict.fromkeys(step.distinct_specs, 0)
        )


def test_the_error_names_an_op_that_only_the_graph_has() -> None:
    step = trained()
    graph, schedule = with_schedule(step)
    other = graph.model_copy(
        update={"ops": (*graph.ops, graph.ops[0].model_copy(update={"name": "extra"}))}
    )
    with pytest.raises(LoweringError, match="only the graph has op extra"):
        lower(step, other, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_the_error_names_a_tensor_that_only_the_graph_has() -> None:
    step = trained()
    graph, schedule = with_schedule(step)
    extra = graph.tensors[0].model_copy(update={"name": "extra"})
    other = CostedGraph(name=graph.name, ops=graph.ops, tensors=(*graph.tensors, extra))
    with pytest.raises(LoweringError, match="only the graph has tensor extra"):
        lower(step, other, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_tensors_change_places_through_the_largest_gap() -> None:
    """The gaps have 4 and 16 bytes."""
    movers = [Mover("a", ArenaRange(4, 24), 28), Mover("b", ArenaRange(28, 24), 4)]
    moves = ordered_moves(movers, 68)
    assert sorted(move.block.bytes for move in moves) == [8, 8, 8, 16, 16, 16]
