"""Layout of a plan's steps on a medium.

Every step writes a part of its own: all slots in order, and at the end the record that makes the
part valid. The next step writes the next part, cyclically through the scratch::

    part 0                              part 1                              part 2
    │ slot 0 │ slot 1 │ … │ record │    │ slot 0 │ slot 1 │ … │ record │    │ …

Slots and records are whole pages, and a part is whole erase blocks. The last complete step stays
intact while the next one is being written, and wear is even.
"""

from __future__ import annotations

from dataclasses import dataclass

from devices.description import Storage
from devices.plan import ExecutionPlan

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
        written_bytes: Bytes of a part that are written: whole pages of slots and of the record.
        step_bytes: Size of a part.
    """

    page_bytes: int
    erase_block_bytes: int
    offsets: tuple[int, ...]
    record_offset: int
    written_bytes: int
    step_bytes: int

    @property
    def least_scratch_bytes(self) -> int:
        return LEAST_PARTS * self.step_bytes

    @property
    def file_bytes(self) -> int:
        """Size of a scratch file."""
        if not self.step_bytes:
            return 0
        parts = min(max(LEAST_PARTS, _FILE_BYTES // self.step_bytes), FILE_PARTS)
        return parts * self.step_bytes


def store_layout(plan: ExecutionPlan, storage: Storage | None) -> StoreLayout:
    """Lay out the slots of a plan on a board's storage.

    Args:
        plan: The plan.
        storage: The board's storage; may be None if the plan does not page.

    Raises:
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
    written = _rounded_up(end + record_bytes(len(plan.kept)), page)
    whole = _rounded_up(written, block or page)
    return StoreLayout(page, block or 0, tuple(offsets), end, written, whole)


def record_bytes(kept_count: int) -> int:
    """Size of a record: ``JW_STEP_RECORD_BYTES`` of ``executor/execution_plan.h``."""
    return _WORD_BYTES * (5 + kept_count)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
