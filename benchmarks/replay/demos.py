"""The demo, many times from its beginning: does the prediction hold the measured step?"""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import load_average
from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Progress
from devices.documents.readable import si
from devices.replay import ReplayReport
from tests.support.paths import ROOT

_TEXT = """
Each run is that of `make demo`, in an empty directory of its own: it measures this computer, solves
and runs the step, and knows nothing of the runs before. Runs follow one another.

- *Predicted* is the time of a step with its 95 % interval, *measured* the median of the steps that
  were run. *Step* says whether the interval holds it.
- *Actions* are those whose measured medians lie in their intervals, of all; *by time* is their
  share of the measured time.
- *Half width* is that of the intervals of actions which take more than 100 µs, in the median.
- *Load* is the average over one minute at the end of the run.

A run fails if one of its commands does. Its interval counts as one that does not hold the step.
"""

_HEAD = ("run", "predicted", "measured", "step", "actions", "by time", "half width", "load")

_LONG_S = 100e-6


@dataclass(frozen=True)
class Demo:
    """One run of the demo."""

    number: int
    report: ReplayReport
    load: float

    @property
    def half_width(self) -> float:
        """Relative half width of the intervals of long actions, in the median."""
        predicted = [a.time_s.predicted for a in self.report.actions]
        return statistics.median(
            0.5 * (p.high - p.low) / p.median for p in predicted if p.median > _LONG_S
        )

    @property
    def cells(self) -> tuple[str, ...]:
        step = self.report.time_s
        low, median, high = (
            si(value, "s")
            for value in (step.predicted.low, step.predicted.median, step.predicted.high)
        )
        return (
            str(self.number),
            f"{median} ({low} to {high})",
            si(step.measured.median, "s"),
            "held" if step.is_held else "MISSED",
            f"{self.report.held_actions} of {len(self.report.actions)}",
            f"{self.report.held_time:.0%}",
            f"±{self.half_width:.0%}",
            f"{self.load:.1f}",
        )


def demos_page(count: int, versions: Sequence[str], progress: Progress) -> Page:
    """Run the demo ``count`` times. A run that fails has a row of its own."""
    demos, rows = [], []
    for number in range(1, count + 1):
        try:
            with tempfile.TemporaryDirectory() as directory:
                demo = Demo(number, _run_demo(Path(directory)), load_average())
        except _Failed as error:
            rows.append((str(number), f"failed: {error}", *("–",) * (len(_HEAD) - 2)))
        else:
            demos.append(demo)
            rows.append(demo.cells)
        progress(" | ".join(rows[-1]))
    table = Table(_HEAD, rows, note=_note(demos, count))
    return Page("The demo, again and again", _TEXT, [table], versions)


def _note(demos: Sequence[Demo], count: int) -> str:
    """Note on the runs that did not fail, and on how many of all these are."""
    failed = f" {count - len(demos)} of {count} runs failed." if len(demos) < count else ""
    if not demos:
        return failed.strip()
    held = sum(demo.report.time_s.is_held for demo in demos)
    actions = sum(len(demo.report.actions) for demo in demos)
    held_actions = sum(demo.report.held_actions for demo in demos)
    held_time = statistics.mean(demo.report.held_time for demo in demos)
    apart = [abs(demo.report.time_s.difference or 0.0) for demo in demos]
    return (
        f"The interval of the step held the measurement in {held} of {count} runs; the predicted"
        f" median was {100 * statistics.median(apart):.1f} % off in the median, and"
        f" {100 * max(apart):.1f} % in the worst. The intervals of single actions held"
        f" {held_actions} of {actions} ({held_actions / actions:.1%}), and {held_time:.1%} of the"
        f" time.{failed}"
    )


def demo_commands(makefile: str) -> list[list[str]]:
    """Words of the commands that ``make demo`` runs after its setup, each after ``cli.py``.

    Args:
        makefile: The text of the project's Makefile.
    """
    recipe = makefile.partition("\ndemo: setup\n")[2].partition("\n\n")[0]
    lines = recipe.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[2:] for line in lines if "cli.py" in line]


class _Failed(Exception):
    """A command of the demo failed."""


def _run_demo(directory: Path) -> ReplayReport:
    for words in demo_commands((ROOT / "Makefile").read_text(encoding="utf-8")):
        done = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), *words],
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise _Failed(f"{words[0]}: {said.replace(f'{directory}/', '')}")
    (path,) = directory.glob("results/replays/*/replay.json")
    return ReplayReport.model_validate_json(path.read_bytes())
