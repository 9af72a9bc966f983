"""Bytes that a step writes to the board's storage, and the years that the storage lasts."""

from __future__ import annotations

from typing import Any

from commands.console import Console
from commands.wording import lifetime
from devices.documents.readable import size
from replay.run_report import STEPS_PER_DAY
from replay.runs import wear_of_schedule
from solver.problem.schedule import Schedule
from solver.requests.subjects import SolveSubject


def show_wear(console: Console, subject: SolveSubject, schedule: Schedule) -> dict[str, Any]:
    """State what a step writes, and how long the storage lasts if that is known, also as data."""
    storage = None if subject.profile is None else subject.profile.storage
    if storage is None or subject.step is None or not schedule.bytes_written_to_storage:
        return {}
    wear = wear_of_schedule(subject.step, subject.graph, schedule, storage, STEPS_PER_DAY)
    if wear is None:
        return {}
    written = (
        f"storage: {size(wear.written_bytes_per_step)} written a step, with any safety copies of"
        " the trained values: these are made after it, and are not in its time and energy"
    )
    if wear.erased_blocks_per_step:
        written += f"; {wear.erased_blocks_per_step:.3g} erase blocks erased a step"
    console.result(written + lifetime(wear))
    return {"wear": wear.model_dump(mode="json", exclude_none=True)}
