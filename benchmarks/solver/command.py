"""``cli.py solve`` as one command: start-up, reading and verification included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Ran:
    """What one command came to. ``schedule`` is what it printed (None if it failed, and then
    ``said`` is its last line), ``most_bytes`` the most memory of any process of it."""

    schedule: dict[str, Any] | None
    seconds: float
    most_bytes: int
    said: str


def solve(graph: Path, budget: str, limit_s: float, options: Sequence[str] = ()) -> Ran:
    """Solve ``graph`` in at most ``limit_s`` seconds, start-up included as far as it is known."""
    with tempfile.TemporaryDirectory() as directory:
        command = [
            *(sys.executable, "cli.py", "solve", "--json", "--graph", str(graph.absolute())),
            *("--ram-budget", budget, "--out", f"{directory}/schedule.json"),
            *("--time-limit", f"{max(1.0, limit_s - START_UP_S):g}", *options),
        ]
        printed, errors = Path(directory, "printed"), Path(directory, "errors")
        began = time.monotonic()
        with printed.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # it was waited for
        seconds = time.monotonic() - began
        text = printed.read_text()
        said = (errors.read_text().strip().splitlines() or [""])[-1]
    schedule = json.loads(text) if text else None
    return Ran(schedule, seconds, usage.ru_maxrss * 1024, said)


# Reading the graph, planning addresses and writing come on top of the solver's time limit.
START_UP_S = 1.5
