"""Emulated boards: started for one command, or kept running by ``lab up``."""

from __future__ import annotations

from devices.description import DeviceDescription
from profiler.lab.kept import KeptBoard, bring_up, join, kept_boards, take_down
from profiler.lab.qemu import Progress, make_guest
from profiler.lab.running import RunningBoard, start_own
from profiler.programs import require_programs

__all__ = ["KeptBoard", "RunningBoard", "bring_up", "kept_boards", "start", "take_down"]


def start(description: DeviceDescription, progress: Progress) -> RunningBoard:
    """The board that ``lab up`` keeps running, or else one that is stopped by
    :meth:`RunningBoard.stop`, and at the latest with the thread that called this, also where the
    whole program is killed.

    Raises :class:`~profiler.errors.BuildFailed` (a program that is missing, a build that fails) and
    :class:`~profiler.errors.BoardUnreachable` (a board that does not come up).
    """
    require_programs(description)
    guest = make_guest(description, progress)
    return join(guest, progress) or start_own(guest, progress)
