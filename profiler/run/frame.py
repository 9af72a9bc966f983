"""Raw trials as a data frame, for custom statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profiler.run.trials import RunDirectory

if TYPE_CHECKING:
    import pandas as pd


def trials_frame(run_directory: Path) -> pd.DataFrame:
    """Raw trials of a run as a data frame, one row per measured window, in the order of measuring.

    Void trials are included. Columns: ``block``, ``sitting`` (number of the harness run in its
    block), ``window``, ``executions``, ``time_s`` of one execution, ``energy_j`` of the whole
    window as the meter saw it and ``energy_source``, its origin (both empty without a meter),
    ``start_s`` and ``length_s`` on the board's clock, ``frequency_khz`` (0 where unknown),
    ``temperature_c``, ``preempted_share``, ``void`` (the reason, empty if valid).

    Args:
        run_directory: Directory of one profiling run.

    Raises:
        DocumentError: A file of trials is damaged.
    """
    import pandas as pd

    rows = [
        {
            "block": harness_run.header.block,
            "sitting": harness_run.header.sitting,
            "window": trial.window,
            "executions": trial.executions,
            "time_s": trial.time_s,
            "energy_j": trial.energy_j,
            "energy_source": harness_run.header.energy_source,
            "start_s": trial.start_ns / 1e9,
            "length_s": trial.length_s,
            "frequency_khz": trial.frequency_after_khz,
            "temperature_c": trial.temperature_mc / 1000,
            "preempted_share": trial.preempted_share,
            "void": trial.void,
        }
        for harness_run in RunDirectory(run_directory).harness_runs()
        for trial in harness_run.trials
    ]
    return pd.DataFrame(rows)
