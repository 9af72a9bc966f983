"""Tables that are derived from a campaign's files: its cells, and its replays."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from campaigns.keeping.records import Repetition
from campaigns.keeping.results import CampaignResults, CellResult
from devices.documents.document import write_atomically
from devices.profile import Interval

if TYPE_CHECKING:
    import pandas as pd

_LEVELS = ("board", "condition", "network", "batch", "ram_budget", "deadline", "method")
_OF_SCHEDULE = (
    *("graph", "energy_source", "ram_bytes", "covers", "deadline_s"),
    *("unconstrained_peak_bytes", "unconstrained_energy_j", "unconstrained_time_s"),
    *("predicted_operations", "status", "energy_j", "energy_bound_j", "any_order_bound_j", "gap"),
    *("time_s", "peak_bytes", "arena_bytes", "bytes_written_to_storage"),
    *("recomputations", "page_outs", "page_ins", "smallest_ram_bytes", "note"),
)

_COUNTS = ("recomputations", "outs", "ins", "operations")


def write_tables(results: CampaignResults) -> None:
    """Write ``cells`` and ``replays`` into ``tables/``, each as CSV and Parquet.

    Raises:
        OSError: A table cannot be written.
    """
    directory = results.directory
    for name, table in (("cells", cell_table(results)), ("replays", replay_table(results))):
        parquet = io.BytesIO()
        table.to_parquet(parquet, index=False)
        write_atomically(directory.tables / f"{name}.csv", table.to_csv(index=False))
        write_atomically(directory.tables / f"{name}.parquet", parquet.getvalue())


def cell_table(results: CampaignResults) -> pd.DataFrame:
    """One row for each cell: its levels, its state and the figures of its schedule."""
    return _table([_cell_row(result) for result in results.cells])


def replay_table(results: CampaignResults) -> pd.DataFrame:
    """One row for each finished replay: predicted and measured time and energy of a step."""
    return _table(
        [
            _replay_row(result, repetition)
            for result in results.cells
            for repetition in (*result.repetitions, *result.controls)
        ]
    )


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(rows).convert_dtypes()
    # A column without a value would have a type that tables with values do not have.
    empty = [name for name in table.columns if table[name].isna().all()]
    return table.astype({name: _type_of_empty(name) for name in empty})


def _type_of_empty(name: str) -> str:
    words = set(name.split("_"))
    if words & {"s", "j", "gap"}:
        return "Float64"
    return "Int64" if words & {"bytes", "batch", *_COUNTS} else "string"


def _levels(result: CellResult) -> dict[str, Any]:
    return {
        "hash": result.cell.hash,
        **{level: getattr(result.cell, level) for level in _LEVELS},
    }


def _cell_row(result: CellResult) -> dict[str, Any]:
    solved = result.solved
    failure = result.final_failure or (result.failures[-1] if result.failures else None)
    return {
        **_levels(result),
        "state": result.state,
        "repetitions": len(result.repetitions),
        **{name: None if solved is None else getattr(solved, name) for name in _OF_SCHEDULE},
        "failure": None if failure is None else failure.reason,
    }


def _replay_row(result: CellResult, repetition: Repetition) -> dict[str, Any]:
    energy = repetition.energy_j
    return {
        **_levels(result),
        "repetition": repetition.number,
        "control": repetition.control,
        "position": repetition.position,
        "attempt": repetition.attempt,
        "started": repetition.circumstances.started,
        "steps": repetition.steps,
        **_interval("predicted_time_s", repetition.time_s.predicted),
        **_interval("measured_time_s", repetition.time_s.measured),
        "measured_energy_source": repetition.measured_energy_source,
        **_interval("predicted_energy_j", None if energy is None else energy.predicted),
        **_interval("measured_energy_j", None if energy is None else energy.measured),
        "arena_bytes": repetition.memory.arena_bytes,
        "touched_bytes": repetition.memory.touched_bytes,
        "written_bytes": repetition.written_bytes,
        "values_compared": repetition.values_compared,
        "values_identical": repetition.values_identical,
    }


def _interval(name: str, interval: Interval | None) -> Mapping[str, float | None]:
    return dict(_ends(name, interval))


def _ends(name: str, interval: Interval | None) -> Iterator[tuple[str, float | None]]:
    yield name, None if interval is None else interval.median
    yield f"{name}_low", None if interval is None else interval.low
    yield f"{name}_high", None if interval is None else interval.high
