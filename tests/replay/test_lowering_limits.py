"""The end of a step: a tight arena, and what is left in storage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from devices.plan import ArenaRange, ExecutionPlan
from networks.training import Network, TrainingStep, training_step
from replay.lowering.lowering import LoweringError, lower
from replay.lowering.moves import Mover, ordered_moves, settled
from replay.lowering.values import kept_values
from solver.addresses.plan import plan_addresses, with_addresses
from solver.constructed import keep_everything
from solver.costing.uncosted import uncosted_graph
from solver.problem.graph import PageCost
from solver.problem.schedule import Budget, PageOut, Schedule, SolverRecord

MIB = 1 << 20


def test_large_tensors_that_change_places_word_by_word_are_refused_at_once() -> None:
    """They would go in four million pieces."""
    movers = [Mover("a", ArenaRange(0, 16 * MIB), 4), Mover("b", ArenaRange(16 * MIB, 4), 0)]
    start_s = time.process_time()
    with pytest.raises(LoweringError, match=r"leaves a, b where .* 0 free bytes in a row"):
        ordered_moves(movers, 16 * MIB + 4)
    assert time.process_time() - start_s < 5.0


def test_results_that_may_lie_anywhere_do_not_take_each_others_place() -> None:
    """Both losses lie where parameters have to go."""
    movers = [
        Mover("w", ArenaRange(40, 8), 0),
        Mover("first loss", ArenaRange(0, 4), None),
        Mover("second loss", ArenaRange(4, 4), None),
    ]
    found = settled(movers, 48)
    assert [mover.destination for mover in found] == [
        ArenaRange(0, 8),
        ArenaRange(8, 4),
        ArenaRange(12, 4),
    ]
    with pytest.raises(LoweringError, match="no room for the result second loss"):
        settled([replace(movers[0], block=ArenaRange(8, 8)), *movers[1:]], 12)


def test_a_result_stays_where_it_is_in_nobodys_way_and_is_nobodys_gap() -> None:
    movers = [
        Mover("w", ArenaRange(40, 8), 0),
        Mover("first loss", ArenaRange(8, 4), None),
        Mover("second loss", ArenaRange(4, 4), None),
    ]
    assert [mover.target for mover in settled(movers, 48)] == [0, 8, 12]


# --- what a step leaves in storage --------------------------------------------------------------


def trained() -> TrainingStep:
    """Two parameters, a weight and a bias, at home in RAM."""
    net = Network("one layer", 1)
    x = net.linear("fc", net.input("vector", 1, 3), 2)
    net.softmax_cross_entropy("loss", x, net.input("labels", 1))
    return training_step(net, "sgd")


def lowered(step: TrainingStep, paged_out: Sequence[str]) -> ExecutionPlan:
    """``step`` with everything kept, and copies of some of its results in storage."""
    free_of_cost = PageCost(time_s=0.0, energy_j=0.0)
    costs = {"page_out": free_of_cost, "page_in": free_of_cost}
    uncosted = uncosted_graph(step)
    tensors = tuple(tensor.model_copy(update=costs) for tensor in uncosted.tensors)
    graph = uncosted.model_copy(update={"tensors": tensors})
    actions = (*keep_everything(graph), *(PageOut(tensor=name) for name in paged_out))
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
    return lower(step, graph, schedule, dict.fromkeys(step.distinct_specs, 0))


def test_a_step_that_pages_nothing_has_no_storage() -> None:
    plan = lowered(trained(), [])
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
