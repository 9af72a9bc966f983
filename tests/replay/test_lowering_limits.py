"""The end of a step: a tight arena, and what is left in storage."""

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


def test_large_tensors_that_change_places_word_by_word_are_refused_at_once() -> None:
    """They would go in four million pieces."""
    movers = [Mover("a", ArenaRange(0, 16 * MIB), 4), Mover("b", ArenaRange(16 * MIB, 4), 0)]
    start_s = time.process_time()
    with pytest.raises(LoweringError, match=r"ends with a, b at .* gap of 0 free bytes"):
        ordered_moves(movers, 16 * MIB + 4)
    assert time.process_time() - start_s < 5.0


def test_results_that_may_lie_anywhere_do_not_take_each_others_place() -> None:
    """Both losses lie where parameters have to go."""
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


def test_a_result_stays_where_it_is_in_nobodys_way_and_is_nobodys_gap() -> None:
    movers = [
        Mover("w", ArenaRange(40, 8), 0),
        Mover("first loss", ArenaRange(8, 4), None),
        Mover("second loss", ArenaRange(4, 4), None),
    ]
    assert [mover.target for mover in with_targets(movers, 48)] == [0, 8, 12]


# --- what a step leaves in storage --------------------------------------------------------------


def trained() -> TrainingStep:
    """Two parameters, a weight and a bias, at home in RAM."""
    net = Network("one layer", 1)
    x = net.linear("fc", net.input("vector", 1, 3), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    return training_step(net, "sgd")


def with_schedule(
    step: TrainingStep, first: Sequence[Action] = (), last: Sequence[Action] = ()
) -> tuple[CostedGraph, Schedule]:
    """Everything is kept; ``first`` and ``last`` come before and after. All can be paged."""
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
    """With copies of some of the results in storage."""
    last = [PageOut(tensor=name) for name in paged_out]
    graph, schedule = with_schedule(step, first, last)
    return lower(step, graph, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_a_step_that_pages_nothing_has_no_storage() -> None:
    plan = lowered(trained())
    assert (plan.slot_bytes, plan.afterwards) == ((), ())
    assert [kept.slot for kept in plan.kept] == [None, None]


def test_what_a_step_has_put_into_storage_is_not_put_there_again_after_it() -> None:
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


# --- what an action waits for -----------------------------------------------------------------


def test_nothing_waits_for_a_transfer_beside_it_but_what_overwrites_its_tensor() -> None:
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


def test_a_transfer_that_is_done_at_once_is_over_for_what_follows() -> None:
    step = trained()
    plan = lowered(step, first=[PageOut(tensor=kept_values(step)[0].tensor)])
    assert [action.waits_for for action in plan.actions] == [0] + [1] * (len(plan.actions) - 1)


# --- what cannot be run -----------------------------------------------------------------------


@pytest.mark.parametrize("off", [1, 2, 3])
def test_what_is_resident_at_first_has_to_be_aligned(off: int) -> None:
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


def test_a_graph_with_an_op_of_its_own_is_told_by_it() -> None:
    step = trained()
    graph, schedule = with_schedule(step)
    other = graph.model_copy(
        update={"ops": (*graph.ops, graph.ops[0].model_copy(update={"name": "extra"}))}
    )
    with pytest.raises(LoweringError, match="only the graph has op extra"):
        lower(step, other, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_a_graph_with_a_tensor_of_its_own_is_told_by_it() -> None:
    step = trained()
    graph, schedule = with_schedule(step)
    extra = graph.tensors[0].model_copy(update={"name": "extra"})
    other = CostedGraph(name=graph.name, ops=graph.ops, tensors=(*graph.tensors, extra))
    with pytest.raises(LoweringError, match="only the graph has tensor extra"):
        lower(step, other, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_tensors_that_change_places_do_so_through_the_largest_gap() -> None:
    """Of 4 and of 16 bytes."""
    movers = [Mover("a", ArenaRange(4, 24), 28), Mover("b", ArenaRange(28, 24), 4)]
    moves = ordered_moves(movers, 68)
    assert sorted(move.block.bytes for move in moves) == [8, 8, 8, 16, 16, 16]
