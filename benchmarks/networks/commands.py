"""The commands that a user calls: ``profile``, ``solve`` and ``run`` of a network's file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devices.errors import ExitCode
from devices.replay import ReplayReport
from networks.kinds import Place
from solver.files.solved import graph_path
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from tests.support.paths import ROOT

_SOLVED = (ExitCode.DONE, ExitCode.INFEASIBLE, ExitCode.NO_SOLUTION, ExitCode.EXHAUSTED)

_WAIT_FOR_BOARD_S = 180.0
_BETWEEN_TRIES_S = 2.0


class CommandFailed(Exception):
    """A command failed; the message is the last line that it printed."""


@dataclass(frozen=True)
class Solved:
    """A schedule, its graph and its file, and the seconds that the command took.

    ``is_sliced``: whether layers were in slices.
    """

    schedule: Schedule
    graph: CostedGraph
    path: Path
    seconds: float
    is_sliced: bool


@dataclass(frozen=True)
class Commands:
    """Commands for one network, with all files in one directory."""

    network: Path
    directory: Path
    lora: int | None = None

    def profile(self) -> None:
        """Profile the network's operations on this computer, in the shortest run that there is."""
        adapters = () if self.lora is None else ("--lora", str(self.lora))
        quick = ("--blocks", "1", "--no-additivity")
        model = ("--model", str(self.network), *adapters)
        self._call("profile", "--device", "local", *model, *quick, "--out", str(self._profile))

    def solve(
        self,
        budget: str,
        limit_s: float,
        parameters_in: Place = "ram",
        *,
        is_sliced: bool = False,
    ) -> Solved:
        out = self.directory / "schedule.json"
        out.unlink(missing_ok=True)
        words = ("--ram-budget", budget, "--time-limit", f"{limit_s:g}", "--out", str(out))
        words += ("--parameters-in", parameters_in)
        began = time.monotonic()
        words += () if is_sliced else ("--slices", "none")
        self._call("solve", "--profile", str(self._profile), *words, allowed=_SOLVED)
        seconds = time.monotonic() - began
        schedule = Schedule.model_validate_json(out.read_bytes())
        graph = CostedGraph.model_validate_json(graph_path(out).read_bytes())
        return Solved(schedule, graph, out, seconds, is_sliced)

    def run(
        self, solved: Solved, samples: Path, steps: int, gradients: Path | None = None
    ) -> ReplayReport:
        words = ["--batches", str(samples), "--steps", str(steps)]
        words += ["--out", str(self.directory / f"run-{steps}")]
        if gradients is not None:
            words += ["--save-gradients", str(gradients)]
        schedule = ("--schedule", str(solved.path), "--device", "local")
        allowed = (ExitCode.DONE, ExitCode.INTERNAL_ERROR)
        return ReplayReport.model_validate(self._call("run", *schedule, *words, allowed=allowed))

    @property
    def _profile(self) -> Path:
        return self.directory / "profile.yaml"

    def _call(self, *words: str, allowed: Sequence[int] = (ExitCode.DONE,)) -> Any:
        """Call a command. Returns the document that it prints."""
        command = [sys.executable, "cli.py", *words, "--json", "--results", str(self.directory)]
        done = _run_to_end(command)
        until = time.monotonic() + _WAIT_FOR_BOARD_S
        # Another program may be using this computer as a board.
        while done.returncode == ExitCode.BOARD_UNREACHABLE and time.monotonic() < until:
            time.sleep(_BETWEEN_TRIES_S)
            done = _run_to_end(command)
        if done.returncode not in allowed or not done.stdout:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise CommandFailed(f"{words[0]}: {said[-1]}")
        return json.loads(done.stdout)


def _run_to_end(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
