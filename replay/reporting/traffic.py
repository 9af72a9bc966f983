"""Bytes that a step pages in and out: planned, and counted on the board."""

from __future__ import annotations

import math

from devices.description import Storage
from devices.plan import ExecutionPlan, PageIn, PageOut, RowsIn
from devices.replay import MeasuredReplay, MeasuredStep, StorageCount, StorageUse
from devices.wear import wear
from profiler.building.store_layout import StoreLayout, expected_written_bytes, store_layout
from profiler.statistics import median_interval


def storage_use(
    storage: Storage | None, plan: ExecutionPlan, measured: MeasuredReplay, steps_per_day: float
) -> StorageUse | None:
    """Compare planned and counted traffic; None for a plan that does not page.

    Args:
        storage: the device's storage.
        plan: the plan that was run.
        measured: its steps, of which at least one was watched.
        steps_per_day: for the wear.
    """
    if not plan.pages or storage is None:
        return None
    layout = store_layout(plan, storage)
    counters = measured.counters
    packed = plan.packed_bytes
    read = sum(
        _whole_pages(layout, packed.get(action.does.slot, action.does.block.bytes))
        if action.does.of == "this step"
        else _whole_pages(layout, action.does.block.bytes)
        for action in plan.actions
        if isinstance(action.does, PageIn)
    )
    read += sum(
        layout.row_strides[action.does.table] * _selected(plan, action.does.table)
        for action in plan.actions
        if isinstance(action.does, RowsIn)
    )
    # The changed rows are read twice from their slot before they are written to their table.
    read += sum(
        2 * _whole_pages(layout, plan.kept[table.kept].bytes)
        for table in plan.stored_tables
        if table.kept is not None
    )
    scheduled = sum(
        _whole_pages(layout, packed.get(action.does.slot, action.does.block.bytes))
        for action in plan.actions
        if isinstance(action.does, PageOut) and action.schedule_index is not None
    )
    scheduled += layout.changed_bytes
    written = expected_written_bytes(plan, layout)
    blocks = layout.step_bytes / layout.erase_block_bytes if layout.erase_block_bytes else 0.0
    steps = max(1, counters.steps)
    return StorageUse(
        page_bytes=layout.page_bytes,
        row_bytes={
            table.tensor: layout.row_strides[number] * _selected(plan, number)
            for number, table in enumerate(plan.stored_tables)
        }
        or None,
        read_bytes=StorageCount(predicted=read, measured=counters.bytes_in / steps),
        written_bytes=StorageCount(predicted=written, measured=counters.bytes_out / steps),
        erased_blocks=StorageCount(predicted=blocks, measured=counters.erased_blocks / steps),
        scheduled_bytes=scheduled,
        safety_bytes=written - scheduled,
        copies_s=median_interval([_copies_s(plan, step) for step in measured.steps if step.spans]),
        wear=wear(
            storage,
            counters.bytes_out / steps,
            counters.erased_blocks / steps,
            layout.step_bytes,
            steps_per_day,
        ),
    )


def _selected(plan: ExecutionPlan, table: int) -> int:
    return plan.selections[plan.tables[table].selection].indices


def _copies_s(plan: ExecutionPlan, step: MeasuredStep) -> float:
    """Seconds of the copies to storage after a watched step."""
    spans = step.spans[len(plan.actions) :]
    return math.fsum(
        span.time_s
        for action, span in zip(plan.afterwards, spans, strict=True)
        if isinstance(action.does, PageOut)
    )


def _whole_pages(layout: StoreLayout, size_bytes: int) -> int:
    return -(-size_bytes // layout.page_bytes) * layout.page_bytes
