"""Tensors that are packed when they are paged out, and unpacked when they are paged in."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from devices.description import Storage
from devices.plan import Action, ArenaRange, ExecutionPlan, PageIn, PageOut, Poison, Probe
from profiler.building.store_layout import store_layout
from tests.support.onboard.executor import (
    CARDS,
    ActionRefused,
    Medium,
    Replay,
    card,
    medium_for,
    shim,
)

Words = NDArray[np.uint32]

MINUS_ZERO, NAN = 0x80000000, 0x7FC00001


def packed_words(value: Words) -> int:
    """Words other than zero, and a bitmap for every 32, by their definition."""
    return int(np.count_nonzero(value)) + -(-len(value) // 32)


def stored_words(value: Words, ring_words: int) -> int:
    """Words in storage: all, if packing makes none fewer or a beginning longer than the ring."""
    ends = (*range(32, len(value), 32), len(value))
    if any(packed_words(value[:end]) > end + ring_words for end in ends):
        return len(value)
    return min(packed_words(value), len(value))


def paging(count: int, counted_page_bytes: int = 0) -> ExecutionPlan:
    """A plan that pages a tensor of ``count`` words out, packed, and in again to another place."""
    first, second = ArenaRange(0, 4 * count), ArenaRange(4 * count, 4 * count)
    return ExecutionPlan(
        name="packing",
        arena_bytes=8 * count,
        inputs={},
        kept=(),
        actions=(
            Action(Probe("t", "zeros", first)),
            Action(PageOut("t", first, 0, packed_bytes=2 * count)),
            Action(Poison(second)),
            Action(PageIn("t", second, 0)),
        ),
        slot_bytes=(4 * count,),
        counted_page_bytes=counted_page_bytes,
    )


def opened(library: ctypes.CDLL, plan: ExecutionPlan, storage: Storage) -> Replay:
    return Replay(library, plan, store_layout(plan, storage), medium_for(plan, storage, 2))


@st.composite
def tensors(draw: st.DrawFn) -> Words:
    """Tensors with zeros here and there, in a stretch, or before a stretch without any."""
    count = draw(st.integers(1, 1500))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    value = random.integers(1, 2**32, count, dtype=np.uint32)
    begin, end = sorted(draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    value[begin:end][random.random(end - begin) < draw(st.sampled_from([0.1, 0.5, 0.9, 1]))] = 0
    value[:: draw(st.integers(5, 100))] = draw(st.sampled_from([0, MINUS_ZERO, NAN, 1]))
    return value


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(value=tensors(), storage=st.sampled_from(CARDS))
def test_a_packed_tensor_keeps_its_bits_in_ram_and_in_storage(
    library: ctypes.CDLL, value: Words, storage: Storage
) -> None:
    plan = paging(len(value))
    replay = opened(library, plan, storage)
    for each in (value, value[::-1], np.zeros_like(value)):  # one slot, of several lengths
        replay.put(0, each.tobytes())
        written = replay.store.bytes_out
        replay.step(watched=True)
        assert replay[0 : 4 * len(each)] == each.tobytes()
        assert replay[4 * len(each) : 8 * len(each)] == each.tobytes()
        most = store_layout(plan, storage).written_bytes
        assert replay.store.bytes_out - written <= most


@settings(max_examples=200, deadline=None)
@given(value=tensors(), page_bytes=st.sampled_from([4, 64, 512]))
def test_what_is_counted_is_what_is_written(
    library: ctypes.CDLL, value: Words, page_bytes: int
) -> None:
    replay = opened(library, paging(len(value), page_bytes), card(page_bytes))
    replay.put(0, value.tobytes())
    replay.step(watched=True)
    left = stored_words(value, page_bytes // 4)
    assert replay.probed == [left]
    assert replay.store.bytes_in == -(-4 * left // page_bytes) * page_bytes


@pytest.mark.parametrize("page_bytes", [4, 64])
def test_a_tensor_whose_words_would_wait_for_too_much_room_stays_as_it_is(
    library: ctypes.CDLL, page_bytes: int
) -> None:
    """One bitmap waits for every 32 words without zeros; a page has room for so many."""
    ring = page_bytes // 4
    for blocks, packs in ((ring, True), (ring + 1, False)):
        dense = 32 * blocks
        value = np.ones(2 * dense, np.uint32)
        value[dense:] = 0
        replay = opened(library, paging(len(value), page_bytes), card(page_bytes))
        replay.put(0, value.tobytes())
        replay.step(watched=True)
        left = packed_words(value) if packs else len(value)
        assert replay.probed == [left]
        assert replay.store.bytes_in == -(-4 * left // page_bytes) * page_bytes
        assert replay[8 * dense : 16 * dense] == value.tobytes()


def test_a_packed_tensor_may_be_used_before_it_is_read_back(library: ctypes.CDLL) -> None:
    plan = paging(64)
    used = shim("bump", 0, 256)
    plan = replace(plan, actions=(*plan.actions[:2], used, *plan.actions[2:]))
    value = np.arange(64, dtype=np.uint32) % 2
    replay = opened(library, plan, card(64))
    replay.put(0, value.tobytes())
    replay.step()
    assert replay[0:256] == (value + 1).tobytes()
    assert replay[256:512] == value.tobytes()


class _Damaging(Medium):
    """A medium whose reads change a bit of the last page before."""

    def _read(self, offset: int, memory: int, size: int, most: int) -> str | None:
        self.content[offset + size - self.page_bytes] ^= 1
        return super()._read(offset, memory, size, most)


def test_a_damaged_packed_tensor_is_refused(library: ctypes.CDLL) -> None:
    plan, storage = paging(64), card(64)
    layout = store_layout(plan, storage)
    medium = _Damaging(layout.page_bytes, layout.erase_block_bytes, 2 * layout.step_bytes)
    replay = Replay(library, plan, layout, medium)
    value = np.arange(64, dtype=np.uint32) % 2
    replay.put(0, value.tobytes())
    with pytest.raises(ActionRefused, match="holds other data than was written") as caught:
        replay.step()
    assert caught.value.action == len(plan.actions) - 1
    assert replay[0:256] == value.tobytes()
