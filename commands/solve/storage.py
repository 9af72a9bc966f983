"""What a step stores on the board: room, bytes written, and the years that the storage lasts."""

from __future__ import annotations

from typing import Any

from commands.console import Console
from commands.wording import lifetime
from devices.documents.readable import size
from profiler.building.store_layout import store_layout
from replay.runs import STEPS_PER_DAY, expected_wear, plan_of_schedule
from solver.problem.schedule import Schedule
from solver.requests.subjects import SolveSubject


def show_storage(console: Console, subject: SolveSubject, schedule: Schedule) -> dict[str, Any]:
    """State what a step writes, and how long the storage lasts if that is known, also as data.

    If the board's storage has no room for the schedule, or is raw flash of a Linux board, say so:
    no search considers it.
    """
    profile = subject.profile
    storage = None if profile is None else profile.storage
    if profile is None or storage is None or subject.step is None:
        return {}
    plan = plan_of_schedule(subject.step, subject.graph, schedule)
    if plan is None or not plan.pages:
        return {}
    if profile.stores_in_raw_flash:
        console.say(
            "this schedule pages, and the board's storage is raw flash. On Linux schedules page to"
            " files: it cannot run there. Describe storage.path on a file system, or solve without"
            " paging (--no-paging)"
        )
    data: dict[str, Any] = {"storage_bytes": store_layout(plan, storage).least_scratch_bytes}
    if storage.scratch_bytes is not None and storage.scratch_bytes < data["storage_bytes"]:
        console.say(
            f"two steps of this schedule take {size(data['storage_bytes'])} of storage, and the"
            f" board's scratch_bytes are {size(storage.scratch_bytes)}: it cannot run there."
            " Increase scratch_bytes in the description, or solve without paging (--no-paging)"
        )
    wear = expected_wear(plan, storage, STEPS_PER_DAY)
    if not schedule.bytes_written_to_storage or wear is None:
        return data
    written = (
        f"storage: {size(wear.written_bytes_per_step)} written a step, with any safety copies of"
        " the trained values: these are made after it, and are not in its time and energy"
    )
    if wear.erased_blocks_per_step:
        written += f"; {wear.erased_blocks_per_step:.3g} erase blocks erased a step"
    console.result(written + lifetime(wear))
    return data | {"wear": wear.model_dump(mode="json", exclude_none=True)}
