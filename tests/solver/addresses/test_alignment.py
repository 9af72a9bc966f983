"""Addresses at the beginnings of cache lines: where the arena has room, and nowhere else."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from solver.addresses import alignment as alignment_module
from solver.addresses.alignment import LINE_BYTES, SMALL_BYTES, aligned
from solver.addresses.plan import AddressPlan, plan_addresses, with_addresses
from solver.constructed import keep_everything
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.schedule import Action, Budget, Compute, PageIn
from solver.referee.addresses import verify_addresses
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit
from tests.support.graphs.graph_examples import graph, op, tensor, training_chain
from tests.support.graphs.graph_strategies import action_lists, examples, small_graphs

_AMPLE = 1 << 30


def _planned(problem: CostedGraph, schedule: tuple[Action, ...]) -> AddressPlan:
    return plan_addresses(problem, schedule, "all", 0, time.monotonic() + 20)


def _scaled(problem: CostedGraph, factor: int) -> CostedGraph:
    """The same graph with tensors and workspaces of so many times the bytes, and 4 more."""
    return CostedGraph(
        name=problem.name,
        ops=tuple(
            each.model_copy(
                update={
                    "workspace_bytes": each.workspace_bytes and factor * each.workspace_bytes + 4
                }
            )
            for each in problem.ops
        ),
        tensors=tuple(
            each.model_copy(update={"bytes": each.bytes and factor * each.bytes + 4})
            for each in problem.tensors
        ),
    )


@given(st.data(), st.sampled_from([1, 40, 1000]), st.floats(1.0, 1.2))
@examples(300)
def test_aligned_addresses_hold_and_stay_within_the_limit(
    data: st.DataObject, factor: int, room: float
) -> None:
    problem = _scaled(data.draw(small_graphs()), factor)
    schedule = with_frees(problem, data.draw(action_lists(problem)))
    plan = _planned(problem, schedule)
    assume(plan.blocks)
    limit_bytes = int(room * plan.arena_bytes)
    found = aligned(plan, limit_bytes, TimeLimit.after(20))
    assert found.arena_bytes <= limit_bytes
    assert found.blocks == plan.blocks
    verify_addresses(
        problem, with_addresses(schedule, found), found.resident_address, found.arena_bytes, "all"
    )
    if found is not plan:
        assert all(offset % 16 == 0 for offset in found.offsets)


@given(st.data(), st.sampled_from([1, 40, 1000]))
@examples(200)
def test_with_room_every_large_tensor_begins_a_line(data: st.DataObject, factor: int) -> None:
    problem = _scaled(data.draw(small_graphs()), factor)
    schedule = with_frees(problem, data.draw(action_lists(problem)))
    found = aligned(_planned(problem, schedule), _AMPLE, TimeLimit.after(20))
    for block, offset in zip(found.blocks, found.offsets, strict=True):
        assert offset % (LINE_BYTES if block.bytes >= SMALL_BYTES else 16) == 0


def _odd_sizes(*sizes: int) -> tuple[CostedGraph, tuple[Action, ...]]:
    """A schedule that has tensors of these sizes in RAM all the time."""
    names = [f"w{number}" for number in range(len(sizes))]
    problem = graph(
        [op("loss", " ".join(names), "out")],
        [tensor(name, size, kind="parameter") for name, size in zip(names, sizes, strict=True)]
        + [tensor("out", 4)],
    )
    return problem, keep_everything(problem)


def test_small_tensors_of_the_same_life_are_rounded_up_together() -> None:
    """40 biases of 40 bytes take 40 × 48 bytes, not 40 × 64."""
    problem, schedule = _odd_sizes(*[40] * 40, 4096)
    plan = _planned(problem, schedule)
    assert plan.arena_bytes == 40 * 40 + 4096 + 4
    found = aligned(plan, 40 * 48 + 4096 + 64, TimeLimit.after(20))
    large = max(range(len(found.blocks)), key=lambda block: found.blocks[block].bytes)
    assert found.offsets[large] % LINE_BYTES == 0


@pytest.mark.parametrize(
    ("room_bytes", "multiple"), [(180, 64), (179, 32), (84, 32), (83, 16), (36, 16), (35, 4)]
)
def test_the_largest_multiple_that_fits_is_taken(room_bytes: int, multiple: int) -> None:
    """Three tensors of 2052 bytes, each rounded up by 60, 28 or 12 bytes, and one of 4."""
    problem, schedule = _odd_sizes(2052, 2052, 2052)
    plan = _planned(problem, schedule)
    found = aligned(plan, plan.arena_bytes + room_bytes, TimeLimit.after(20))
    large = [o for o, block in zip(found.offsets, found.blocks, strict=True) if block.bytes > 4]
    assert all(offset % multiple == 0 for offset in large)
    if multiple < LINE_BYTES:
        assert any(offset % (2 * multiple) for offset in large)


def test_many_pairs_of_blocks_are_placed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "MANY_PAIRS", -1)
    problem, schedule = _odd_sizes(2052, 2052, 2052)
    found = aligned(_planned(problem, schedule), _AMPLE, TimeLimit.after(20))
    assert all(offset % LINE_BYTES == 0 for offset in found.offsets)


def test_addresses_are_aligned_after_the_limit_too() -> None:
    problem, schedule = _odd_sizes(2052, 2052, 2052)
    found = aligned(_planned(problem, schedule), _AMPLE, TimeLimit.after(0.0))
    assert all(offset % LINE_BYTES == 0 for offset in found.offsets)


def test_a_solved_schedule_has_aligned_addresses() -> None:
    problem = _scaled(training_chain(6), 1000)
    schedule = solve_graph(problem, Budget(ram_bytes=_AMPLE), SolverOptions())
    addresses = [*(schedule.resident_address or {}).values()]
    for action in schedule.actions:
        match action:
            case Compute():
                addresses += (action.address or {}).values()
            case PageIn(address=int(address)):
                addresses.append(address)
    assert addresses
    assert all(address % LINE_BYTES == 0 for address in addresses)
