"""Layout of a plan's steps on a medium.

What no step changes comes first, with a record that makes it valid. It is written once, before the
first step. Then come the tables that steps change; rows of tables are whole pages. Every step
writes a part of its own: all slots in order, and at the end the record that makes the part valid.
The next step writes the next part, cyclically through the scratch, or through its first eight parts
where nothing is erased::

                                 part 0                              part 1
    │ frozen, record │  tables   │ slot 0 │ slot 1 │ … │ record │    │ slot 0 │ … │ record │    │ …

Frozen tensors, slots and records are whole pages; the frozen values, their record and each part are
whole erase blocks. The last complete step stays intact while the next one is being written. The
wear of flash is even; that of a card is levelled by its controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from devices.errors import RequestRefused
from devices.plan import ROW_CHECKSUM_BYTES, ExecutionPlan
from devices.wear import StorageMedium

LEAST_PARTS = 2
"""Parts for the last complete step and for the one that is being written."""

FILE_PARTS = 8
"""Parts of a scratch file, if it does not become too long: as many as the store uses of a medium
that needs no erasing (``MOST_PARTS_UNERASED`` of ``executor/store.c``)."""

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
        table_bytes: Size of all tables that steps change, before the first part.
        changed_bytes: Bytes that a step writes at most to bring the tables up to date.
        frozen_offsets: Offsets of the frozen tensors in the storage.
        frozen_record_offset: Offset of the record of the frozen values, which follows them.
        frozen_bytes: Size of all frozen values with their record, at the start of the storage.
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
    frozen_offsets: tuple[int, ...] = ()
    frozen_record_offset: int = 0
    frozen_bytes: int = 0

    @property
    def least_scratch_bytes(self) -> int:
        return self.before_parts_bytes + LEAST_PARTS * self.step_bytes

    @property
    def before_parts_bytes(self) -> int:
        """Size of what lies before the first part."""
        return self.frozen_bytes + self.table_bytes

    @property
    def file_bytes(self) -> int:
        """Size of a scratch file."""
        if not self.step_bytes:
            return 0
        parts = min(max(LEAST_PARTS, _FILE_BYTES // self.step_bytes), FILE_PARTS)
        return self.before_parts_bytes + parts * self.step_bytes

    @property
    def most_filled_bytes(self) -> int:
        """Most bytes that fill a new scratch file before a run: of this layout, or a smaller one.

        Frozen values at its start are written, not filled.
        """
        most = max(LEAST_PARTS * self.step_bytes, _FILE_BYTES)
        return self.table_bytes + min(FILE_PARTS * self.step_bytes, most)

    @property
    def initial_bytes(self) -> int:
        """Most bytes that a run writes besides those of its steps and the filling of a new file.

        These are frozen values, tables, the values that the first step begins with, and pages that
        make records invalid: of all parts before the first step, and of one after the last.
        """
        wiped = (FILE_PARTS + 1 if self.table_bytes else 0) + (1 if self.frozen_bytes else 0)
        return self.before_parts_bytes + self.written_bytes + wiped * self.page_bytes


def store_layout(plan: ExecutionPlan, storage: StorageMedium | None) -> StoreLayout:
    """Lay out the slots of a plan on a board's storage.

    Args:
        plan: The plan.
        storage: The board's storage; may be None if the plan does not page.

    Raises:
        RequestRefused: A step changes tables, and the storage is erased in blocks.
        ValueError: The plan pages, but ``storage`` is None.
    """
    if not plan.pages:
        return StoreLayout(1, 0, (), 0, 0, 0)
    if storage is None:
        raise ValueError(f"{plan.name} pages, but the board has no storage")
    page, block = storage.page_bytes, storage.erase_block_bytes
    slots, end = _adjacent(plan.slot_bytes, page)
    written = rounded_up(end + record_bytes(len(plan.kept), plan.selected_rows), page)
    whole = rounded_up(written, block or page)
    tables = plan.stored_tables
    strides = [rounded_up(table.row_bytes + ROW_CHECKSUM_BYTES, page) for table in tables]
    changed = [
        (table, stride)
        for table, stride in zip(tables, strides, strict=True)
        if not table.is_frozen
    ]
    if changed and block:
        raise RequestRefused(
            f"{plan.name}: a step changes single rows of its embeddings' tables, which"
            f" {storage.medium} that is erased in blocks cannot store. Keep parameters in RAM"
        )
    changed_bytes = sum(stride * plan.selections[t.selection].indices for t, stride in changed)
    if changed_bytes:
        changed_bytes += page  # the record of the step before is wiped first
    sizes = [stride * table.rows for table, stride in zip(tables, strides, strict=True)]
    # In the storage, frozen tables come first.
    table_bytes, frozen_sizes = sum(sizes[: len(changed)]), sizes[len(changed) :]
    frozen, end_of_frozen = _adjacent([each.bytes for each in plan.frozen], page)
    # A power cut while the record is erased must not damage the values, so that it has own blocks.
    frozen_record = rounded_up(end_of_frozen + sum(frozen_sizes), block or page)
    frozen_bytes = 0
    if frozen_record:
        frozen_bytes = rounded_up(frozen_record + record_bytes(len(plan.frozen)), block or page)
    table_offsets = (
        *_begins(sizes[: len(changed)], frozen_bytes),
        *_begins(frozen_sizes, end_of_frozen),
    )
    return StoreLayout(
        page_bytes=page,
        erase_block_bytes=block or 0,
        offsets=tuple(slots),
        record_offset=end,
        written_bytes=written + changed_bytes,
        step_bytes=whole,
        row_strides=tuple(strides),
        table_offsets=table_offsets,
        table_bytes=table_bytes,
        changed_bytes=changed_bytes,
        frozen_offsets=tuple(frozen),
        frozen_record_offset=frozen_record,
        frozen_bytes=frozen_bytes,
    )


def expected_written_bytes(plan: ExecutionPlan, layout: StoreLayout) -> int:
    """Bytes that a step is expected to write, in whole pages; of packed tensors, what is left."""
    return layout.written_bytes - sum(
        rounded_up(plan.slot_bytes[slot], layout.page_bytes) - rounded_up(left, layout.page_bytes)
        for slot, left in plan.packed_bytes.items()
    )


def _adjacent(sizes: Sequence[int], page_bytes: int) -> tuple[list[int], int]:
    """Offsets of tensors that lie side by side in whole pages, and the end of the last."""
    whole = [rounded_up(size, page_bytes) for size in sizes]
    return _begins(whole, 0), sum(whole)


def _begins(sizes: Sequence[int], first: int) -> list[int]:
    return list(accumulate(sizes, initial=first))[:-1]


def record_bytes(kept_count: int, row_count: int = 0) -> int:
    """Size of a record: ``JW_STEP_RECORD_BYTES`` of ``executor/execution_plan.h``."""
    return _WORD_BYTES * (5 + kept_count + row_count)


def rounded_up(size: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is at least ``size``."""
    return -(-size // unit) * unit
