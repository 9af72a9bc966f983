"""A campaign that is disturbed until it is done: faults, restarts, and what must hold meanwhile."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.chaos.faults import Fault, Injector
from benchmarks.chaos.setup import CampaignProcess, Place
from devices.errors import ExitCode

_POLL_S = 0.2
_FAULTS_OF_PROFILES = 0.1
_MARKS = ("cell.json", "repetition-*[0-9].json", "control-*[0-9].json")


@dataclass
class Course:
    """What happened. ``ended`` counts the calls of ``campaign run`` by what ended them; ``marks``
    are in the environment of their processes. ``redone`` names files that were written again,
    ``left`` what was left behind. ``made`` says when, and by which release."""

    faults: list[Fault] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    redone: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    made: str = ""

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        faults = [asdict(fault) for fault in self.faults]
        kept = {**vars(self), "faults": faults, "redone": sorted(self.redone)}
        path.write_text(json.dumps(kept, indent=1))

    @classmethod
    def read(cls, path: Path) -> Course:
        """Read what :meth:`write` has kept."""
        kept = json.loads(path.read_text())
        kept["faults"] = [Fault(**fault) for fault in kept["faults"]]
        return cls(**{**kept, "ended": Counter(kept["ended"]), "redone": set(kept["redone"])})


def disturb(
    place: Place,
    results: str,
    injector: Injector,
    *,
    faults: int,
    replays: int,
    longest_pause_s: float,
    limit_s: float,
    tell: Callable[[str], None],
) -> Course:
    """Run a campaign again and again until it is done, and inject faults.

    The faults are spread over its replays: the next one is due when its share of them is finished.

    Args:
        place: Where it runs.
        results: Its directory of results.
        injector: Draws and injects the faults.
        faults: How many.
        replays: How many replays an undisturbed campaign has.
        longest_pause_s: Longest pause before a fault that is due.
        limit_s: Time after which no more faults are injected.
        tell: Called with each fault and each end.
    """
    course, began = Course(), time.monotonic()
    finished = Finished(place.campaign(results))
    while True:
        campaign = CampaignProcess(place, results)
        course.marks.append(campaign.mark)
        killed = False
        due_at: float | None = None
        while campaign.exit_code is None:
            time.sleep(_POLL_S)
            course.redone |= finished.look()
            spent = time.monotonic() - began
            if len(course.faults) >= faults or spent > limit_s:
                continue
            done = finished.replays / max(1, replays - 1)  # all are due before the last replay
            share = _FAULTS_OF_PROFILES + (1 - _FAULTS_OF_PROFILES) * done
            if due_at is None and len(course.faults) < share * faults:
                due_at = spent + injector.pause_s(longest_pause_s)
            if due_at is None or spent < due_at:
                continue
            due_at = None
            fault = injector.inject(injector.draw(), campaign)
            if fault is not None:
                course.faults.append(fault)
                killed = killed or fault.kind == "kill the campaign"
                tell(
                    f"{spent:4.0f} s, fault {len(course.faults)}: {fault.kind}: {fault.hit};"
                    f" {finished.replays} of {replays} replays"
                )
        code = campaign.wait(0)
        course.redone |= finished.look()
        is_killed = killed and code == -signal.SIGKILL
        why = "killed" if is_killed else f"exit code {code}: {campaign.last_words()}"
        course.ended[why] += 1
        tell(f"campaign run ended: {why}")
        if code == ExitCode.DONE:
            course.seconds = time.monotonic() - began
            return course
        if time.monotonic() - began > 2 * limit_s:
            raise TimeoutError(f"the campaign is not done after {2 * limit_s:.0f} s: {why}")


class Finished:
    """The finished schedules and replays of a campaign, which must stay as they are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[Path, tuple[int, int]] = {}

    @property
    def replays(self) -> int:
        """How many replays are finished."""
        return sum(path.name != "cell.json" for path in self._written)

    def look(self) -> set[str]:
        """Read what is finished. Returns what was written again since it was finished."""
        found = {}
        for pattern in _MARKS:
            for path in self._directory.glob(f"cells/*/{pattern}"):
                stat = path.stat()
                found[path] = stat.st_ino, stat.st_mtime_ns
        again = {
            str(path.relative_to(self._directory))
            for path, before in self._written.items()
            if found.get(path) != before
        }
        self._written = found
        return again


def count_all_replays(directory: Path) -> int:
    """Number of finished replays of a campaign."""
    finished = Finished(directory)
    finished.look()
    return finished.replays
