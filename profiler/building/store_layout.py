"""Layout of a plan's steps on a medium.

Tables come first, with whole pages for each row. Every step writes a part of its own: all slots in
order, and at the end the record that makes the part valid. The next step writes the next part,
cyclically through the scratch::

              part 0                              part 1
    │ tables  │ slot 0 │ slot 1 │ … │ record │    │ slot 0 │ slot 1 │ … │ record │    │ …

Slots and records are whole pages, and a part is whole erase blocks. The last complete step stays
intact while the next one is being written, and wear is even.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from devices.description import Storage
from devices.errors import RequestRefused
from devices.plan import ROW_CHECKSUM_BYTES, ExecutionPlan

LEAST_PARTS = 2
"""Parts for the last complete step and for the one that is being written."""

FILE_PARTS = 8
"""Parts of a scratch file, if it does not become too long. The card's controller levels the
wear."""

_FILE_BYTES = 256 << 20

_WORD_BYTES = 4


@dataclass(frozen=True)
class StoreLayout:
    """Layout of a plan's slots; all zero for a plan that does not page.

    Attributes:
        page_bytes: Size of a page of the storage.
        erase_block_bytes: Size of an erase block; 0 if it needs no erasing.
        offsets: Offsets of the slots in a step's part.
        record_offset: Offset of the record in a step's part.
        written_bytes: Bytes that a step writes, in whole pages: slots, record, and rows of tables.
        step_bytes: Size of a part.
        row_strides: For each table of the plan, the bytes from one row to the next.
        table_offsets: Offsets of the tables in the storage.
        table_bytes: Size of all tables in storage, before the first part.
        changed_bytes: Bytes that a step writes at most to bring the tables up to date.
    """

    page_bytes: int
    erase_block_bytes: int
    offsets: tuple[int, ...]
    record_offset: int
    written_bytes: int
    step_bytes: int
    row_strides: tuple[int, ...] = ()
    table_offsets: tuple[int, ...] = ()
    table_bytes: int = 0
    changed_bytes: int = 0

    @property
    def least_scratch_bytes(self) -> int:
        return self.table_bytes + LEAST_PARTS * self.step_bytes

    @property
    def file_bytes(self) -> int:
        """Size of a scratch file."""
        if not self.step_bytes:
            return 0
        parts = min(max(LEAST_PARTS, _FILE_BYTES // self.step_bytes), FILE_PARTS)
        return self.table_bytes + parts * self.step_bytes


def store_layout(plan: ExecutionPlan, storage: Storage | None) -> StoreLayout:
    """Lay out the slots of a plan on a board's storage.

    Args:
        plan: The plan.
        storage: The board's storage; may be None if the plan does not page.

    Raises:
        RequestRefused: The plan has tables, and the storage is erased in blocks.
        ValueError: The plan pages, but ``storage`` is None.
    """
    if not plan.pages:
        return StoreLayout(1, 0, (), 0, 0, 0)
    if storage is None:
        raise ValueError(f"{plan.name} pages, but the board has no storage")
    page, block = storage.page_bytes, storage.erase_block_bytes
    offsets = []
    end = 0
    for size in plan.slot_bytes:
        offsets.append(end)
        end += _rounded_up(size, page)
    written = _rounded_up(end + record_bytes(len(plan.kept), plan.selected_rows), page)
    whole = _rounded_up(written, block or page)
    strides = [
        _rounded_up(table.row_bytes + ROW_CHECKSUM_BYTES, page) for table in plan.stored_tables
    ]
    if strides and block:
        raise RequestRefused(
            f"{plan.name}: a step changes single rows of its embeddings' tables, which"
            f" {storage.medium} that is erased in blocks cannot store. Keep parameters in RAM"
        )
    tables = [
        stride * table.rows for stride, table in zip(strides, plan.stored_tables, strict=True)
    ]
    changed = sum(
        stride * plan.selections[table.selection].indices
        for stride, table in zip(strides, plan.stored_tables, strict=True)
    )
    if changed:
        changed += page  # the record of the step before is wiped first
    return StoreLayout(
        page_bytes=page,
        erase_block_bytes=block or 0,
        offsets=tuple(offsets),
        record_offset=end,
        written_bytes=written + changed,
        step_bytes=whole,
        row_strides=tuple(strides),
        table_offsets=tuple(accumulate(tables, initial=0))[:-1],
        table_bytes=sum(tables),
        changed_bytes=changed,
    )


def record_bytes(kept_count: int, row_count: int = 0) -> int:
    """Size of a record: ``JW_STEP_RECORD_BYTES`` of ``executor/execution_plan.h``."""
    return _WORD_BYTES * (5 + kept_count + row_count)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
