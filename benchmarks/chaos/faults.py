"""Faults that the chaos benchmark injects into a running campaign and its boards."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from benchmarks.chaos.setup import CampaignProcess, Place
from profiler.lab.monitor import Monitor
from profiler.lab.process import Process
from tests.support.boards.processes import marked

Kind: TypeAlias = Literal[
    "kill the campaign",
    "kill a worker",
    "kill another process",
    "drop the link",
    "reboot a board",
    "cut a board's power",
    "stall a board",
    "fill the disk",
]

WEIGHTS: dict[Kind, int] = {
    "kill the campaign": 18,
    "kill a worker": 18,
    "kill another process": 26,
    "drop the link": 10,
    "reboot a board": 10,
    "cut a board's power": 4,
    "stall a board": 6,
    "fill the disk": 8,
}
"""Kinds of faults, and how often they are drawn of a hundred."""

_WORKER = "loky.backend.popen_loky"
_MONITOR_S = 10.0
_SMALLEST_FILE = 100
_LINK_S, _STALL_S, _DISK_S = (2.0, 15.0), (2.0, 10.0), (0.5, 3.0)


@dataclass(frozen=True)
class Fault:
    """An injected fault: its kind, and what it hit."""

    kind: Kind
    hit: str


class Injector:
    """Injects faults whose kinds, targets and durations a seed draws.

    What exists at the time of a fault depends on the course of the campaign, so that the same seed
    repeats the kinds, not the moments.
    """

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._draw = Random(seed)
        self._kinds: dict[Kind, Callable[[CampaignProcess], str | None]] = {
            "kill the campaign": self._kill_campaign,
            "kill a worker": self._kill_worker,
            "kill another process": self._kill_other,
            "drop the link": self._drop_link,
            "reboot a board": self._reboot,
            "cut a board's power": self._cut_power,
            "stall a board": self._stall,
            "fill the disk": self._fill_disk,
        }

    def draw(self) -> Kind:
        """The kind of the next fault."""
        return self._draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def pause_s(self, longest_s: float) -> float:
        """Pause before the next fault."""
        return self._draw.uniform(0.0, longest_s)

    def inject(self, kind: Kind, campaign: CampaignProcess) -> Fault | None:
        """Inject a fault, and end it if it lasts; None if nothing exists that it can hit."""
        hit = self._kinds[kind](campaign)
        return None if hit is None else Fault(kind, hit)

    # --- processes --------------------------------------------------------------------------------

    def _kill_campaign(self, campaign: CampaignProcess) -> str | None:
        return self._kill({campaign.pid}, "campaign run")

    def _kill_worker(self, campaign: CampaignProcess) -> str | None:
        workers = {pid for pid in marked(campaign.mark) if _WORKER in _command(pid)}
        return self._kill(workers, "a process of a board or of a search")

    def _kill_other(self, campaign: CampaignProcess) -> str | None:
        others = marked(campaign.mark) - {campaign.pid}
        return self._kill({pid for pid in others if _WORKER not in _command(pid)}, None)

    def _kill(self, pids: set[int], name: str | None) -> str | None:
        if not pids:
            return None
        pid = self._draw.choice(sorted(pids))
        words = name or _program(pid)
        try:
            Process.of(pid).kill()
        except ProcessLookupError:
            return None
        return words

    # --- boards -----------------------------------------------------------------------------------

    def _drop_link(self, _campaign: CampaignProcess) -> str | None:
        with (
            suppress(OSError),
            Monitor(self._place.kept_board, timeout_s=_MONITOR_S) as monitor,
        ):
            _order(monitor, "set_link net off")
            time.sleep(self._draw.uniform(*_LINK_S))
            _order(monitor, "set_link net on")
            return "linux"
        return None

    def _reboot(self, _campaign: CampaignProcess) -> str | None:
        return self._at_monitor(lambda monitor: monitor.execute("system_reset"))

    def _stall(self, _campaign: CampaignProcess) -> str | None:
        def stall(monitor: Monitor) -> None:
            monitor.execute("stop")
            time.sleep(self._draw.uniform(*_STALL_S))
            monitor.execute("cont")

        return self._at_monitor(stall)

    def _at_monitor(self, order: Callable[[Monitor], object]) -> str | None:
        boards = [self._place.kept_board, *sorted(self._place.started_boards.glob("*"))]
        running = [board for board in boards if board.is_dir()]
        if not running:
            return None
        board = self._draw.choice(running)
        with suppress(OSError), Monitor(board, timeout_s=_MONITOR_S) as monitor:
            order(monitor)
            return board.name.partition(".")[0]
        return None

    def _cut_power(self, _campaign: CampaignProcess) -> str | None:
        """End the emulator of the Linux board, and start it again without its files."""
        if not self._place.has_kept_board:
            return None
        Process.of(self._place.board_pid).kill()
        self._place.lab("up")
        return "linux"

    # --- disk -------------------------------------------------------------------------------------

    def _fill_disk(self, campaign: CampaignProcess) -> str | None:
        """Let no process of the campaign write more than a few bytes to a file for a while."""
        with _limited(campaign, _SMALLEST_FILE) as count:
            time.sleep(self._draw.uniform(*_DISK_S))
        return f"{count} processes" if count else None


@contextmanager
def _limited(campaign: CampaignProcess, size_bytes: int) -> Iterator[int]:
    count = _limit_files(campaign, size_bytes)
    try:
        yield count
    finally:
        _limit_files(campaign, resource.RLIM_INFINITY)


def _limit_files(campaign: CampaignProcess, size_bytes: int) -> int:
    """Limit the files of all processes, also of those that are started meanwhile; their number."""
    limited: set[int] = set()
    while found := marked(campaign.mark) - limited:
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
        limited |= found
    return len(limited)


def _order(monitor: Monitor, words: str) -> None:
    monitor.execute("human-monitor-command", **{"command-line": words})


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _program(pid: int) -> str:
    """Name of the program that a process runs, without versions."""
    try:
        name = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return "a process that was ending"
    return name.rstrip("0123456789.")
