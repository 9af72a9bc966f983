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
    """Join the board that ``lab up`` keeps running, or start one for the caller.

    A started board is stopped by :meth:`RunningBoard.stop`, or when the calling thread ends, even
    if the whole program is killed. With ``plans``, a microcontroller has them in its firmware: a
    board is always started, and one that is kept running is not used.

    Args:
        description: An emulated board.
        progress: Called with each step.
        plans: Execution plans that a microcontroller's firmware must contain.

    Raises:
        BuildFailed: A program is missing, or a build fails.
        BoardUnreachable: The board does not start.
    """
    require_programs(description)
    if plans and description.firmware is not None:
        return start_own(make_guest(description, progress, plans), progress)
    guest = make_guest(description, progress)
    return join(guest, progress) or start_own(guest, progress)
