"""``solve --baselines``: the methods that users and papers compare with, beside the schedule."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from commands.console import WITHOUT_ADDRESSES, Console, si, size

if TYPE_CHECKING:
    from solver.baselines.baseline import BaselineResult
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule
    from solver.referee.referee import Replay

# What each may take where no time limit was given.
_TIME_LIMIT_S = 60.0


def compare_with_baselines(
    arguments: Namespace, console: Console, graph: CostedGraph, schedule: Schedule
) -> list[dict[str, Any]]:
    """Run every baseline under the schedule's budget and print them as a table; what it says, as
    data. Each has as long as the solver had.

    Raises :class:`~devices.errors.EngineFailed`.
    """
    from solver.baselines.registry import BASELINES, run_baseline
    from solver.problem.problem import Problem
    from solver.referee.referee import replay

    problem = Problem(graph, schedule.budget)
    limit_s = arguments.time_limit or _TIME_LIMIT_S
    covers = schedule.budget.covers
    ours = replay(graph, schedule.actions, covers) if schedule.actions else None
    table = [["method", "energy", "", "time", "peak of RAM", "fragmentation", ""]]
    if ours is not None:
        table.append(["this schedule", *_figures(ours, None), "", schedule.status])
    rows: list[dict[str, Any]] = []
    for name in BASELINES:
        console.say(f"baseline {name}")
        began = time.monotonic()
        result = run_baseline(name, problem, limit_s)
        seconds = time.monotonic() - began
        played = None if result.actions is None else replay(graph, result.actions, covers)
        rows.append(_as_data(name, result, played, seconds))
        figures = ["–", "", "", ""] if played is None else _figures(played, ours)
        fragmentation = (
            "" if result.fragmentation is None else f"{100 * result.fragmentation:.1f} %"
        )
        table.append([name, *figures, fragmentation, result.note])
    console.result("")
    console.table(table, right=(1, 2, 3, 4, 5))
    console.result(WITHOUT_ADDRESSES)
    return rows


def _figures(played: Replay, ours: Replay | None) -> list[str]:
    """Energy, how much more that is than this schedule's, time, peak."""
    more = ""
    if ours is not None and ours.energy_j:
        more = f"{100 * (played.energy_j / ours.energy_j - 1):+.2f} %"
    return [si(played.energy_j, "J"), more, si(played.time_s, "s"), size(played.peak_bytes)]


def _as_data(
    name: str, result: BaselineResult, played: Replay | None, seconds: float
) -> dict[str, Any]:
    data: dict[str, Any] = {"name": name, "note": result.note, "seconds": seconds}
    if played is not None:
        data |= {
            "energy_j": played.energy_j,
            "time_s": played.time_s,
            "peak_bytes": played.peak_bytes,
            "bytes_written_to_storage": played.bytes_written_to_storage,
        }
    if result.arena_bytes is not None:
        data |= {"arena_bytes": result.arena_bytes, "fragmentation": result.fragmentation}
    return data
