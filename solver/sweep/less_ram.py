"""Schedules under less RAM than the unconstrained peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from devices.errors import EngineFailed
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import Replay
from solver.search.search import Progress
from solver.solving.reserve import checks_s
from solver.solving.shared_ram import SharedRam, solve_in_shared_ram
from solver.solving.solving import solve_graph
from solver.sweep.frontier import Frontier
from solver.time_limit import TimeLimit

PERCENTAGES = (80, 60, 40)
"""RAM budgets, in percent of the unconstrained peak."""

# Default time limit of all budgets together, and shortest time for one.
_TIME_LIMIT_S, _LEAST_S = 60.0, 0.1


@dataclass(frozen=True)
class LessRam:
    """The schedule under a RAM budget of ``percent`` of the unconstrained peak."""

    percent: int
    schedule: Schedule


@dataclass(frozen=True)
class LessRamResult:
    """Schedules in the order of :data:`PERCENTAGES`, and why the last ones are missing.

    ``failure`` is the error of an engine that failed; None if no search failed.
    """

    rows: tuple[LessRam, ...]
    failure: str | None


def keeps_everything(schedule: Schedule, kept: Replay) -> bool:
    """Whether a schedule needs no more energy than ``kept``, the step that keeps everything."""
    return schedule.energy_j is not None and schedule.energy_j <= kept.energy_j


def solve_with_less_ram(
    graph: CostedGraph,
    roomy: Schedule,
    peak_bytes: int,
    options: SolverOptions,
    on_progress: Callable[[int, Progress], None] = lambda _percent, _progress: None,
    ram: SharedRam | None = None,
) -> LessRamResult:
    """Solve for 80, 60 and 40 % of the unconstrained peak.

    The three searches share the time limit, or what ``roomy`` left of 60 s: each gets an equal
    share of the remaining time, and none begins without any. Ctrl-C ends the current search with
    its best schedule so far and skips the following ones, as does an engine that fails.

    Args:
        graph: The costed graph.
        roomy: Schedule under a budget into which everything fits; deadline and allowed actions of
            its budget apply here, too.
        peak_bytes: The unconstrained peak.
        options: Search options.
        on_progress: Called with the percentage and the state of its search.
        ram: RAM of the board that arena and records share, if they do.

    Returns:
        The schedules, as far as the time allows.
    """
    default_s = max(_LEAST_S, _TIME_LIMIT_S - roomy.solver.seconds)
    limit = TimeLimit.after(default_s if options.time_limit_s is None else options.time_limit_s)
    least_s = checks_s(graph, roomy.budget.covers)
    frontier = Frontier(graph, options.gap)
    frontier.add(roomy)
    budgets = {
        percent: roomy.budget.model_copy(update={"ram_bytes": peak_bytes * percent // 100})
        for percent in PERCENTAGES
    }

    def find(percent: int, within: Budget, seconds: float | None) -> Schedule:
        return solve_graph(
            graph,
            within,
            replace(options, time_limit_s=seconds),
            partial(on_progress, percent),
            starts=frontier.starts(within),
            with_advice=False,
        )

    failure = None
    for position, (percent, budget) in enumerate(budgets.items()):
        if limit.left_s < least_s:
            break
        part_s = limit.part(1 / (len(budgets) - position)).seconds
        known = frontier.without_search(budget)
        try:
            *others, schedule = (
                solve_in_shared_ram(partial(find, percent), budget, part_s, ram)
                if known is None
                else (known,)
            )
        except KeyboardInterrupt:
            break
        except EngineFailed as error:
            failure = str(error)
            break
        for other in others:
            frontier.learn(other)
        frontier.add(schedule, budget)
        if schedule.ended_by == "interrupted":
            break
    best = frontier.schedules
    rows = (LessRam(percent, best[budget]) for percent, budget in budgets.items() if budget in best)
    return LessRamResult(tuple(rows), failure)
