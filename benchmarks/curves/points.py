"""Points of a network's curve, each the best of the step in several slices."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curves.cases import Case, Form
from benchmarks.machine import release
from benchmarks.publish import report_progress
from devices.documents.document import write_atomically
from devices.documents.readable import si, size
from solver.options import SolverOptions
from solver.pools import local_pool
from solver.problem.schedule import Budget
from solver.sweep.directory import SweepDirectory, SweepSubject
from solver.sweep.record import SOLVED, SweepRow
from solver.sweep.sweep import Event, PointSolved, sweep


@dataclass(frozen=True)
class Point:
    """The cheapest schedule under a budget: its form and its row, None if none was found.

    No schedule in any of the slices of the case needs less than ``bound_j``, in whatever order.
    """

    budget: Budget
    bound_j: float
    best: tuple[Form, SweepRow] | None


@dataclass(frozen=True)
class Curve:
    """The points of a network in ascending order of RAM, beside the step of the first form that
    keeps everything. ``releases`` have solved them."""

    case: Case
    points: tuple[Point, ...]
    releases: frozenset[str]

    @property
    def kept_j(self) -> float:
        return self.case.forms[0].kept.energy_j

    @property
    def kept_s(self) -> float:
        return self.case.forms[0].kept.time_s


def curve(case: Case, count: int, options: SolverOptions, directory: Path) -> Curve:
    """Solve ``count`` budgets in each of a case's slices that can fit.

    Schedules and bounds of one form are shared between its budgets; those of different forms are
    compared only. What ``directory`` has from searches with the same time limit is not solved
    again.
    """
    directory /= f"{options.time_limit_s} s"
    kept, file = SweepDirectory(directory, options), directory / "releases.json"
    releases: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    budgets = case.budgets(count)
    subjects = [
        SweepSubject(form.graph, "all", case.profile.name, case.name) for form in case.forms
    ]
    studies = [
        kept.study(subject, [b for b in budgets if b.ram_bytes >= form.least_bytes], [])
        for subject, form in zip(subjects, case.forms, strict=True)
    ]

    def keep(event: Event) -> None:
        if isinstance(event, PointSolved):
            graph = event.study.graph.name
            releases.update({_name(graph, each.budget): release() for each in event.schedules})
            write_atomically(file, json.dumps(releases, indent=1))
            _report(event)
        kept.keep(event)

    with local_pool(1) as pool:
        sweep(studies, options, pool, keep)
    rows = {form.graph.name: _solved(kept, subject) for form, subject in _pairs(case, subjects)}
    points = tuple(_point(case, budget, rows) for budget in budgets)
    solved = (_name(graph, each) for graph, of_form in rows.items() for each in of_form)
    return Curve(case, points, frozenset(releases[name] for name in solved))


def _name(graph: str, budget: Budget) -> str:
    """Name of a point among those with a release."""
    return f"{graph}, {budget.ram_bytes} bytes"


def _pairs(case: Case, subjects: Sequence[SweepSubject]) -> Iterator[tuple[Form, SweepSubject]]:
    return zip(case.forms, subjects, strict=True)


def _report(event: PointSolved) -> None:
    schedule = event.schedules[0]
    energy = "" if schedule.energy_j is None else f", {si(schedule.energy_j, 'J')}"
    report_progress(
        f"{event.study.name}, {size(schedule.budget.ram_bytes)}: {schedule.status}{energy}"
    )


def _solved(kept: SweepDirectory, subject: SweepSubject) -> dict[Budget, SweepRow]:
    return {row.budget: row for row in kept.points(subject) if row.method == SOLVED}


def _point(case: Case, budget: Budget, rows: dict[str, dict[Budget, SweepRow]]) -> Point:
    fitting = [form for form in case.forms if form.least_bytes <= budget.ram_bytes]
    found = [(form, rows[form.graph.name][budget]) for form in fitting]
    bounds = [_bound_j(budget, rows[form.graph.name].values()) for form in fitting]
    with_schedule = [each for each in found if each[1].energy_j is not None]
    best = min(with_schedule, key=lambda each: each[1].energy_j or 0.0, default=None)
    return Point(budget, min(bounds), best)


def _bound_j(budget: Budget, rows: Iterable[SweepRow]) -> float:
    """Best bound of a form: a bound for one budget holds for every smaller one."""
    return max(
        math.inf if row.status == "infeasible" else row.any_order_bound_j or 0.0
        for row in rows
        if row.ram_bytes >= budget.ram_bytes
    )
