"""Every baseline under the budget of a schedule, beside that schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from solver.baselines.baseline import BaselineResult
from solver.baselines.registry import BASELINES, run_baseline
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Schedule
from solver.referee.referee import Replay, replay

# What each may take where no time limit was given.
_TIME_LIMIT_S = 60.0


@dataclass(frozen=True)
class ComparedBaseline:
    """``played`` is None for a baseline without a schedule; ``seconds`` is what it took."""

    name: str
    result: BaselineResult
    played: Replay | None
    seconds: float


@dataclass(frozen=True)
class BaselineComparison:
    """``ours`` is None where the schedule that they are compared with has no actions."""

    ours: Replay | None
    baselines: tuple[ComparedBaseline, ...]


def compare_with_baselines(
    graph: CostedGraph,
    schedule: Schedule,
    time_limit_s: float | None,
    on_begin: Callable[[str], None] = lambda _name: None,
) -> BaselineComparison:
    """Run every baseline under the schedule's budget; each has as long as the solver had.

    ``on_begin`` is told the name of each. Raises :class:`~devices.errors.EngineFailed`.
    """
    covers = schedule.budget.covers
    ours = replay(graph, schedule.actions, covers) if schedule.actions else None
    problem = Problem(graph, schedule.budget)
    compared = []
    for name in BASELINES:
        on_begin(name)
        began_s = time.monotonic()
        result = run_baseline(name, problem, time_limit_s or _TIME_LIMIT_S)
        seconds = time.monotonic() - began_s
        played = None if result.actions is None else replay(graph, result.actions, covers)
        compared.append(ComparedBaseline(name, result, played, seconds))
    return BaselineComparison(ours, tuple(compared))
