"""Trials of the benchmark: small campaigns on one board, each with a change and a control.

The change is one of the schedule: less RAM, and so much recomputation that a step takes longer by
about as much as asked. Everything else is the same, so that one profile and one build serve all
trials of a board.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import cli
from campaigns.comparing.comparison import CampaignComparison
from campaigns.comparing.shifts import Shift
from campaigns.keeping.records import Repetition
from campaigns.keeping.results import CampaignResults, read_campaign
from devices.documents.document import StrictModel, dump_json, read_json, write_atomically
from devices.errors import ExitCode
from devices.quantities import NonNegative
from devices.results import Results

REPETITIONS, CELLS = 8, 2
_WHOLE = "100%"
_KEPT_FILES = ("schedule.json", "schedule.graph.json", "cell.json")
_CALL_S = 3600.0
_ROUNDS_OF_COMMANDS = 5


@dataclass(frozen=True)
class Subject:
    """A board and its step, and the smallest change that is to be found.

    ``every``: of so many trials of the benchmark, one is also made on this board.
    """

    board: str
    network: str
    batch: int
    steps: int
    change: float
    budgets: Sequence[str]
    every: int


SUBJECTS = (
    Subject("local", "digits", 64, 100, 0.10, ("80%", "70%", "65%", "60%", "55%", "50%"), 1),
    Subject("emulated-m4f", "digits", 1, 2, 0.025, ("94%", "92%", "90%", "85%"), 4),
)


class Trial(StrictModel):
    """What one campaign found.

    ``change`` is the shift that ``campaign compare`` states for the schedule with less RAM, and
    ``control`` that between two runs of one schedule. ``change_logs`` and ``control_logs`` are the
    logarithms of the ratios of measured times, by repetition. ``call_s`` is what ``campaign run``
    took, ``replays_s`` the time of its replays alone; both of the call that ended the trial, as is
    the number of its ``replays``.
    """

    board: str
    change: Shift
    control: Shift
    change_logs: tuple[float, ...]
    control_logs: tuple[float, ...]
    call_s: NonNegative
    replays_s: NonNegative
    replays: int
    load: NonNegative
    release: str


class Bench:
    """The folder of the benchmark: its campaigns, and a record of each trial."""

    def __init__(self, folder: Path, release: str) -> None:
        self._folder = folder.resolve()
        self._results = Results(self._folder / "results")
        self._release = release

    def trials(self, subject: Subject) -> list[Trial]:
        """The trials of a board that are done."""
        return [read_json(path, Trial) for path in self._records(subject)]

    def compared_in_pairs(self, subject: Subject) -> list[CampaignComparison]:
        """Compare the campaigns of the first and second trial, of the third and fourth, and so on.

        The campaigns of a pair differ in nothing but their seeds and when they ran.
        """
        names = [record.stem for record in self._records(subject)]
        return [
            self._compare(first, second)
            for first, second in zip(names[::2], names[1::2], strict=False)
        ]

    def try_once(self, subject: Subject, number: int) -> bool:
        """Make a trial, or go on with one. Returns whether it was left to do."""
        name = f"{subject.board}-{number:03}"
        record = self._folder / "trials" / f"{name}.json"
        if record.is_file():
            return False
        budget = self._budget(subject)
        file = self._file(subject, name, (_WHOLE, budget), REPETITIONS, number)
        self._copy_schedules(_first_name(subject), name)
        done_before = self._replays(name)
        began_s = time.monotonic()
        self._call("campaign", "run", str(file), "--jobs", "1")
        call_s = time.monotonic() - began_s
        kernels = {self._read(each).design.kernels_sha256 for each in (name, _first_name(subject))}
        if len(kernels) > 1:
            raise SystemExit(
                f"the schedules for {subject.board} in {self._folder} are of other kernels, so that"
                " every trial measured and solved again; begin a new folder"
            )
        trial = self._trial(subject, name, budget, done_before, call_s)
        write_atomically(record, dump_json(trial))
        return True

    def commands_s(self, subject: Subject) -> float:
        """Median seconds of the command ``run`` for one replay of a trial.

        It is called for the two schedules in turn, once for the folder, which keeps the seconds.
        """
        record = self._folder / "commands" / f"{subject.board}.json"
        if not record.is_file():
            budgets = {_WHOLE, self._budget(subject)}
            schedules = [
                result.directory.schedule_file(result.cell)
                for result in self._read(_first_name(subject)).cells
                if result.cell.ram_budget in budgets
            ]
            calls = [
                self._replay_s(subject, schedule)
                for _ in range(_ROUNDS_OF_COMMANDS)
                for schedule in schedules
            ]
            write_atomically(record, json.dumps(calls))
        return median(json.loads(record.read_text()))

    def predicted_change(self, subject: Subject) -> float:
        """By how much the schedule with less RAM takes longer, as predicted."""
        return self._changes(subject)[self._budget(subject)]

    # --- campaigns --------------------------------------------------------------------------------

    def _budget(self, subject: Subject) -> str:
        """The RAM budget whose schedule takes longer by the least that is at least the change."""
        found = {
            budget: change
            for budget, change in self._changes(subject).items()
            if change >= subject.change
        }
        if not found:
            raise SystemExit(f"{subject.board}: no RAM budget makes a step {subject.change} slower")
        return min(found, key=lambda budget: found[budget])

    def _changes(self, subject: Subject) -> dict[str, float]:
        name = _first_name(subject)
        if not (self._results.campaigns / name / "tables").is_dir():
            file = self._file(subject, name, (_WHOLE, *subject.budgets), 1, 0)
            self._call("campaign", "run", str(file), "--jobs", "1")
        times: dict[str, float] = {}
        for result in self._read(name).cells:
            if result.solved is not None and result.solved.time_s is not None:
                times[result.cell.ram_budget] = result.solved.time_s
        return {budget: time_s / times[_WHOLE] - 1 for budget, time_s in times.items()}

    def _file(
        self,
        subject: Subject,
        name: str,
        budgets: Sequence[str],
        repetitions: int,
        seed: int,
    ) -> Path:
        """Write the file of a campaign."""
        document = {
            "schema": "campaign/1",
            "name": name,
            "boards": [subject.board],
            "networks": [{"model": subject.network, "batches": [subject.batch]}],
            "ram_budgets": list(budgets),
            "methods": [
                {
                    "method": "joulewright",
                    "label": "recompute",
                    "paging": False,
                    "time_limit_s": 20,
                    "gap": 0.01,
                }
            ],
            "repetitions": repetitions,
            "steps": subject.steps,
            "profile_blocks": 3,
            "watch_steps": False,
            "seed": seed,
        }
        path = self._folder / f"{name}.yaml"
        write_atomically(path, json.dumps(document))
        return path

    def _copy_schedules(self, source: str, target: str) -> None:
        """Give a campaign the profile and the schedules of another, which it then uses."""
        before, after = self._results.campaigns / source, self._results.campaigns / target
        if after.is_dir():
            return
        shutil.copytree(before / "profiles", after / "profiles")
        for cell in (before / "cells").iterdir():
            (after / "cells" / cell.name).mkdir(parents=True)
            for file in _KEPT_FILES:
                shutil.copy(cell / file, after / "cells" / cell.name / file)

    def _replay_s(self, subject: Subject, schedule: Path) -> float:
        words = (
            "--schedule",
            str(schedule),
            "--device",
            subject.board,
            "--steps",
            str(subject.steps),
        )
        out = self._folder / "commands" / subject.board
        began_s = time.monotonic()
        self._call("run", *words, "--out", str(out))
        return time.monotonic() - began_s

    def _call(self, *words: str, allowed: Sequence[int] = (0,)) -> str:
        """Run a command of the command line, and return its output.

        It ends the benchmark if the exit code is none of ``allowed``.
        """
        done = subprocess.run(
            [sys.executable, cli.__file__, *words, "--results", self._results.root],
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
        )
        if done.returncode not in allowed:
            raise SystemExit(f"{' '.join(words)} failed: {done.stderr or done.stdout}")
        return done.stdout

    def _compare(self, first: str, second: str) -> CampaignComparison:
        codes = (ExitCode.DONE, ExitCode.WORSE)
        stated = json.loads(
            self._call("campaign", "compare", first, second, "--json", allowed=codes)
        )
        return CampaignComparison.model_validate(stated)

    def _records(self, subject: Subject) -> list[Path]:
        return sorted((self._folder / "trials").glob(f"{subject.board}-*.json"))

    def _read(self, name: str) -> CampaignResults:
        return read_campaign(self._results.campaigns / name)

    def _replays(self, name: str) -> list[Repetition]:
        """Finished replays of a campaign; none before its first call."""
        if not (self._results.campaigns / name / "cells.json").is_file():
            return []
        return [
            replay
            for result in self._read(name).cells
            for replay in (*result.repetitions, *result.controls)
        ]

    # --- what it found ----------------------------------------------------------------------------

    def _trial(
        self,
        subject: Subject,
        name: str,
        budget: str,
        done_before: Sequence[Repetition],
        call_s: float,
    ) -> Trial:
        comparison = self._compare(f"{name}:{_WHOLE}", f"{name}:{budget}")
        (change,) = (each for each in comparison.cells if each.quantity == "time")
        (control,) = (each for each in comparison.controls if each.quantity == "time")
        replays = [each for each in self._replays(name) if each not in done_before]
        return Trial(
            board=subject.board,
            change=change.shift,
            control=control.shift,
            change_logs=_change_logs(self._read(name), budget),
            control_logs=_control_logs(self._read(name)),
            call_s=call_s,
            replays_s=sum(replay.circumstances.seconds for replay in replays),
            replays=len(replays),
            load=max(replay.circumstances.load for replay in self._replays(name)),
            release=self._release,
        )


def _first_name(subject: Subject) -> str:
    """Name of the campaign that finds the schedules of a board."""
    return f"{subject.board}-schedules"


def _change_logs(results: CampaignResults, budget: str) -> tuple[float, ...]:
    of_budget = {result.cell.ram_budget: _times(result.repetitions) for result in results.cells}
    return _logs(of_budget[_WHOLE], of_budget[budget])


def _control_logs(results: CampaignResults) -> tuple[float, ...]:
    (result,) = (result for result in results.cells if result.controls)
    return _logs(_times(result.repetitions), _times(result.controls))


def _times(replays: Sequence[Repetition]) -> dict[int, float]:
    return {each.number: each.time_s.measured.median for each in replays}


def _logs(before: dict[int, float], after: dict[int, float]) -> tuple[float, ...]:
    return tuple(math.log(after[number] / before[number]) for number in sorted(before))
