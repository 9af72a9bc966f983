"""Schedules under less RAM than a step with nothing recomputed or paged takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import Replay
from solver.search.search import Progress
from solver.solving.solving import solve_graph
from solver.sweep.frontier import Frontier

PERCENTAGES = (80, 60, 40)
"""RAM budgets, of the unconstrained peak."""

# For all budgets together where no time limit is given, and the least for one.
_TIME_LIMIT_S, _LEAST_S = 60.0, 0.1


@dataclass(frozen=True)
class LessRam:
    """The schedule under ``percent`` of the unconstrained peak."""

    percent: int
    schedule: Schedule


def keeps_everything(schedule: Schedule, kept: Replay) -> bool:
    """True for a schedule that needs no more energy than ``kept``, the step with nothing recomputed
    or paged."""
    return schedule.energy_j is not None and schedule.energy_j <= kept.energy_j


def solve_with_less_ram(
    graph: CostedGraph,
    roomy: Schedule,
    peak_bytes: int,
    options: SolverOptions,
    on_progress: Callable[[int, Progress], None] = lambda _percent, _progress: None,
) -> tuple[LessRam, ...]:
    """Schedules under 80, 60 and 40 % of ``peak_bytes``, the unconstrained peak, in this order.

    ``roomy`` is the schedule under a budget into which everything fits; its other terms (deadline,
    kinds of actions) hold for these schedules, too. What it has left of the time limit, or 60 s,
    is for all three together: each has an equal share of what those before it have left.
    ``on_progress`` is told the percentage and where its search stands.

    Ctrl-C ends the search under one budget with the best schedule so far, and leaves out those
    that follow. Raises :class:`~devices.errors.EngineFailed`.
    """
    limit_s = options.time_limit_s or _TIME_LIMIT_S
    deadline = time.monotonic() + limit_s - roomy.solver.seconds
    frontier = Frontier(graph, options.gap)
    frontier.add(roomy)
    budgets = {
        percent: roomy.budget.model_copy(update={"ram_bytes": peak_bytes * percent // 100})
        for percent in PERCENTAGES
    }
    for position, (percent, budget) in enumerate(budgets.items()):
        share_s = (deadline - time.monotonic()) / (len(budgets) - position)
        limited = replace(options, time_limit_s=max(share_s, _LEAST_S))
        start = frontier.start(budget)
        try:
            schedule = frontier.without_search(budget) or solve_graph(
                graph,
                budget,
                limited,
                partial(on_progress, percent),
                starts=() if start is None else (start,),
                with_advice=False,
            )
        except KeyboardInterrupt:
            break
        frontier.add(schedule)
        if schedule.ended_by == "interrupted":
            break
    known = frontier.schedules
    return tuple(
        LessRam(percent, known[budget]) for percent, budget in budgets.items() if budget in known
    )
