"""RAM of an execution plan on a microcontroller, besides its arena.

What a plan never changes lies in flash. In RAM are a checksum of each value that is in storage, the
rows that a batch selects, buffers, and what a watched step records until it is read.
"""

from __future__ import annotations

from devices.plan import ROW_CHECKSUM_BYTES, ExecutionPlan
from devices.profile import DeviceProfile

WATCHED_ACTIONS = 48
"""Actions of which a firmware's RAM holds spans and checksums; they fit into one answer each. A
watched step of more pauses, so that they can be read."""

ALIGNMENT_BYTES = 64
"""Alignment of the arena and of the buffers: JW_ALIGNMENT of the harness."""

CHECKSUM_BYTES = 4
_ROW_NUMBER_BYTES = 4
_SPAN_BYTES = 8


def watched_bytes(plan: ExecutionPlan, watched_actions: int | None = None) -> int:
    """Spans and checksums of a watched step; with ``watched_actions``, of so many actions."""
    actions = len(plan.actions) + len(plan.afterwards)
    most = actions if watched_actions is None else min(actions, watched_actions)
    return most * _SPAN_BYTES + min(most, len(plan.probes)) * CHECKSUM_BYTES


def checksum_bytes(plan: ExecutionPlan) -> int:
    """Checksums of this step's slots, of the last step's kept values, and of frozen values.

    Sizes of packed slots are as long as checksums.
    """
    in_storage = len(plan.slot_bytes) + len(plan.kept) + len(plan.frozen)
    return (in_storage + len(plan.packed_bytes)) * CHECKSUM_BYTES


def buffer_bytes(plan: ExecutionPlan, page_bytes: int) -> int:
    """Selected rows, and buffers for a page and for the largest row of a table in storage."""
    rows = (table.row_bytes + ROW_CHECKSUM_BYTES for table in plan.stored_tables)
    largest = _rounded_up(max(rows, default=0), page_bytes)
    return plan.selected_rows * _ROW_NUMBER_BYTES + largest + (page_bytes if plan.pages else 0)


def firmware_ram_bytes(plan: ExecutionPlan, page_bytes: int) -> int:
    """RAM that a plan takes of a microcontroller besides its arena, at most.

    That is by how much the firmware's arena is smaller than that of firmware without a plan. The
    arena begins at a multiple of 64 bytes, and so do the two buffers.

    Args:
        plan: The plan.
        page_bytes: Size of a page of the board's storage; 1 without storage.
    """
    whole = watched_bytes(plan, WATCHED_ACTIONS) + checksum_bytes(plan)
    buffers = buffer_bytes(plan, page_bytes)
    paddings = 2 * ALIGNMENT_BYTES if buffers else 0
    return _rounded_up(whole + buffers + paddings, ALIGNMENT_BYTES)


def least_firmware_ram_bytes(operations: int) -> int:
    """RAM that a plan which computes so many operations takes besides its arena, at least."""
    return _rounded_up(min(operations, WATCHED_ACTIONS) * _SPAN_BYTES, ALIGNMENT_BYTES)


def profiled_ram_bytes(plan: ExecutionPlan, profile: DeviceProfile) -> int:
    """RAM that a plan takes of a profiled board besides its arena; 0 where it is not counted."""
    if not profile.board.shares_ram:
        return 0
    return firmware_ram_bytes(plan, 1 if profile.storage is None else profile.storage.page_bytes)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
