"""``cli.py solve`` as one command, with start-up, reading and verification."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from devices.documents.readable import size
from solver.problem.graph import CostedGraph
from tests.support.paths import ROOT

# Reading the graph, planning addresses and writing take time beyond the solver's limit.
START_UP_S = 1.5

_ROUNDING = 1e-9


@dataclass(frozen=True)
class CommandRun:
    """Result of one command. ``schedule`` is the JSON that it printed, or None if it failed, and
    ``message`` is then the last line of its errors. ``peak_bytes`` is the resident memory of its
    largest process."""

    schedule: dict[str, Any] | None
    seconds: float
    peak_bytes: int
    message: str

    @property
    def time(self) -> str:
        return f"{self.seconds:.1f} s"

    @property
    def memory(self) -> str:
        return size(self.peak_bytes)


def solve(graph: Path, budget: str, limit_s: float, options: Sequence[str] = ()) -> CommandRun:
    """Solve the graph in a file. ``limit_s`` includes an allowance for start-up."""
    path = str(graph.absolute())
    limit = f"{max(1.0, limit_s - START_UP_S):g}"
    run = run_solve(("--graph", path, "--ram-budget", budget, "--time-limit", limit, *options))
    return replace(run, message=run.message.replace(path, graph.name))


def run_solve(options: Sequence[str]) -> CommandRun:
    """Run ``cli.py solve`` with these options."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "cli.py", "solve", "--json", *options]
        command += ["--out", f"{directory}/schedule.json"]
        printed, errors = Path(directory, "printed"), Path(directory, "errors")
        began = time.monotonic()
        with printed.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # wait4 has collected the process
        seconds = time.monotonic() - began
        text = printed.read_text()
        message = (errors.read_text().strip().splitlines() or [""])[-1]
    schedule = json.loads(text) if text else None
    return CommandRun(schedule, seconds, usage.ru_maxrss * 1024, message)


def over_least(energy_j: float, graph: CostedGraph) -> float:
    """Excess of an energy over that of computing every op once, as a share. Rounding errors of the
    sum count as zero."""
    least_j = sum(op.energy_j for op in graph.ops)
    excess = energy_j / least_j - 1 if least_j else 0.0
    return 0.0 if abs(excess) < _ROUNDING else excess
