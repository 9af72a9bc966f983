"""Comparison of a schedule with every baseline under the same budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from devices.errors import EngineFailed
from solver.baselines.baseline import BaselineResult, baseline_limit_s
from solver.baselines.registry import BASELINES, run_baseline
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Schedule
from solver.referee.referee import Replay, replay
from solver.solving.reserve import checks_s
from solver.time_limit import TimeLimit

# Time limit of each baseline if none is given.


@dataclass(frozen=True)
class ComparedBaseline:
    """Result of one baseline and its wall time; ``played`` is None without a schedule."""

    name: str
    result: BaselineResult
    played: Replay | None
    seconds: float


@dataclass(frozen=True)
class BaselineComparison:
    """A schedule as replayed (``ours``, None without actions) and the baselines."""

    ours: Replay | None
    baselines: tuple[ComparedBaseline, ...]


def compare_with_baselines(
    graph: CostedGraph,
    schedule: Schedule,
    limit: TimeLimit,
    on_begin: Callable[[str], None] = lambda _name: None,
    threads: int = SolverOptions.threads,
) -> BaselineComparison:
    """Run every baseline under the budget of a schedule; Ctrl-C skips those not finished.

    Args:
        graph: The costed graph.
        schedule: The schedule to compare with.
        limit: Limit for all baselines, of which each gets an equal share of what is left; 60 s each
            without a limit.
        on_begin: Called with the name of each baseline before it runs.
        threads: Number of threads of the methods that search.

    Returns:
        The replayed schedule and the results of the baselines. That of a baseline whose engine
        failed says so.
    """
    covers = schedule.budget.covers
    ours = replay(graph, schedule.actions, covers) if schedule.actions else None
    problem = Problem(graph, schedule.budget)
    compared = []
    least_s = checks_s(graph, covers)
    with suppress(KeyboardInterrupt):
        for position, name in enumerate(BASELINES):
            began_s = time.monotonic()
            if limit.left_s < least_s:
                late = BaselineResult(None, "not run, because the time limit left no time")
                compared.append(ComparedBaseline(name, late, None, 0.0))
                continue
            on_begin(name)
            share_s = limit.part(1 / (len(BASELINES) - position)).seconds
            limit_s = baseline_limit_s(share_s)
            try:
                result = run_baseline(name, problem, limit_s, threads)
            except EngineFailed as error:
                result = BaselineResult(None, str(error))
            seconds = time.monotonic() - began_s
            played = None if result.actions is None else replay(graph, result.actions, covers)
            compared.append(ComparedBaseline(name, result, played, seconds))
    return BaselineComparison(ours, tuple(compared))
