"""What is left to do for each board, one thing at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, TypeAlias

from campaigns.design.cells import Cell
from campaigns.design.settings import Setting
from campaigns.running.profiling import ProfileJob
from campaigns.running.replaying import ReplayJob
from devices.description import DeviceDescription
from solver.pools import LastingPool

Uses: TypeAlias = Literal["alone", "beside", "not"]
"""How a board uses this computer: it is this computer and is measured alone; it is emulated here
beside other work; or it is another machine."""


@dataclass
class BoardLane:
    """A board with its process, and what is left to do for it in this call.

    ``place`` is its labgrid place, which its process acquires.

    ``unsolved`` are the hashes of its cells without schedules. ``replays`` is None until all others
    have theirs: only then is their order known. ``finished`` of ``replay_count`` are done, which is
    the most that there may be before that. ``waits_for`` names the program that has the board, if
    another one has. ``given_up`` is why nothing more is
    done with the board.
    """

    board: str
    place: str | None
    uses: Uses
    cells: tuple[Cell, ...]
    pool: LastingPool
    profiles: deque[ProfileJob]
    unsolved: set[str]
    replays: deque[ReplayJob] | None = None
    replay_count: int = 0
    finished: int = 0
    failed: int = 0
    given_up: str | None = None
    activity: str | None = None
    waits_for: str | None = None
    pid: Future[int] | None = None
    _began_s: float = 0.0
    _not_before_s: float = 0.0
    _durations_s: list[float] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether it could begin something now."""
        return self.activity is None and time.monotonic() >= self._not_before_s

    @property
    def has_work(self) -> bool:
        """Whether anything is left that does not wait for a schedule."""
        return bool(self.profiles or self.replays)

    @property
    def is_solved(self) -> bool:
        """Whether all its profiles are made and all its schedules are found."""
        return not self.profiles and not self.unsolved and self.activity is None

    @property
    def since_s(self) -> float | None:
        """How long it has been doing what it does."""
        return None if self.activity is None else time.monotonic() - self._began_s

    @property
    def left_s(self) -> float | None:
        """Estimated time of the replays that are left, by those of this call; None before any."""
        if self.replays is None or not self._durations_s:
            return None
        under_way = 0 if self.activity is None else 1
        return fmean(self._durations_s) * (len(self.replays) + under_way)

    def begin(self, activity: str) -> None:
        """Note what it does from now on."""
        self.activity, self.waits_for = activity, None
        self._began_s = time.monotonic()

    def end(self, replay_s: float | None = None) -> None:
        """Note that it does nothing; ``replay_s`` is the time of a finished replay."""
        self.activity = None
        if replay_s is not None:
            self._durations_s.append(replay_s)

    def pause(self, seconds: float) -> None:
        """Begin nothing for a while."""
        self._not_before_s = time.monotonic() + seconds

    def wait_for_board(self, reason: str, seconds: float) -> None:
        """Begin nothing for a while, because another program uses the board."""
        self.waits_for = reason
        self.pause(seconds)

    def try_later(self, job: ReplayJob) -> None:
        """Put a replay that failed behind the others of its repetition."""
        assert self.replays is not None, "the replay was taken from them"
        same = sum(each.place.repetition == job.place.repetition for each in self.replays)
        self.replays.insert(same, job)

    def leave_out(self, cell: Cell) -> None:
        """Run the schedule of a cell no more in this call: it would be refused again."""
        assert self.replays is not None, "one of them was refused"
        self.replays = deque(job for job in self.replays if job.cell != cell)

    def give_up(self, reason: str) -> None:
        """Do nothing more with the board in this call."""
        self.given_up = reason
        self.profiles.clear()
        self.unsolved.clear()
        self.replays = deque()


def uses_of(descriptions: Iterable[DeviceDescription]) -> Uses:
    """How a board uses this computer."""
    for description in descriptions:
        if description.transport.kind == "local":
            return "alone"
        # A microcontroller's replay compiles here, and computes the values to compare with here.
        if description.emulator is not None or description.firmware is not None:
            return "beside"
    return "not"


def settings_by_board(settings: Iterable[Setting]) -> dict[str, list[Setting]]:
    """The settings whose schedules are run, by board."""
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        if setting.is_run:
            found.setdefault(setting.board, []).append(setting)
    return found
