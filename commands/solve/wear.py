"""Life of the board's storage with steps of a schedule."""

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
    """State how long the storage lasts if the profile states its endurance; return it as data."""
    storage = None if subject.profile is None else subject.profile.storage
    if storage is None or storage.endurance_cycles is None or subject.step is None:
        return {}
    wear = wear_of_schedule(subject.step, subject.graph, schedule, storage, STEPS_PER_DAY)
    if wear is None:
        return {}
    written = (
        f"storage: {size(wear.written_bytes_per_step)} written a step, with safety copies of the"
        " trained values"
    )
    if wear.erased_blocks_per_step:
        written += f"; {wear.erased_blocks_per_step:.3g} erase blocks erased a step"
    console.result(written + lifetime(wear))
    return {"wear": wear.model_dump(mode="json", exclude_none=True)}
