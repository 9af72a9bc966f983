"""Tables in storage of which a step reads and changes only the rows that its batch names."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devices.errors import RequestRefused
from devices.plan import ExecutionPlan
from profiler.building.store_layout import store_layout
from tests.support.onboard.executor import (
    CHOSEN,
    ROWS,
    ActionRefused,
    Medium,
    Replay,
    build_executor,
    bumped,
    card,
    looking_up,
    medium_for,
    words,
)

BATCHES = [(1, 5, 5, 0), (8, 8, 8, 8), (0, 1, 2, 3), (5, 7, 1, 5)]
COUNTER = 5


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build_executor(tmp_path_factory.mktemp("executor"))


def initial_tables(plan: ExecutionPlan) -> list[list[bytes]]:
    """The rows of each table."""
    return [
        [words(*range(1000 * row + table, 1000 * row + table + size)) for row in range(ROWS)]
        for table, size in enumerate(table.row_bytes // 4 for table in plan.tables)
    ]


def tables_after(plan: ExecutionPlan, steps: int) -> list[list[bytes]]:
    """What the rows must be after a number of steps, of which each has its own batch."""
    tables = initial_tables(plan)
    for number in range(steps):
        for rows in tables:
            for row in set(batch(number)):
                rows[row] = bumped(rows[row])
    return tables


def batch(step: int) -> tuple[int, ...]:
    return BATCHES[step % len(BATCHES)]


def begun(library: ctypes.CDLL, plan: ExecutionPlan, medium: Medium, page_bytes: int) -> Replay:
    replay = Replay(library, plan, store_layout(plan, card(page_bytes)), medium)
    for number, rows in enumerate(initial_tables(plan)):
        replay.keep_rows(number, 0, rows[0])
        for first in range(1, ROWS, 2):
            replay.keep_rows(number, first, b"".join(rows[first : first + 2]))
    replay.keep(len(plan.tables), words(COUNTER), 4 * CHOSEN)
    replay.commit()
    return replay


def train(replay: Replay, first: int, steps: int) -> None:
    for number in range(first, first + steps):
        replay.put(0, words(*batch(number)))
        replay.step()


def read(replay: Replay) -> list[list[bytes]]:
    """All rows, a few at a time; afterwards the counter is in RAM again."""
    found = []
    for number, table in enumerate(replay.plan.tables):
        size, most = table.row_bytes, 3
        data = b"".join(
            replay.fetch_rows(number, first, min(most, ROWS - first))
            for first in range(0, ROWS, most)
        )
        found.append([data[begin : begin + size] for begin in range(0, len(data), size)])
    replay.fetch(len(replay.plan.tables), 4 * CHOSEN)
    return found


@pytest.mark.parametrize("page_bytes", [4, 16, 64])
def test_only_the_rows_of_the_batch_change(library: ctypes.CDLL, page_bytes: int) -> None:
    plan = looking_up()
    medium = room_for(plan, page_bytes, 3)
    replay = begun(library, plan, medium, page_bytes)
    for steps in range(6):
        assert read(replay) == tables_after(plan, steps)
        assert replay.fetch(2, 4 * CHOSEN) == words(COUNTER + steps)
        train(replay, steps, 1)


def room_for(plan: ExecutionPlan, page_bytes: int, parts: int) -> Medium:
    storage = card(page_bytes)
    table_pages = store_layout(plan, storage).table_bytes // page_bytes
    return medium_for(plan, storage, parts, table_pages)


def test_indices_become_positions_of_their_rows(library: ctypes.CDLL) -> None:
    plan = looking_up()
    replay = begun(library, plan, room_for(plan, 16, 2), 16)
    replay.put(0, words(7, 2, 7, 2))
    replay.step()
    assert replay[0 : 4 * CHOSEN] == words(0, 1, 0, 1)
    # Positions without a row are zero, to which the step has added one.
    begin, size = 4 * CHOSEN + 4, plan.tables[0].row_bytes
    assert replay[begin + 2 * size : begin + 4 * size] == words(*[1] * (2 * size // 4))


@pytest.mark.parametrize("index", [ROWS, 2**32 - 1])
def test_an_index_beyond_the_table_fails_the_step(library: ctypes.CDLL, index: int) -> None:
    plan = looking_up()
    replay = begun(library, plan, room_for(plan, 16, 2), 16)
    replay.put(0, words(0, 1, index, 2))
    with pytest.raises(ActionRefused, match="beyond the last row") as refused:
        replay.step()
    assert refused.value.action == 0
    assert replay.recover() == 0
    assert read(replay) == tables_after(plan, 0)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    page_bytes=st.sampled_from([4, 16, 64]),
    parts=st.integers(2, 4),
    steps=st.integers(1, 4),
    row_words=st.lists(st.integers(1, 20), min_size=1, max_size=2),
    torn=st.sampled_from([0, 4, 40, 1 << 20]),
)
@example(16, 2, 3, [3, 1], 4)
def test_after_a_power_cut_at_any_moment_every_row_is_that_of_the_last_complete_step(
    library: ctypes.CDLL,
    page_bytes: int,
    parts: int,
    steps: int,
    row_words: list[int],
    torn: int,
) -> None:
    """Cut the power at every transfer, also at those that write rows to their tables.

    A second cut comes while the recovered storage is brought up to date. Training then continues as
    if power had never been cut.
    """
    plan = looking_up(tuple(row_words))
    start = room_for(plan, page_bytes, parts)
    whole = start.restored()
    replay = begun(library, plan, whole, page_bytes)
    completed_at = [whole.calls]
    for number in range(steps):
        train(replay, number, 1)
        completed_at.append(whole.calls)
    for cut_at in range(completed_at[0], whole.calls):
        medium = start.restored()
        medium.cut_at, medium.torn = cut_at, torn
        broken = begun(library, plan, medium, page_bytes)
        with pytest.raises(ActionRefused, match="there is no power"):
            train(broken, 0, steps)
        last = sum(calls <= cut_at for calls in completed_at) - 1
        allowed = {last, last + 1} if cut_at + 1 in completed_at else {last}
        again = medium.restored()
        again.cut_at, again.torn = cut_at % 7 + 4, torn
        interrupted = Replay(library, plan, store_layout(plan, card(page_bytes)), again)
        with suppress(ActionRefused):
            interrupted.recover()
            read(interrupted)
        after = Replay(library, plan, store_layout(plan, card(page_bytes)), again.restored())
        step = after.recover()
        assert step in allowed
        assert read(after) == tables_after(plan, step)
        counter = len(plan.tables)
        assert after.fetch(counter, 4 * CHOSEN) == words(COUNTER + step)
        train(after, step, 2)
        assert read(after) == tables_after(plan, step + 2)


@pytest.mark.parametrize(("settled", "allowed"), [(False, {1, 2}), (True, {2})])
def test_a_run_that_was_cut_while_it_began_leaves_a_step_only_if_its_tables_are_untouched(
    library: ctypes.CDLL, settled: bool, allowed: set[int]
) -> None:
    """Its initial values may already be in the tables of the earlier run."""
    plan = looking_up()
    start = room_for(plan, 16, 2)
    earlier = begun(library, plan, start, 16)
    train(earlier, 0, 2)
    if settled:
        read(earlier)
    whole = start.restored()
    begun(library, plan, whole, 16)
    recovered = set()
    for cut_at in range(whole.calls):
        medium = start.restored()
        medium.cut_at = cut_at
        with pytest.raises(ActionRefused):
            begun(library, plan, medium, 16)
        after = Replay(library, plan, store_layout(plan, card(16)), medium.restored())
        with suppress(ActionRefused):
            step = after.recover()
            recovered.add(step)
            assert read(after) == tables_after(plan, step)
    assert recovered == allowed


def test_without_its_record_the_step_before_is_not_taken_for_the_last(
    library: ctypes.CDLL,
) -> None:
    """Rows of the last step are already in the tables."""
    plan = looking_up()
    medium = room_for(plan, 16, 2)
    replay = begun(library, plan, medium, 16)
    train(replay, 0, 2)
    read(replay)
    layout = store_layout(plan, card(16))
    record = layout.table_bytes + layout.record_offset  # of step 2, in part 0
    medium.content[record] ^= 1
    after = Replay(library, plan, layout, medium.restored())
    with pytest.raises(ActionRefused, match="holds no complete step of this plan"):
        after.recover()


def test_a_damaged_row_stops_the_step_that_reads_it(library: ctypes.CDLL) -> None:
    plan = looking_up()
    medium = room_for(plan, 16, 2)
    replay = begun(library, plan, medium, 16)
    medium.content[16 * 5] ^= 1
    train(replay, 2, 1)
    replay.put(0, words(5, 0, 0, 0))
    with pytest.raises(ActionRefused, match="row 5 at byte 80 of the storage holds other data"):
        replay.step()


def test_raw_flash_is_refused_before_a_program_is_built() -> None:
    with pytest.raises(RequestRefused, match="Keep parameters in RAM"):
        store_layout(looking_up(), card(16, 64))
