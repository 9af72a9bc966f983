"""The store with steps of another plan, a worn-out medium, or no valid record."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pytest

from devices.plan import Action, ArenaRange, ExecutionPlan, Kept, PageIn, PageOut, Poison
from profiler.building.store_layout import store_layout
from tests.support.onboard.executor import (
    ActionRefused,
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

# --- plans and their records --------------------------------------------------------------------


def with_slot_bytes(plan: ExecutionPlan, slot: int) -> ExecutionPlan:
    sizes = list(plan.slot_bytes)
    sizes[slot] += 4
    return replace(plan, slot_bytes=tuple(sizes))


def with_kept(plan: ExecutionPlan, number: int, change: Callable[[Kept], Kept]) -> ExecutionPlan:
    kept = list(plan.kept)
    kept[number] = change(kept[number])
    return replace(plan, kept=tuple(kept))


def with_address(plan: ExecutionPlan, number: int) -> ExecutionPlan:
    """The plan with one page-out, of the step or after it, from four bytes further on."""
    actions = [*plan.actions, *plan.afterwards]
    outs = [i for i, each in enumerate(actions) if isinstance(each.does, PageOut)]
    page_out = actions[outs[number]].does
    assert isinstance(page_out, PageOut)
    block = replace(page_out.block, address=page_out.block.address + 4)
    actions[outs[number]] = Action(replace(page_out, block=block))
    within = len(plan.actions)
    return replace(plan, actions=tuple(actions[:within]), afterwards=tuple(actions[within:]))


def with_action(
    plan: ExecutionPlan, number: int, change: Callable[[ArenaRange, int], PageIn | PageOut]
) -> ExecutionPlan:
    """The plan with one transfer changed; the first pages in, and the last pages out."""
    actions = list(plan.actions)
    transfers = [i for i, each in enumerate(actions) if isinstance(each.does, PageIn | PageOut)]
    transfer = actions[transfers[number]].does
    assert isinstance(transfer, PageIn | PageOut)
    actions[transfers[number]] = Action(change(transfer.block, transfer.slot))
    return replace(plan, actions=tuple(actions))


@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize(
    "change",
    [
        with_slot_bytes,
        lambda plan, at: with_kept(plan, at, lambda kept: replace(kept, bytes=kept.bytes + 4)),
        lambda plan, at: with_kept(plan, at, lambda kept: replace(kept, address=60)),
        lambda plan, at: with_kept(plan, at, lambda kept: replace(kept, slot=(kept.slot or 0) ^ 1)),
        with_address,
        lambda plan, at: with_action(
            plan, at, lambda block, slot: (PageOut if at == 0 else PageIn)("x", block, slot)
        ),
        lambda plan, at: with_action(
            plan,
            at,
            lambda block, slot: (
                PageOut("x", block, slot ^ 1) if at else PageIn("x", block, slot ^ 1, "last step")
            ),
        ),
        lambda plan, at: replace(plan, name="Kept" if at == 0 else "kepT"),
        lambda plan, at: replace(plan, arena_bytes=plan.arena_bytes + 64),
    ],
    ids=[
        *("bytes of a slot", "bytes kept", "address between steps", "slot of a kept tensor"),
        *("address of an action", "kind of an action", "slot of an action"),
        *("letter of the name", "arena"),
    ],
)
def test_plans_that_differ_in_any_field_do_not_recover_each_others_steps(
    library: ctypes.CDLL, change: Callable[[ExecutionPlan, int], ExecutionPlan], at: int
) -> None:
    plan, storage = keeping(), card(64)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    begun(library, plan, storage, medium)
    other = change(plan, at)
    assert other != plan
    assert Replay(library, plan, layout, medium).recover() == 0
    with pytest.raises(ActionRefused, match="no complete step of this plan"):
        Replay(library, other, layout, medium).recover()


def test_a_plan_with_other_slot_offsets_does_not_recover(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    begun(library, plan, storage, medium)
    for moved in ((64, *layout.offsets[1:]), (*layout.offsets[:-1], 0)):
        with pytest.raises(ActionRefused, match="no complete step of this plan"):
            Replay(library, plan, replace(layout, offsets=moved), medium).recover()


# --- failing media ------------------------------------------------------------------------------


def test_after_a_recovery_without_result_no_step_can_run(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    replay.step()
    medium.content[:] = bytes(len(medium.content))
    with pytest.raises(ActionRefused, match="no complete step of this plan"):
        replay.recover()
    with pytest.raises(ActionRefused, match="no step is complete yet"):
        replay.fetch(0)
    with pytest.raises(ActionRefused, match="but none is complete"):
        replay.step()


def test_a_block_that_cannot_be_erased_is_not_written(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(16, 64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    medium.unerasable = {store_layout(plan, storage).step_bytes // 64}
    before = replay.store.bytes_out
    with pytest.raises(
        ActionRefused,
        match=r"slot 0 at byte \d+ of the storage cannot be written: the block is worn out",
    ):
        replay.step()
    assert replay.store.bytes_out == before
    medium.unerasable = set()
    assert replay.recover() == 0
    assert [replay.fetch(n) for n in range(4)] == initial(plan)
    replay.fetch(0, plan.kept[0].address or 0)
    replay.fetch(2, plan.kept[2].address or 0)
    replay.step()
    assert replay.fetch(0) == bumped(initial(plan)[0])


def test_the_error_gives_the_place_of_a_slot_that_cannot_be_written(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(16, 64)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    place = layout.step_bytes + layout.offsets[1]
    assert layout.offsets[1] == 64
    medium.unerasable = {place // 64}
    with pytest.raises(
        ActionRefused, match=f"slot 1 at byte {place} of the storage cannot be written"
    ):
        replay.step()


# --- counters -----------------------------------------------------------------------------------


def test_reading_counts_whole_pages_whatever_the_size_of_a_tensor(library: ctypes.CDLL) -> None:
    plan, storage = keeping(sizes=(4, 28, 4, 100)), card(64)
    replay = begun(library, plan, storage, medium_for(plan, storage, 2))
    before = replay.store.bytes_in
    replay.step()
    assert replay.store.bytes_in - before == 64 + 128


def test_recovery_counts_the_records_that_it_reads(library: ctypes.CDLL) -> None:
    """It reads one record of each part, and the newest again in full; each takes a page."""
    plan, storage = keeping(), card(64)
    replay = begun(library, plan, storage, medium_for(plan, storage, 2))
    replay.step()
    before = replay.store.bytes_in
    replay.recover()
    assert replay.store.bytes_in - before == 3 * 64


# --- plans at their limits ----------------------------------------------------------------------


def test_a_plan_may_keep_a_single_tensor_in_storage(library: ctypes.CDLL) -> None:
    place, value = ArenaRange(0, 64), words(*range(16))
    plan = ExecutionPlan(
        "one tensor",
        128,
        {},
        (Kept("t", "t", 64, None, 0),),
        (
            Action(PageIn("t", place, 0, "last step")),
            shim("bump", 0, 64),
            Action(PageOut("t", place, 0)),
        ),
        slot_bytes=(64,),
    )
    storage = card(64)
    replay = Replay(library, plan, store_layout(plan, storage), medium_for(plan, storage, 2))
    replay.keep(0, value)
    replay.commit()
    for _ in range(3):
        replay.step()
    assert replay.fetch(0) == bumped(value, 3)


def test_a_plan_that_keeps_nothing_needs_room_for_one_step(library: ctypes.CDLL) -> None:
    block = ArenaRange(0, 64)
    actions = (Action(PageOut("x", block, 0)), Action(PageIn("x", block, 0)), shim("bump", 0, 64))
    plan = ExecutionPlan("moving", 128, {}, (), actions, slot_bytes=(64,))
    storage = card(64)
    replay = Replay(library, plan, store_layout(plan, storage), medium_for(plan, storage, 1))
    replay.put(0, words(*range(16)))
    for _ in range(2):
        replay.step()
    assert replay[0:64] == bumped(words(*range(16)), 2)


def test_a_new_run_erases_what_a_failed_step_has_written(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(16, 64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    medium.cut_at = medium.calls + 4
    with pytest.raises(ActionRefused, match="no power"):
        replay.step()
    medium.cut_at = None
    for number, value in enumerate(initial(plan)):
        replay.keep(number, value, plan.kept[number].address or 0)
    replay.commit()
    assert [replay.fetch(number) for number in range(4)] == initial(plan)
    assert replay.recover() == 0


@pytest.mark.parametrize("number", [4, 9])
def test_an_unknown_number_can_neither_be_kept_nor_fetched(
    library: ctypes.CDLL, number: int
) -> None:
    plan, storage = keeping(), card(64)
    replay = begun(library, plan, storage, medium_for(plan, storage, 2))
    with pytest.raises(ActionRefused, match="nothing is kept under this number"):
        replay.fetch(number)
    with pytest.raises(ActionRefused, match="nothing is kept under this number"):
        replay.keep(number, words(1))


@pytest.mark.parametrize(
    ("page_bytes", "block_bytes", "what"),
    [(32, 64, "pages"), (16, 96, "erase blocks"), (16, 128, "erase blocks")],
)
def test_a_medium_with_other_pages_or_erase_blocks_is_refused(
    library: ctypes.CDLL, page_bytes: int, block_bytes: int, what: str
) -> None:
    plan, storage = keeping(), card(16, 64)
    medium = medium_for(plan, storage, 2)
    medium.structure.page_bytes = page_bytes
    medium.structure.erase_block_bytes = block_bytes
    with pytest.raises(ActionRefused, match=f"the plan's {what} are not whole {what}"):
        Replay(library, plan, store_layout(plan, storage), medium)


# --- recovery -----------------------------------------------------------------------------------


def test_recovery_fails_if_no_record_can_be_read(library: ctypes.CDLL) -> None:
    plan, storage = keeping(), card(64)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    medium.unreadable = set(range(len(medium.content) // 64))
    with pytest.raises(ActionRefused, match=r"record of part \d at byte \d+ .* cannot be read"):
        replay.recover()


def test_an_unreadable_record_among_empty_ones_counts_as_no_step(
    library: ctypes.CDLL,
) -> None:
    plan, storage = keeping(), card(64)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    medium.unreadable = {(layout.step_bytes + layout.record_offset) // 64}
    with pytest.raises(ActionRefused, match="no complete step of this plan"):
        Replay(library, plan, layout, medium).recover()


# --- the end of the arena -----------------------------------------------------------------------


def moving(size: int, beyond: int) -> ExecutionPlan:
    """A plan that pages a tensor out and in, ``beyond`` bytes before the arena's end."""
    place = ArenaRange(64, size)
    actions = (
        Action(PageOut("x", place, 0)),
        Action(Poison(place)),
        Action(PageIn("x", place, 0)),
    )
    return ExecutionPlan("moving", 64 + size + beyond, {}, (), actions, slot_bytes=(size,))


@pytest.mark.parametrize(
    ("size", "beyond", "writes"), [(100, 0, 2), (100, 24, 2), (100, 28, 1), (128, 0, 1), (28, 0, 1)]
)
def test_the_rest_of_a_tensors_last_page_is_arena_bytes_or_zeros(
    library: ctypes.CDLL, size: int, beyond: int, writes: int
) -> None:
    plan, storage = moving(size, beyond), card(64)
    medium = medium_for(plan, storage, 1)
    replay = Replay(library, plan, store_layout(plan, storage), medium)
    content = words(*range(1, 1 + size // 4))
    replay.put(64, content)
    replay.step()
    assert replay[64 : 64 + size] == content
    assert medium.content[:size] == content
    reads = 1 if size % 64 == 0 or size < 64 else 2
    assert medium.calls == writes + reads
    end = -(-size // 64) * 64
    if beyond < end - size:
        assert medium.content[size:end] == bytes(end - size)
