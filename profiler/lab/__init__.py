"""Emulated boards: started for one command, or kept running by ``lab up``."""

from __future__ import annotations

from collections.abc import Sequence

from devices.description import DeviceDescription
from devices.plan import ExecutionPlan
from profiler.building.programs import require_programs
from profiler.lab.kept import KeptBoard, bring_up, join, kept_boards, take_down
from profiler.lab.qemu import Progress, make_guest
from profiler.lab.running import RunningBoard, start_own

__all__ = ["KeptBoard", "RunningBoard", "bring_up", "kept_boards", "start", "take_down"]


def start(
    description: DeviceDescription, progress: Progress, plans: Sequence[ExecutionPlan] = ()
) -> RunningBoard:
    """The board that ``lab up`` keeps running, or else one that is stopped by
    :meth:`RunningBoard.stop`, and at the latest with the thread that called this, also where the
    whole program is killed.

    A microcontroller that is to replay ``plans`` has them in its firmware: it is always one of its
    own, and one that is kept running is left alone.

    Raises :class:`~devices.errors.BuildFailed` (a program that is missing, a build that fails) and
    :class:`~devices.errors.BoardUnreachable` (a board that does not come up).
    """
    require_programs(description)
    if plans and description.firmware is not None:
        return start_own(make_guest(description, progress, plans), progress)
    guest = make_guest(description, progress)
    return join(guest, progress) or start_own(guest, progress)
