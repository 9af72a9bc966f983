"""The executor and its store: results and records of a step, and recovery after failures."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devices.description import Storage
from devices.operation import OpSpec
from devices.plan import (
    Action,
    ArenaRange,
    Check,
    Compute,
    ExecutionPlan,
    Guard,
    Move,
    PageIn,
    PageOut,
    Poison,
    Probe,
)
from profiler.building.store_layout import StoreLayout, record_bytes, store_layout
from tests.support.onboard.executor import (
    CARDS,
    KEPT,
    ActionRefused,
    Medium,
    Replay,
    begun,
    bumped,
    card,
    initial,
    keeping,
    medium_for,
    shim,
    words,
)

NO_STORAGE = StoreLayout(1, 0, (), 0, 0, 0)


def plan_of(*actions: Action | Move | Probe | Guard | Check | Poison, size: int) -> ExecutionPlan:
    listed = tuple(a if isinstance(a, Action) else Action(a) for a in actions)
    return ExecutionPlan("a plan", size, {}, (), listed)


# --- actions ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dropout_mask_changes_between_steps_and_not_within_one(
    library: ctypes.CDLL,
) -> None:
    spec = OpSpec.of("dropout.forward", elements=64)
    scalars = {"probability": 0.5, "seed": 3.0}
    first, again = (Action(Compute("drop", spec, (0,), (y,), None, scalars)) for y in (256, 512))
    replay = Replay(library, plan_of(first, again, size=768), NO_STORAGE)
    replay.put(0, np.ones(64, np.float32).tobytes())
    masks = []
    for _ in range(3):
        replay.step()
        masks.append(replay[256:512])
        assert replay[512:768] == masks[-1]
    assert len(set(masks)) == 3
    replay.executor.steps = 1
    replay.step()
    assert replay[256:512] == masks[1]


def test_a_plan_gives_the_results_of_its_kernels(library: ctypes.CDLL) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 7), dtype=np.float32)
    w = random.standard_normal((3, 7), dtype=np.float32)
    spec = OpSpec.of("linear.forward", rows=5, in_features=7, out_features=3, bias=0)
    relu = OpSpec.of("relu.forward", elements=15)
    update = OpSpec.of("sgd.update", elements=21)
    plan = plan_of(
        Action(Compute("fc", spec, (0, 140), (256,), ArenaRange(512, 8192), {})),
        Action(Compute("relu", relu, (256,), (256,), None, {})),
        Action(
            Compute(
                "sgd",
                update,
                (140, 140),
                (140,),
                None,
                {"learning_rate": 0.25, "weight_decay": 0.0},
            )
        ),
        size=8704,
    )
    replay = Replay(library, plan, NO_STORAGE)
    replay.put(0, x.tobytes())
    replay.put(140, w.tobytes())
    replay.step()
    y = np.frombuffer(replay[256 : 256 + 60], dtype=np.float32).reshape(5, 3)
    assert np.allclose(y, np.maximum(x @ w.T, 0.0), rtol=1e-6, atol=1e-6)
    assert (y > 0).any()
    assert replay[140:224] == (w - np.float32(0.25) * w).tobytes()


@given(
    size=st.integers(1, 40), source=st.integers(0, 40), target=st.integers(0, 40), seed=st.binary()
)
def test_a_move_keeps_the_bytes_at_any_source_and_target(
    library: ctypes.CDLL, size: int, source: int, target: int, seed: bytes
) -> None:
    plan = plan_of(Move("x", ArenaRange(4 * source, 4 * size), 4 * target), size=320)
    replay = Replay(library, plan, NO_STORAGE)
    data = np.random.default_rng(len(seed)).bytes(320)
    replay.put(0, data)
    replay.step()
    expected = bytearray(data)
    expected[4 * target : 4 * (target + size)] = data[4 * source : 4 * (source + size)]
    assert replay[0:320] == expected


def fnv_in_lanes(data: bytes) -> int:
    """Checksum as ``executor/checksum.h`` defines it."""
    lanes = [0x811C9DC5 ^ lane for lane in range(4)]
    values = struct.unpack(f"<{len(data) // 4}I", data)
    for i, word in enumerate(values):
        lanes[i % 4] = (lanes[i % 4] ^ word) * 0x01000193 % 2**32
    total = 0x811C9DC5 ^ len(values)
    for lane in lanes:
        total = (total ^ lane) * 0x01000193 % 2**32
    return total


@given(st.integers(0, 9), st.binary(min_size=40, max_size=40))
def test_a_checksum_matches_its_definition(library: ctypes.CDLL, count: int, data: bytes) -> None:
    content = data[: 4 * count]
    assert library.jw_checksum_of(content, ctypes.c_size_t(4 * count)) == fnv_in_lanes(content)


def test_only_a_watched_step_takes_checksums(library: ctypes.CDLL) -> None:
    plan = plan_of(
        Probe("before", "loss", ArenaRange(0, 16)),
        shim("bump", 0, 16),
        Probe("after", "loss", ArenaRange(0, 16)),
        size=64,
    )
    replay = Replay(library, plan, NO_STORAGE)
    replay.put(0, words(1, 2, 3, 4))
    replay.step()
    assert replay.probed == []
    replay.step(watched=True)
    assert replay.probed == [fnv_in_lanes(words(2, 3, 4, 5)), fnv_in_lanes(words(3, 4, 5, 6))]


def test_only_a_watched_step_reads_the_clock_and_its_spans_are_consecutive(
    library: ctypes.CDLL,
) -> None:
    replay = Replay(library, plan_of(*[shim("bump", 0, 16)] * 5, size=64), NO_STORAGE)
    replay.step()
    assert replay.looks == 0
    replay.step(watched=True)
    starts, times = zip(*replay.spans, strict=True)
    assert list(starts) == pytest.approx([0.001, 0.003, 0.005, 0.007, 0.009])
    assert list(times) == pytest.approx([0.001] * 5)


@given(st.integers(1, 24), st.integers(0, 8))
def test_a_watched_step_pauses_where_memory_is_full_and_is_the_same(
    library: ctypes.CDLL, room: int, moving: int
) -> None:
    """With room for the records of few actions, also of those after the step."""
    plan, storage = keeping(moving=4 * moving), card(64)
    probes = [Action(Probe(f"{i}", "loss", ArenaRange(4 * i, 4))) for i in range(3)]
    plan = replace(plan, actions=(*probes[:2], *plan.actions, probes[2]))
    watched = []
    for count in (None, room):
        replay = begun(library, plan, storage, medium_for(plan, storage, 3), watched_count=count)
        replay.step(watched=True)
        seen = [replay[0 : plan.arena_bytes], replay.probed, [s for _, s in replay.spans]]
        starts = [start for start, _ in replay.spans]
        assert starts == sorted(starts)
        assert len(starts) == len(plan.actions) + len(plan.afterwards)
        watched.append((*seen, replay.store.step))
    assert watched[0] == watched[1]
    actions = len(plan.actions) + len(plan.afterwards)
    assert replay.pauses >= -(-actions // room) - 1


@given(st.integers(0, 63))
def test_the_high_water_mark_is_the_last_word_that_was_written(
    library: ctypes.CDLL, word: int
) -> None:
    replay = Replay(library, plan_of(shim("bump", 4 * word, 4), size=256), NO_STORAGE)
    assert replay.touched_bytes == 0
    replay.step()
    assert replay.touched_bytes == 4 * word + 4


# --- canaries ---------------------------------------------------------------------------------


def guarded(kernel: str) -> ExecutionPlan:
    return plan_of(
        Guard(ArenaRange(64, 64)),
        shim("bump", 0, 64),
        Check("a", ArenaRange(64, 64)),
        shim(kernel, 0, 64),
        Check("a", ArenaRange(64, 64)),
        size=128,
    )


def test_an_overwritten_canary_is_reported_by_the_next_check(
    library: ctypes.CDLL,
) -> None:
    Replay(library, guarded("bump"), NO_STORAGE).step()
    with pytest.raises(
        ActionRefused, match="canary was overwritten by the operation before"
    ) as caught:
        Replay(library, guarded("overrun"), NO_STORAGE).step()
    assert caught.value.action == 4


@pytest.mark.parametrize(
    ("kernel", "address", "where"), [("overrun", 64, "after"), ("underrun", 0, "before")]
)
def test_a_write_just_outside_the_arena_is_found_in_every_plan(
    library: ctypes.CDLL, kernel: str, address: int, where: str
) -> None:
    replay = Replay(library, plan_of(shim(kernel, address, 64), size=128), NO_STORAGE)
    with pytest.raises(ActionRefused, match=f"bytes {where} the arena were overwritten") as caught:
        replay.step()
    assert caught.value.action is None


def test_freed_memory_is_filled_with_nan(library: ctypes.CDLL) -> None:
    replay = Replay(library, plan_of(Poison(ArenaRange(4, 8)), size=64), NO_STORAGE)
    replay.put(0, words(1, 2, 3, 4))
    replay.step()
    values = np.frombuffer(replay[0:16], dtype=np.float32)
    assert list(np.isnan(values)) == [False, True, True, False]


# --- storage ----------------------------------------------------------------------------------


def train(replay: Replay, steps: int) -> None:
    for _ in range(steps):
        replay.step()


@pytest.mark.parametrize("storage", CARDS)
@pytest.mark.parametrize("moving", [0, 100])
def test_each_step_reads_what_the_step_before_it_stored(
    library: ctypes.CDLL, storage: Storage, moving: int
) -> None:
    plan = keeping(moving=moving)
    replay = begun(library, plan, storage, medium_for(plan, storage, 3))
    if moving:
        replay.put(plan.arena_bytes - 64 - moving, b"\x17" * moving)
    for _ in range(7):
        replay.step()
    if moving:
        assert replay[plan.arena_bytes - 64 - moving : plan.arena_bytes - 64] == b"\x17" * moving
    for kept, value in zip(plan.kept, initial(plan), strict=True):
        if kept.address is not None:
            assert replay[kept.address : kept.address + kept.bytes] == bumped(value, 7)
    for number, value in enumerate(initial(plan)):
        assert replay.fetch(number) == bumped(value, 7)


@pytest.mark.parametrize("storage", CARDS)
def test_bytes_are_counted_in_whole_pages_and_erase_blocks(
    library: ctypes.CDLL, storage: Storage
) -> None:
    plan = keeping()
    layout = store_layout(plan, storage)
    replay = begun(library, plan, storage, medium_for(plan, storage, 2))
    before = (replay.store.bytes_in, replay.store.bytes_out, replay.store.erased_blocks)
    replay.step()
    assert replay.store.bytes_out - before[1] == layout.written_bytes
    page = layout.page_bytes
    stored = sum(-(-k.bytes // page) * page for k in plan.kept if k.address is None)
    assert replay.store.bytes_in - before[0] == stored
    block = layout.erase_block_bytes
    assert replay.store.erased_blocks - before[2] == (layout.step_bytes // block if block else 0)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_wear_is_even_over_steps_and_runs(library: ctypes.CDLL, parts: int) -> None:
    storage = card(16, 64)
    plan = keeping()
    medium = medium_for(plan, storage, parts, beyond=1)
    for run in range(11):
        replay = begun(library, plan, storage, medium)
        for _ in range(run % 5):
            replay.step()
    used = medium.erases[:-1]
    assert max(used) - min(used) <= 1
    assert sum(used) == sum(1 + run % 5 for run in range(11)) * len(used) // parts
    assert medium.erases[-1] == 0


def test_the_newest_run_is_recovered_even_if_an_older_one_was_longer(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 5)
    longer = begun(library, plan, storage, medium)
    for _ in range(3):
        longer.step()
    begun(library, plan, storage, medium).step()
    later = Replay(library, plan, store_layout(plan, storage), medium.restored())
    assert later.recover() == 1
    assert later.fetch(0) == bumped(initial(plan)[0])


def test_records_that_were_unreadable_for_a_while_do_not_count_as_newer(
    library: ctypes.CDLL,
) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 5)
    layout = store_layout(plan, storage)
    begun(library, plan, storage, medium)
    longer = begun(library, plan, storage, medium)
    train(longer, 2)
    records = {(part * layout.step_bytes + layout.record_offset) // 64 for part in (1, 2, 3)}
    medium.unreadable = records
    begun(library, plan, storage, medium).step()
    medium.unreadable = set()
    later = Replay(library, plan, store_layout(plan, storage), medium.restored())
    assert later.recover() == 1
    assert later.fetch(0) == bumped(initial(plan)[0])


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    storage=st.sampled_from(CARDS),
    parts=st.integers(2, 4),
    steps=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 40).map(lambda n: 4 * n), min_size=1, max_size=5),
    torn=st.sampled_from([0, 4, 40, 1 << 20]),
    earlier=st.booleans(),
)
@example(CARDS[1], 2, 2, list(KEPT), 40, True)
@example(CARDS[4], 2, 2, list(KEPT), 40, True)
@example(CARDS[5], 2, 2, list(KEPT), 0, False)
def test_after_a_power_cut_at_any_moment_the_last_complete_step_is_recovered(
    library: ctypes.CDLL,
    storage: Storage,
    parts: int,
    steps: int,
    sizes: list[int],
    torn: int,
    earlier: bool,
) -> None:
    """Cut the power at every single transfer, which is then done in part; recover and compare.

    Training continues from there as if power had never been cut.
    """
    plan = keeping(sizes=tuple(sizes), moving=24)
    values = initial(plan)
    start = medium_for(plan, storage, parts)
    if earlier:
        begun(library, plan, storage, start).step()
    whole = start.restored()
    replay = begun(library, plan, storage, whole)
    record_pages = -(-record_bytes(len(plan.kept)) // storage.page_bytes)
    completed_at = [whole.calls]
    for _ in range(steps):
        replay.step()
        completed_at.append(whole.calls)
    for cut_at in range(completed_at[0], whole.calls):
        medium = start.restored()
        medium.cut_at, medium.torn = cut_at, torn
        broken = begun(library, plan, storage, medium)
        with pytest.raises(ActionRefused, match="there is no power"):
            train(broken, steps)
        last = sum(calls <= cut_at for calls in completed_at) - 1
        # A record is complete once its pages are all as written, even if that was not acknowledged:
        # pages that come last may hold what they held before.
        is_in_record = completed_at[last + 1] - cut_at <= record_pages
        allowed = {last, last + 1} if is_in_record else {last}
        assert_recoverable(library, plan, storage, medium.restored(), values, allowed)


def assert_recoverable(
    library: ctypes.CDLL,
    plan: ExecutionPlan,
    storage: Storage,
    medium: Medium,
    values: list[bytes],
    allowed: set[int],
) -> None:
    after = Replay(library, plan, store_layout(plan, storage), medium)
    step = after.recover()
    assert step in allowed
    for number, value in enumerate(values):
        assert after.fetch(number) == bumped(value, step)
    for number, kept in enumerate(plan.kept):
        if kept.address is not None:
            after.fetch(number, kept.address)
    after.step()
    for number, value in enumerate(values):
        assert after.fetch(number) == bumped(value, step + 1)


@pytest.mark.parametrize("storage", [card(64), card(16, 64)])
def test_after_a_power_cut_as_a_run_begins_the_earlier_run_is_recovered(
    library: ctypes.CDLL, storage: Storage
) -> None:
    plan = keeping()
    start = medium_for(plan, storage, 2)
    begun(library, plan, storage, start).step()
    whole = start.restored()
    begun(library, plan, storage, whole)
    for cut_at in range(whole.calls):
        medium = start.restored()
        medium.cut_at = cut_at
        with pytest.raises(ActionRefused):
            begun(library, plan, storage, medium)
        # The written half of a record's last page may hold everything that matters.
        allowed = {0, 1} if cut_at + 1 == whole.calls else {1}
        assert_recoverable(library, plan, storage, medium.restored(), initial(plan), allowed)


def test_a_step_that_failed_can_be_tried_again(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(16, 64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    replay.step()
    medium.cut_at = medium.calls + 3
    with pytest.raises(ActionRefused):
        replay.step()
    medium.cut_at = None
    assert_recoverable(library, plan, storage, medium, initial(plan), {1})


def test_a_damaged_page_stops_the_step_that_reads_it(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    place = medium.content.index(initial(plan)[3])
    medium.content[place] ^= 0x10
    with pytest.raises(ActionRefused) as caught:
        replay.step()
    slot = plan.kept[3].slot
    assert f"slot {slot} at byte {place} of the storage holds other data" in str(caught.value)
    blamed = plan.actions[caught.value.action or 0].does
    assert isinstance(blamed, PageIn)
    assert blamed.slot == slot
    with pytest.raises(ActionRefused, match="holds other data"):
        replay.fetch(3)
    assert replay.fetch(1) == initial(plan)[1]


def test_the_error_gives_the_place_of_an_unreadable_page(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    place = medium.content.index(initial(plan)[1])
    medium.unreadable = {place // 64}
    said = f"slot {plan.kept[1].slot} at byte {place} of the storage cannot be read: .* worn out"
    with pytest.raises(ActionRefused, match=said):
        replay.step()


def test_an_unreadable_record_does_not_hide_the_others(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 3)
    layout = store_layout(plan, storage)
    replay = begun(library, plan, storage, medium)
    replay.step()
    medium.unreadable = {(2 * layout.step_bytes + layout.record_offset) // 64}
    assert replay.recover() == 1
    medium.unreadable.add((layout.step_bytes + layout.record_offset) // 64)
    assert replay.recover() == 0
    assert replay.fetch(3) == initial(plan)[3]


def test_a_plan_does_not_recover_the_steps_of_another(library: ctypes.CDLL) -> None:
    plan, storage = keeping("one"), card(64)
    medium = medium_for(plan, storage, 2)
    begun(library, plan, storage, medium)
    other = Replay(library, keeping("other"), store_layout(plan, storage), medium)
    with pytest.raises(ActionRefused, match="no complete step of this plan"):
        other.recover()
    with pytest.raises(
        ActionRefused, match="needs values of an earlier step, but none is complete"
    ):
        other.step()


def test_a_storage_with_room_for_one_step_only_is_refused(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 1, beyond=layout.step_bytes // 64 - 1)
    said = rf"has {len(medium.content)} bytes for steps that write {layout.step_bytes} each; two"
    with pytest.raises(ActionRefused, match=said):
        Replay(library, plan, layout, medium)


@pytest.mark.parametrize(("storage", "parts"), [(card(64), 8), (card(16, 64), 2**32 - 1)])
def test_parts_of_a_huge_storage_are_few_on_a_card_and_as_many_as_can_be_counted_on_flash(
    library: ctypes.CDLL, storage: Storage, parts: int
) -> None:
    """A run begins by reading a record of each; a card levels its wear by itself."""
    plan = keeping()
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    medium.structure.scratch_bytes = (2**32 + 1) * layout.step_bytes
    assert Replay(library, plan, layout, medium).store.part_count == parts


def test_a_plan_that_pages_is_refused_without_storage(library: ctypes.CDLL) -> None:
    plan = keeping()
    with pytest.raises(ActionRefused, match="no storage to page to"):
        Replay(library, plan, store_layout(plan, card(64)))


@pytest.mark.parametrize("storage", [card(64), card(16, 64)])
def test_a_plan_that_keeps_nothing_needs_no_first_step(
    library: ctypes.CDLL, storage: Storage
) -> None:
    """It needs no record either, and its wear is even."""
    block = ArenaRange(0, 100)
    plan = ExecutionPlan(
        "moving",
        128,
        {},
        (),
        (
            Action(PageOut("x", block, 0)),
            Action(Poison(block)),
            Action(PageIn("x", block, 0)),
            shim("bump", 0, 100),
        ),
        slot_bytes=(100,),
    )
    medium = medium_for(plan, storage, 3)
    replay = Replay(library, plan, store_layout(plan, storage), medium)
    replay.put(0, words(*range(25)))
    for _ in range(9):
        replay.step()
    assert replay[0:100] == bumped(words(*range(25)), 9)
    assert set(medium.erases) <= {3, 0}
