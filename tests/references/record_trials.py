"""Record the times of all windows of several runs of ``profile`` as one small file.

``.venv/bin/python -m tests.references.record_trials FILE RUN…`` takes the runs' directories under
``results/runs``. The runs must have measured the same operations.

``trials-local.json`` has four runs on a shared computer with two processors, within 12 minutes;
``trials-emulated.json`` three runs on the emulated Cortex-M3 with an SD card, within 50 minutes.
Nothing was changed between the runs of a board.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from profiler.run.table import TrialTable
from profiler.run.trials import RunDirectory, Trial

FOLDER = Path(__file__).parent


def record(file: Path, runs: Sequence[Path]) -> None:
    """Write the operations, and for each run and operation one time for each block."""
    tables = [TrialTable.of(RunDirectory(run).harness_runs()) for run in runs]
    labels = sorted(
        {
            trial.window
            for harness_run in tables[0].harness_runs
            for trial in harness_run.trials
            if trial.window.startswith(("warm ", "cold "))
        }
    )
    figures = [
        [[float(f"{value:.6g}") for value in table.values(label, _time_s)] for label in labels]
        for table in tables
    ]
    file.write_text(
        json.dumps({"windows": labels, "runs_s": figures}, separators=(",", ":")) + "\n"
    )


def _time_s(trial: Trial) -> float:
    return trial.time_s


if __name__ == "__main__":
    record(Path(sys.argv[1]), [Path(run) for run in sys.argv[2:]])
