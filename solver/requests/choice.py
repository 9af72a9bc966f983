"""Choice among several ways to take a step: numbers of parts of the batch, slices, codecs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from math import inf

from devices.errors import EngineFailed
from solver.options import SolverOptions
from solver.problem.claims import is_roomier
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Budget, Schedule
from solver.requests.subjects import SolveSubject
from solver.search.search import Progress
from solver.solving.shared_ram import SharedRam, solve_in_shared_ram
from solver.solving.solving import solve_graph
from solver.time_limit import TimeLimit

_LEAST_S = 1.0
"""Slices after whole layers have at least so many seconds."""
_OF_WHOLE = 2 / 3
"""Whole layers have this share of the time before slices.

A search of whole layers alone that ends within the share leaves slices half of what it took; one
that does not takes longer than the share. So a request that has a schedule of whole layers takes at
most 1.5 times as long with slices, or :data:`_LEAST_S` longer.
"""


def cheapest(
    subjects: Sequence[SolveSubject],
    budget: Budget,
    solver: SolverOptions,
    show: Callable[[Progress], None] = lambda _progress: None,
    *,
    ram_of: Callable[[SolveSubject], SharedRam | None] = lambda _subject: None,
    certified: bool = False,
    stopped: Callable[[], bool] = lambda: False,
    found: list[Schedule] | None = None,
) -> tuple[SolveSubject, Schedule, tuple[Schedule, ...]]:
    """Solve a step in different ways, and choose the one of least energy.

    Of two of the same energy, the one that writes fewer bytes to storage is chosen.

    Args:
        subjects: The step as a whole, then in ever more parts or smaller slices; each without and
            with codecs. If slices come after whole layers, they have the last third of the time,
            or half of what whole layers took if all their searches end by themselves.
        budget: Budget of all of them.
        solver: Options; the time limit is divided among the searches.
        show: Called with the progress of each search.
        ram_of: The RAM that arena and records of a step's schedules share, if they do.
        certified: Prove each result again.
        stopped: Whether the user wants what was found so far; no further search begins then.
        found: List to which the schedule of each way is appended as soon as it is known, so that
            a Ctrl-C that ends this function loses none: :func:`chosen` chooses among them.

    Returns:
        The chosen step with its schedule, and the schedules of all that were solved. Without any
        schedule, the choice is the first way for which it is open whether there is one, else that
        of the smallest RAM budget. An engine that fails ends the search among further ways; a note
        in all schedules says so.

    Raises:
        EngineUnavailable: The engine could not be started.
        EngineFailed: The process of the engine failed in the first way, and no schedule was found.
    """
    found = [] if found is None else found

    def find(graph: CostedGraph, within: Budget, seconds: float | None) -> Schedule:
        limited = replace(solver, time_limit_s=seconds)
        return solve_graph(graph, within, limited, show, certified=certified)

    def solve(each: Sequence[SolveSubject], limit: TimeLimit) -> bool:
        """Solve each; False if the search ends before the last."""
        for number, subject in enumerate(each):
            if found and stopped():
                return False
            part_s = limit.part(1 / (len(each) - number)).seconds
            try:
                *_, schedule = solve_in_shared_ram(
                    partial(find, subject.graph), budget, part_s, ram_of(subject), stopped
                )
            except KeyboardInterrupt:  # before the search has begun, or for the second time
                if not found:
                    raise
                return False
            except EngineFailed as error:
                if not found:
                    raise
                found[:] = [_noted(each, f"{error}; further ways were not tried") for each in found]
                return False
            found.append(schedule)
        return True

    began, limit = time.monotonic(), TimeLimit.after(solver.time_limit_s)
    first = len(subjects) - _after_whole(subjects)
    goes_on = solve(subjects[:first], limit if first == len(subjects) else limit.part(_OF_WHOLE))
    is_open = any(each.energy_j is None or each.ended_by == "time_limit" for each in found)
    if not is_open:
        limit = limit.at_most(max(_LEAST_S, (time.monotonic() - began) / 2))
    if goes_on:
        solve(subjects[first:], limit)
    return (*chosen(subjects, found), tuple(found))


def chosen(
    subjects: Sequence[SolveSubject], found: Sequence[Schedule]
) -> tuple[SolveSubject, Schedule]:
    """The best of the schedules of the first subjects, at least one, and its subject."""
    best = min(found, key=_rank)
    return subjects[found.index(best)], best


def _noted(schedule: Schedule, note: str) -> Schedule:
    return schedule.model_copy(update={"notes": (*schedule.notes, note)})


def _after_whole(subjects: Sequence[SolveSubject]) -> int:
    """Number of the last subjects that are in slices after whole layers."""
    whole = [each.slices is None for each in subjects]
    return whole[::-1].index(True) if True in whole else 0


def _rank(schedule: Schedule) -> tuple[float, ...]:
    """Less is better: energy, and bytes written to storage if the energies are equal.

    Schedules with addresses come first: those of an interrupted search may have none. Without
    actions, those come first of which it is open whether there are any; then less is the RAM that
    would be enough, and the RAM that is needed at least.
    """
    if schedule.energy_j is not None:
        has_none, written_bytes = schedule.arena_bytes is None, schedule.bytes_written_to_storage
        return has_none, float(f"{schedule.energy_j:.9g}"), written_bytes or 0
    if schedule.status == "no_solution":
        return (2,)
    enough_bytes, needed_bytes = schedule.smallest_ram_bytes, schedule.smallest_ram_bound_bytes
    return 3, inf if enough_bytes is None else enough_bytes, needed_bytes or 0


def bound_of_all_j(
    subjects: Sequence[SolveSubject], found: Sequence[Schedule], budget: Budget
) -> float:
    """Energy that no schedule undercuts, whichever way the step is taken.

    Args:
        subjects: The ways to take the step.
        found: The schedules of the first of them, which were solved.
        budget: Budget of all.

    Returns:
        The least of the bounds for any order; infinite if no way has a schedule. Each is at least
        the energy of what every schedule does.
    """

    def bound_j(subject: SolveSubject, schedule: Schedule | None) -> float:
        unavoidable_j = Problem(subject.graph, budget).unavoidable_energy_j
        # Where records take part of the RAM, what is proven may be about less than was asked.
        if schedule is None or not is_roomier(schedule.budget, budget):
            return unavoidable_j
        if schedule.status == "infeasible":
            return inf
        return max(schedule.any_order_bound_j or 0.0, unavoidable_j)

    return min(bound_j(*each) for each in zip_longest(subjects, found))
