"""Choice among several ways to take a step: numbers of parts of the batch, and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from commands.console import Console
from commands.solve.subject import SolveSubject
from commands.stopping import stop_requested
from devices.documents.readable import si, size
from solver.options import SolverOptions
from solver.problem.schedule import Budget, Schedule
from solver.search.search import Progress
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit


def cheapest(
    subjects: Sequence[SolveSubject],
    budget: Budget,
    solver: SolverOptions,
    show: Callable[[Progress], None],
    *,
    certified: bool,
) -> tuple[SolveSubject, Schedule, tuple[Schedule, ...]]:
    """Solve a step in different ways, and choose the one of least energy.

    Args:
        subjects: The step as a whole, then in ever more parts or smaller slices.
        budget: Budget of all of them.
        solver: Options; the time limit is divided among the searches.
        show: Called with the progress of each search.
        certified: Prove each result again.

    Returns:
        The chosen step with its schedule, and the schedules of all that were solved. Without any
        schedule, the choice is the first one.
    """
    limit = TimeLimit.after(solver.time_limit_s)
    found: list[Schedule] = []
    for number, subject in enumerate(subjects):
        if found and stop_requested():
            break
        part = replace(solver, time_limit_s=limit.part(1 / (len(subjects) - number)).seconds)
        found.append(solve_graph(subject.graph, budget, part, show, certified=certified))
    usable = [each for each in found if each.energy_j is not None]
    best = min(usable, key=lambda each: each.energy_j or 0.0, default=found[0])
    return subjects[found.index(best)], best, tuple(found)


def show_comparison(
    console: Console, subjects: Sequence[SolveSubject], found: Sequence[Schedule]
) -> list[dict[str, Any]]:
    """Print the schedules of all ways to take the step, and return them for the document."""
    rows = [["parts of the batch", "slices", "status", "energy a step", "time a step", "peak RAM"]]
    document: list[dict[str, Any]] = []
    for subject, schedule in zip(subjects, found, strict=False):
        parts, slices = subject.parts, subject.slices
        energy_j, time_s, peak = schedule.energy_j, schedule.time_s, schedule.peak_bytes
        rows.append(
            [
                str(parts),
                "none" if slices is None else size(slices),
                schedule.status,
                "–" if energy_j is None else si(energy_j, "J"),
                "–" if time_s is None else si(time_s, "s"),
                "–" if peak is None else size(peak),
            ]
        )
        figures = {"status": schedule.status, "energy_j": energy_j, "time_s": time_s}
        of_slices = {} if slices is None else {"slices": slices}
        document.append({"parts": parts, **of_slices, **figures})
    console.table(rows, right=(0, 1, 3, 4, 5))
    return document
