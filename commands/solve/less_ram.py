"""Costs of less RAM, shown by ``solve`` without a RAM budget if everything fits."""

from __future__ import annotations

from typing import Any

from commands.console import Console
from devices.documents.readable import NO_SOURCE, si, size, time_words
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import PageIn, PageOut, Schedule
from solver.referee.referee import Replay
from solver.requests.summary import progress_line
from solver.solving.shared_ram import SharedRam
from solver.sweep.less_ram import PERCENTAGES, LessRam, solve_with_less_ram

_WITHOUT_ENERGY = {
    "infeasible": "no schedule fits",
    "exhausted": "none found",
    "no_solution": "none found in time",
}


def show_less_ram(
    console: Console,
    graph: CostedGraph,
    schedule: Schedule,
    kept: Replay,
    options: SolverOptions,
    ram: SharedRam | None,
) -> list[dict[str, Any]]:
    """State that everything fits, solve with less RAM and print a table; return its rows as data.

    ``kept`` is the step with nothing recomputed or paged. ``ram`` is that of the board, if arena
    and records share it.
    """
    pages = any(isinstance(action, PageIn | PageOut) for action in schedule.actions)
    console.result(
        f"\neverything fits into the {size(schedule.budget.ram_bytes)} of RAM that are available:"
        + (
            " nothing is recomputed, and only tensors with their home in storage are paged"
            if pages
            else " nothing is recomputed or paged"
        )
    )
    with console.status("solving with less RAM", lines_every_s=2.0) as status:
        found = solve_with_less_ram(
            graph,
            schedule,
            kept.peak_bytes,
            options,
            lambda percent, progress: status.show(
                f"{percent} % of the RAM  {progress_line(progress)}"
            ),
            ram,
        )
    rows = found.rows
    source = schedule.energy_source or NO_SOURCE
    head = ["RAM", "of the peak", f"energy a step ({source})", "more energy"]
    table = [[*head, time_words(source, "time a step"), "proven gap"]]
    table += [_row(row, kept) for row in rows]
    console.table(table, right=(0, 1, 2, 3, 4, 5))
    if len(rows) < len(PERCENTAGES):
        console.result(f"stopped after {len(rows)} of {len(PERCENTAGES)} budgets")
    if found.failure is not None:
        console.say(f"solving with less RAM failed: {found.failure}")
    return [_as_data(row, kept) for row in rows]


def _row(row: LessRam, kept: Replay) -> list[str]:
    schedule = row.schedule
    more, gap = _more_energy(schedule, kept), schedule.gap
    return [
        size(schedule.budget.ram_bytes),
        f"{row.percent} %",
        _WITHOUT_ENERGY[schedule.status]
        if schedule.energy_j is None
        else si(schedule.energy_j, "J"),
        "–" if more is None else f"{100 * more:+.2f} %",
        "–" if schedule.time_s is None else si(schedule.time_s, "s"),
        "–" if gap is None else f"{100 * gap:.3f} %",
    ]


def _more_energy(schedule: Schedule, kept: Replay) -> float | None:
    """Extra energy relative to the step with nothing recomputed or paged."""
    if schedule.energy_j is None or not kept.energy_j:
        return None
    return schedule.energy_j / kept.energy_j - 1


def _as_data(row: LessRam, kept: Replay) -> dict[str, Any]:
    schedule = row.schedule
    data: dict[str, Any] = {
        "percent_of_peak": row.percent,
        "ram_bytes": schedule.budget.ram_bytes,
        "status": schedule.status,
    }
    figures = {
        "energy_j": schedule.energy_j,
        "energy_source": schedule.energy_source,
        "more_energy": _more_energy(schedule, kept),
        "time_s": schedule.time_s,
        "peak_bytes": schedule.peak_bytes,
        "gap": schedule.gap,
        "ended_by": schedule.ended_by,
    }
    return data | {name: value for name, value in figures.items() if value is not None}
