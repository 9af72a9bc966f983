"""Printouts of ``sweep``: each point when it is solved, then all points of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from commands.console import Console
from devices.documents.readable import NO_SOURCE, si, size, smallest_ram_words, time_words
from solver.sweep.directory import SweepSubject
from solver.sweep.record import SweepRow
from solver.sweep.sweep import BaselineRun, PointSolved

_COMPARED = (
    "best baseline: of all schedules of baselines whose addresses fit the RAM and which meet the"
    " deadline; baselines themselves count RAM as a sum of bytes, as published (DTR and Coop as an"
    " arena of their own). Points start with these schedules and those of other points"
)


def summarise(
    console: Console,
    subject: SweepSubject,
    solved: Sequence[SweepRow],
    baselines: Sequence[SweepRow],
) -> None:
    """Print the points ``solved`` of a subject's grid, beside the runs of ``baselines``."""
    source = subject.graph.energy_source or NO_SOURCE
    kept = solved[0]
    console.result(
        f"{subject.graph.name}: unconstrained {size(kept.unconstrained_peak_bytes)},"
        f" {si(kept.unconstrained_energy_j, 'J')}, {si(kept.unconstrained_time_s, 's')}"
    )
    head = ["RAM", "of it", "deadline", "", f"energy ({source})", "more", "proven gap"]
    rows = [[*head, time_words(source), "best baseline"]]
    rows += [
        [
            size(row.ram_bytes),
            _of_peak(row),
            "none" if row.deadline_s is None else si(row.deadline_s, "s"),
            row.status.replace("_", " "),
            "–" if row.energy_j is None else si(row.energy_j, "J"),
            _more(row),
            "–" if row.gap is None else _percent(row.gap, 3),
            "–" if row.time_s is None else si(row.time_s, "s"),
            _best_baseline(row, baselines),
        ]
        for row in solved
    ]
    console.table(rows, right=(0, 1, 2, 4, 5, 6, 7))
    if baselines:
        console.result(_COMPARED)
    for row in {row.deadline_s: row for row in solved if row.smallest_ram_bytes}.values():
        assert row.smallest_ram_bytes is not None
        console.result(
            f"the smallest feasible RAM budget {_within(row)} is"
            f" {smallest_ram_words(row.smallest_ram_bytes, row.smallest_ram_bound_bytes)},"
            f" set by {row.limiting_op}" + (f"; {row.note}" if row.note else "")
        )
    console.result("")


def _within(row: SweepRow) -> str:
    return "without a deadline" if row.deadline_s is None else f"within {si(row.deadline_s, 's')}"


def _best_baseline(point: SweepRow, baselines: Sequence[SweepRow]) -> str:
    """Format the cheapest baseline schedule that fits, for whichever budget it was made.

    It fits if its addresses do.
    """
    deadline_s = float("inf") if point.deadline_s is None else point.deadline_s
    fitting = [
        (row.energy_j, row.method, row)
        for row in baselines
        if row.energy_j is not None
        and row.time_s is not None
        and row.time_s <= deadline_s
        and row.arena_bytes is not None
        and row.arena_bytes <= point.ram_bytes
    ]
    if not fitting:
        return "–"
    _, name, best = min(fitting, key=lambda candidate: candidate[:2])
    return f"{_more(best)} {name}"


def _more(row: SweepRow) -> str:
    """Format the extra energy over keeping everything."""
    if row.energy_j is None or not row.unconstrained_energy_j:
        return "–"
    return f"{100 * (row.energy_j / row.unconstrained_energy_j - 1):+.3f} %"


def _of_peak(row: SweepRow) -> str:
    """Format the budget's share of the RAM of keeping everything, which may count nothing."""
    peak_bytes = row.unconstrained_peak_bytes
    return _percent(row.ram_bytes / peak_bytes, 0) if peak_bytes else "–"


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} %"


def event_line(event: PointSolved | BaselineRun) -> str:
    """Summarise the result of a point or a baseline in a line."""
    if not isinstance(event, PointSolved):
        nothing = "" if event.result.actions else ", no schedule"
        nothing = f", failed: {event.result.note}" if event.failed else nothing
        return f"{event.study.name}, {size(event.budget.ram_bytes)}: {event.name}{nothing}"
    schedule = event.schedules[0]
    deadline_s = schedule.budget.deadline_s
    deadline = "" if deadline_s is None else f", {si(deadline_s, 's')}"
    energy = "" if schedule.energy_j is None else f" {si(schedule.energy_j, 'J')}"
    gap = "" if schedule.gap is None else f", gap {_percent(schedule.gap, 3)}"
    where = f"{event.study.name}, {size(schedule.budget.ram_bytes)}{deadline}"
    return f"{where}: {schedule.status.replace('_', ' ')}{energy}{gap}"
