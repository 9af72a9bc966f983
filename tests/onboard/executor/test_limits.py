"""Waiting times that the executor counts, and the scalars that it passes to kernels."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.plan import Action, ArenaRange, Compute, ExecutionPlan, PageIn, PageOut, Probe
from profiler.building.store_layout import StoreLayout, store_layout
from tests.support.onboard.executor import (
    ActionRefused,
    Channel,
    Clock,
    Replay,
    begun,
    card,
    keeping,
    medium_for,
    shim,
)

LOOK_NS = 1_000_000
"""Advance of the stand-in's clock at each reading; every transfer takes one reading."""
TRANSFERS = 4
"""Counted transfers of a step of ``keeping``: two tensors in, two out, none after the step."""


# --- waiting ------------------------------------------------------------------------------------


@pytest.fixture
def replay(library: ctypes.CDLL) -> Replay:
    plan, storage = keeping(), card(64)
    return begun(library, plan, storage, medium_for(plan, storage, 3))


def test_a_step_counts_the_wait_for_its_own_transfers_and_no_later_ones(replay: Replay) -> None:
    for _ in range(3):
        replay.step()
        assert replay.executor.blocked_ns == TRANSFERS * LOOK_NS


@pytest.mark.parametrize(
    ("share", "blocked_ns"),
    [(0.25, TRANSFERS * LOOK_NS * 3 // 4), (1.0, 0), (1.5, 0)],
)
def test_processor_time_of_a_transfer_does_not_count_as_waiting(
    replay: Replay, share: float, blocked_ns: int
) -> None:
    """A thread whose working time exceeds the elapsed time (by rounding) has not waited."""
    looks = iter(range(1, 1000))
    working = Clock(lambda: int(next(looks) * share * LOOK_NS))
    replay.executor.working_ns = working
    replay.step()
    assert replay.executor.blocked_ns == blocked_ns


def test_the_processors_time_for_transfers_adds_up_over_steps(replay: Replay) -> None:
    """That of the copies after a step is left out, as all of their time is."""
    looks = iter(range(1, 1000))
    working = Clock(lambda: next(looks) * LOOK_NS)
    replay.executor.working_ns = working
    for steps in (1, 2, 3):
        replay.step()
        assert replay.executor.transfer_ns == steps * TRANSFERS * LOOK_NS


def test_a_transfer_that_runs_alone_reads_the_processors_time_twice(replay: Replay) -> None:
    """On Linux, each reading is a system call, and takes as long as a small transfer in memory."""
    readings = 0

    def read() -> int:
        nonlocal readings
        readings += 1
        return 0

    replay.executor.working_ns = replay.executor.running_ns = Clock(read)
    replay.step()
    whole = (*replay.plan.actions, *replay.plan.afterwards)
    transfers = [action for action in whole if isinstance(action.does, PageIn | PageOut)]
    assert len(transfers) > TRANSFERS
    assert readings == 2 * len(transfers)


@pytest.mark.parametrize("missing", ["clock_ns", "working_ns"])
def test_without_a_clock_nothing_is_counted(replay: Replay, missing: str) -> None:
    setattr(replay.executor, missing, Clock())
    replay.step()
    assert replay.executor.blocked_ns == 0


# --- scalars ------------------------------------------------------------------------------------


def test_the_seed_is_the_only_scalar_that_changes_between_steps(library: ctypes.CDLL) -> None:
    """With a dropout probability of 0.5, ones become zeros or twos."""
    spec = OpSpec.of("dropout.forward", elements=256)
    drop = Compute("drop", spec, (0,), (1024,), None, {"probability": 0.5, "seed": 3.0})
    plan = ExecutionPlan("dropout", 2048, {}, (), (Action(drop),))
    replay = Replay(library, plan, StoreLayout(1, 0, (), 0, 0, 0))
    replay.put(0, np.ones(256, np.float32).tobytes())
    for _ in range(4):
        replay.step()
        values = np.frombuffer(replay[1024:2048], np.float32)
        assert set(values) == {0.0, 2.0}
        assert 90 < np.count_nonzero(values) < 166


# --- asynchronous transfers ---------------------------------------------------------------------


def paging_out(*waits_for: int) -> ExecutionPlan:
    """Three page-outs, then one action for each count of transfers that it waits for."""
    outs = [Action(PageOut("t", ArenaRange(64 * k, 64), k, asynchronous=True)) for k in range(3)]
    bumps = [replace(shim("bump", 0, 4), waits_for=count) for count in waits_for]
    return ExecutionPlan("out", 256, {}, (), (*outs, *bumps), slot_bytes=(64,) * 3)


def with_channel(
    library: ctypes.CDLL, plan: ExecutionPlan, fails_at: int | None = None
) -> tuple[Replay, Channel]:
    storage = card(64)
    replay = Replay(library, plan, store_layout(plan, storage), medium_for(plan, storage, 2))
    return replay, Channel(replay, fails_at)


@pytest.mark.parametrize(
    ("waits_for", "waits"),
    [
        ((0, 0), [(3, 0)]),
        ((0, 1), [(3, 2), (2, 0)]),
        ((0, 1, 1, 2), [(3, 2), (2, 1), (1, 0)]),
        ((0, 3, 1), [(3, 0)]),
    ],
)
def test_an_action_waits_for_the_transfers_that_it_needs_and_the_step_for_all(
    library: ctypes.CDLL, waits_for: tuple[int, ...], waits: list[tuple[int, int]]
) -> None:
    replay, channel = with_channel(library, paging_out(*waits_for))
    for _ in range(2):
        channel.waits.clear()
        replay.step()
        assert channel.waits == waits


def test_a_synchronous_transfer_waits_for_those_under_way(
    library: ctypes.CDLL,
) -> None:
    plan = paging_out(0)
    first, second, last, bump = plan.actions
    assert isinstance(last.does, PageOut)
    at_once = Action(replace(last.does, asynchronous=False))
    replay, channel = with_channel(library, replace(plan, actions=(first, second, bump, at_once)))
    replay.step()
    assert channel.waits == [(2, 0)]


@pytest.mark.parametrize(
    ("waits_for", "handed_over"),
    [((), 0), ((3,), 0), ((2,), 1), ((1, 3), 2), ((0,), 3), ((0, 3), 3)],
)
@pytest.mark.parametrize("probes", [0, 1])
def test_only_a_transfer_that_runs_beside_something_is_handed_over(
    library: ctypes.CDLL, waits_for: tuple[int, ...], handed_over: int, probes: int
) -> None:
    """A probe is nothing: it computes in watched steps only, which must be as others are."""
    plan = paging_out(*waits_for)
    outs, bumps = plan.actions[:3], plan.actions[3:]
    probe = Action(Probe("t", "loss", ArenaRange(0, 64)))
    actions = tuple(each for out in outs for each in (out, *[probe] * probes))
    replay, channel = with_channel(library, replace(plan, actions=(*actions, *bumps)))
    replay.step()
    assert channel.handed_over == handed_over


@pytest.mark.parametrize("waits_for", [(0,), (0, 1), (0, 3)])
def test_an_asynchronous_transfer_that_fails_is_named_in_the_error(
    library: ctypes.CDLL, waits_for: tuple[int, ...]
) -> None:
    replay, channel = with_channel(library, paging_out(*waits_for), fails_at=1)
    with pytest.raises(ActionRefused, match="the channel broke") as caught:
        replay.step()
    assert caught.value.action == 1
    assert channel.waits[-1][1] == 0


def test_an_error_that_no_action_causes_names_no_action(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    medium.unreadable = set(range(len(medium.content) // 64))
    with pytest.raises(ActionRefused, match="worn out") as caught:
        replay.step()
    assert caught.value.action is not None
    replay.store.complete = False
    with pytest.raises(ActionRefused, match="but none is complete") as caught:
        replay.step()
    assert caught.value.action is None


# --- checksums ----------------------------------------------------------------------------------


class Checksum(ctypes.Structure):
    _fields_ = (("lanes", ctypes.c_uint32 * 4), ("count", ctypes.c_uint32))


@given(st.lists(st.integers(0, 9), max_size=6), st.randoms(use_true_random=False))
def test_a_checksum_does_not_depend_on_the_pieces_in_which_data_is_added(
    library: ctypes.CDLL, pieces: list[int], random: Random
) -> None:
    library.jw_checksum_end.restype = ctypes.c_uint32
    content = random.randbytes(4 * sum(pieces))
    memory = ctypes.create_string_buffer(content, len(content) + 4)
    checksum, done = Checksum(), 0
    library.jw_checksum_begin(ctypes.byref(checksum))
    for count in pieces:
        at = ctypes.c_void_p(ctypes.addressof(memory) + done)
        library.jw_checksum_add(ctypes.byref(checksum), at, ctypes.c_size_t(4 * count))
        done += 4 * count
    assert checksum.count == sum(pieces)
    whole = library.jw_checksum_of(memory, ctypes.c_size_t(len(content)))
    assert library.jw_checksum_end(ctypes.byref(checksum)) == whole
