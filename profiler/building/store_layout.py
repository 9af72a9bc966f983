"""Where on a medium a plan's steps go.

Every step writes a part of its own, all slots one behind the other and at the end the record that
makes the part valid; the next step writes the next part, round and round the scratch::

    part 0                              part 1                              part 2
    │ slot 0 │ slot 1 │ … │ record │    │ slot 0 │ slot 1 │ … │ record │    │ …

Whole pages each, and a part whole erase blocks. The last complete step is intact while the one
behind it is being written, and wear is even.
"""

from __future__ import annotations

from dataclasses import dataclass

from devices.description import Storage
from devices.plan import ExecutionPlan

LEAST_PARTS = 2
"""The last complete step's and the one that is being written."""

FILE_PARTS = 8
"""Of a file, as far as that is not too long. Below the file system a card's controller sees to even
wear."""

_FILE_BYTES = 256 << 20

_WORD_BYTES = 4


@dataclass(frozen=True)
class StoreLayout:
    """``offsets`` are those of the slots, within a step's part of ``step_bytes``, of which
    ``written_bytes`` are written: whole pages of slots and of the record. Of a plan that does not
    page, everything is 0."""

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
        """Of a scratch that is a file."""
        if not self.step_bytes:
            return 0
        parts = min(max(LEAST_PARTS, _FILE_BYTES // self.step_bytes), FILE_PARTS)
        return parts * self.step_bytes


def store_layout(plan: ExecutionPlan, storage: Storage | None) -> StoreLayout:
    """``storage`` is that of the board; a plan that pages needs one (``ValueError``)."""
    if not plan.pages:
        return StoreLayout(1, 0, (), 0, 0, 0)
    if storage is None:
        raise ValueError(f"{plan.name} pages, and there is no storage")
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
    """``JW_STEP_RECORD_BYTES`` of ``executor/execution_plan.h``."""
    return _WORD_BYTES * (5 + kept_count)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
