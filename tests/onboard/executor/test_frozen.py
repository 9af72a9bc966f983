"""Values in storage that no step changes: written once, read by every step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devices.description import Storage
from devices.plan import ExecutionPlan
from profiler.building.store_layout import store_layout
from tests.support.onboard.executor import (
    CARDS,
    ROWS,
    ActionRefused,
    Medium,
    Replay,
    build_executor,
    card,
    initial,
    looking_up,
    medium_for,
    reading_frozen,
    words,
)

BATCH = (1, 5, 5, 0)
KEY = 0xFEDCBA9876543210


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_executor(tmp_path_factory.mktemp("executor"))


def frozen_values(plan: ExecutionPlan, key: int = KEY) -> list[bytes]:
    return [
        words(*range(number + key % 7, number + key % 7 + frozen.bytes // 4))
        for number, frozen in enumerate(plan.frozen)
    ]


def table_rows(plan: ExecutionPlan, key: int = KEY) -> list[bytes]:
    size = plan.tables[0].row_bytes // 4
    return [words(*range(100 * row + key % 7, 100 * row + key % 7 + size)) for row in range(ROWS)]


def freeze(replay: Replay, key: int = KEY) -> None:
    """Write the frozen values of this key, the table a few rows at a time."""
    replay.freeze(key, frozen_values(replay.plan, key))
    if replay.plan.tables:
        rows = table_rows(replay.plan, key)
        for first in range(0, ROWS, 2):
            replay.keep_rows(0, first, b"".join(rows[first : first + 2]))


def opened(library: ctypes.CDLL, plan: ExecutionPlan, storage: Storage, medium: Medium) -> Replay:
    return Replay(library, plan, store_layout(plan, storage), medium)


def begin(replay: Replay) -> None:
    for number, value in enumerate(initial(replay.plan)):
        replay.keep(number, value)
    replay.commit()


def begun(
    library: ctypes.CDLL, plan: ExecutionPlan, storage: Storage, medium: Medium, key: int = KEY
) -> Replay:
    replay = opened(library, plan, storage, medium)
    freeze(replay, key)
    begin(replay)
    return replay


def train(replay: Replay, steps: int = 1) -> None:
    for _ in range(steps):
        if replay.plan.tables:
            replay.put(0, words(*BATCH))
        replay.step()


def added(one: bytes, other: bytes, times: int) -> bytes:
    pairs = zip(memoryview(one).cast("I"), memoryview(other).cast("I"), strict=True)
    return words(*((a + times * b) % 2**32 for a, b in pairs))


def expected(plan: ExecutionPlan, steps: int, key: int = KEY) -> list[bytes]:
    """Kept values after a number of steps."""
    frozen = frozen_values(plan, key)
    if plan.tables:
        rows = table_rows(plan, key)
        zeros = bytes(plan.tables[0].row_bytes)
        first = [index not in BATCH[:at] for at, index in enumerate(BATCH)]
        chosen = zip(BATCH, first, strict=True)
        frozen.append(b"".join(rows[row] if is_new else zeros for row, is_new in chosen))
    return [added(a, b, steps) for a, b in zip(initial(plan), frozen, strict=True)]


def kept_values(replay: Replay) -> list[bytes]:
    return [replay.fetch(number) for number in range(len(replay.plan.kept))]


@pytest.mark.parametrize("storage", CARDS)
def test_steps_read_frozen_values_and_never_write_them(
    library: ctypes.CDLL, storage: Storage
) -> None:
    plan = reading_frozen((28, 100, 4), row_words=3)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    frozen = bytes(medium.content[: layout.frozen_bytes])
    erases = medium.erases[: layout.frozen_bytes // (storage.erase_block_bytes or 1)]
    written = replay.store.bytes_out
    for step in range(1, 5):
        train(replay)
        assert kept_values(replay) == expected(plan, step)
    assert medium.content[: layout.frozen_bytes] == frozen
    assert medium.erases[: len(erases)] == erases
    assert replay.store.bytes_out - written == 4 * layout.written_bytes


@pytest.mark.parametrize("storage", [card(64), card(16, 64)])
def test_a_second_start_with_the_same_values_writes_none_of_them(
    library: ctypes.CDLL, storage: Storage
) -> None:
    plan = reading_frozen((28, 100), row_words=2)
    medium = medium_for(plan, storage, 3)
    train(begun(library, plan, storage, medium), 2)
    replay = opened(library, plan, storage, medium.restored())
    freeze(replay)
    assert replay.store.bytes_out == replay.store.erased_blocks == 0
    assert replay.recover() == 2
    train(replay)
    assert kept_values(replay) == expected(plan, 3)


@pytest.mark.parametrize("row_words", [None, 2])
@pytest.mark.parametrize("storage", [card(64), card(16, 64)])
def test_a_start_writes_values_again_that_something_has_overwritten(
    library: ctypes.CDLL, storage: Storage, row_words: int | None
) -> None:
    plan = reading_frozen((28, 100), row_words=row_words)
    layout = store_layout(plan, storage)
    medium = medium_for(plan, storage, 3)
    train(begun(library, plan, storage, medium), 2)
    frozen = bytes(medium.content[: layout.frozen_bytes])
    places = [*layout.frozen_offsets]
    for offset, stride in zip(layout.table_offsets, layout.row_strides, strict=True):
        places += [offset, offset + (ROWS - 1) * stride]
    for place in places:
        overwritten = medium.restored()
        overwritten.content[place] ^= 1
        replay = begun(library, plan, storage, overwritten)
        train(replay)
        assert kept_values(replay) == expected(plan, 1)
        assert overwritten.content[place] == frozen[place]


def test_a_table_that_steps_change_is_not_verified(library: ctypes.CDLL) -> None:
    plan, storage = looking_up(), card(16)
    tables = store_layout(plan, storage).table_bytes // 16
    replay = opened(library, plan, storage, medium_for(plan, storage, 2, tables))
    with pytest.raises(ActionRefused, match="steps change the table of this number"):
        replay.verify_rows(0, 0, 1)


@pytest.mark.parametrize("storage", [card(64), card(16, 64)])
def test_a_start_with_other_values_replaces_them_and_the_steps_made_with_them(
    library: ctypes.CDLL, storage: Storage
) -> None:
    plan = reading_frozen((28, 100), row_words=2)
    medium = medium_for(plan, storage, 3)
    train(begun(library, plan, storage, medium), 2)
    replay = opened(library, plan, storage, medium)
    freeze(replay, KEY + 1)
    with pytest.raises(ActionRefused, match="holds no complete step of this plan"):
        replay.recover()
    begin(replay)
    train(replay)
    assert kept_values(replay) == expected(plan, 1, KEY + 1)


def test_another_schedule_of_the_network_finds_the_frozen_values(library: ctypes.CDLL) -> None:
    plan, storage = reading_frozen((28, 100)), card(16, 64)
    other = reading_frozen((28, 100))
    other = ExecutionPlan(
        **{**vars(other), "name": "another schedule", "arena_bytes": other.arena_bytes + 64}
    )
    medium = medium_for(plan, storage, 3)
    train(begun(library, plan, storage, medium), 1)
    replay = begun(library, other, storage, medium)
    assert replay.store.bytes_out == store_layout(other, storage).written_bytes  # step 0
    train(replay)
    assert kept_values(replay) == expected(other, 1)


def test_no_run_begins_without_all_frozen_values(library: ctypes.CDLL) -> None:
    plan, storage = reading_frozen((28, 100), row_words=2), card(16)
    replay = opened(library, plan, storage, medium_for(plan, storage, 2))
    with pytest.raises(ActionRefused, match="frozen values must be written to the storage first"):
        begin(replay)
    replay.freeze(KEY, frozen_values(plan))  # without the table
    with pytest.raises(ActionRefused, match="frozen values must be written to the storage first"):
        begin(replay)
    with pytest.raises(ActionRefused, match="does not hold all frozen values of this plan"):
        replay.recover()


def test_frozen_values_are_written_in_order(library: ctypes.CDLL) -> None:
    plan, storage = reading_frozen((28, 100)), card(16)
    replay = opened(library, plan, storage, medium_for(plan, storage, 2))
    values = frozen_values(plan)
    with pytest.raises(ActionRefused, match="in the order of their places"):
        replay.freeze(KEY, values[1:], first=1)
    with pytest.raises(ActionRefused, match="nothing is frozen under this number"):
        replay.freeze(KEY, [*values, values[0]])


@pytest.mark.parametrize("at", [0, 32])
def test_a_damaged_frozen_page_stops_the_step_that_reads_it(library: ctypes.CDLL, at: int) -> None:
    plan, storage = reading_frozen((28,), row_words=2), card(16)
    medium = medium_for(plan, storage, 2)
    replay = begun(library, plan, storage, medium)
    medium.content[at] ^= 1
    what = "row 0 at byte 32" if at else "frozen tensor 0 at byte 0"
    with pytest.raises(ActionRefused, match=f"{what} of the storage holds other data"):
        train(replay)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    storage=st.sampled_from(CARDS),
    parts=st.integers(2, 3),
    sizes=st.lists(st.integers(1, 40).map(lambda n: 4 * n), min_size=1, max_size=3),
    row_words=st.none() | st.integers(1, 9),
    torn=st.sampled_from([0, 4, 40, 1 << 20]),
    earlier=st.sampled_from([None, KEY, KEY + 1]),
)
@example(CARDS[1], 2, [28, 100], 3, 40, KEY + 1)
@example(CARDS[4], 2, [28, 100], 3, 40, KEY + 1)
@example(CARDS[5], 2, [28, 100], None, 0, KEY)
def test_after_a_power_cut_at_any_moment_no_step_uses_other_frozen_values(
    library: ctypes.CDLL,
    storage: Storage,
    parts: int,
    sizes: Sequence[int],
    row_words: int | None,
    torn: int,
    earlier: int | None,
) -> None:
    """Cut the power at every transfer, also at those that write the frozen values.

    What is recovered then has been computed with the frozen values that the storage holds. The next
    start continues, or begins again, and computes as if power had never been cut.
    """
    plan = reading_frozen(sizes, row_words)
    start = medium_for(plan, storage, parts)
    if earlier is not None:
        train(begun(library, plan, storage, start, earlier), 2)
    whole = start.restored()
    replay = begun(library, plan, storage, whole)
    completed_at = [whole.calls]
    train(replay)
    completed_at.append(whole.calls)
    for cut_at in range(whole.calls):
        medium = start.restored()
        medium.cut_at, medium.torn = cut_at, torn
        with pytest.raises(ActionRefused, match="there is no power"):
            train(begun(library, plan, storage, medium))
        after = opened(library, plan, storage, medium.restored())
        try:
            step, key = after.recover(), after.store.frozen_key
        except ActionRefused:
            assert cut_at < completed_at[0]
        else:
            assert key in {KEY, earlier}
            assert kept_values(after) == expected(plan, step, key)
            train(after)
            assert kept_values(after) == expected(plan, step + 1, key)
        again = begun(library, plan, storage, medium.restored())
        train(again, 2)
        assert kept_values(again) == expected(plan, 2)
