"""``solve --baselines``: compare the schedule with published methods."""

from __future__ import annotations

from typing import Any

from commands.console import Console
from devices.documents.readable import NO_SOURCE, si, size
from devices.profile import EnergySource
from solver.baselines.comparison import ComparedBaseline, compare_with_baselines
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import Replay
from solver.time_limit import TimeLimit

_RAM_OF_BASELINES = (
    "baselines count RAM as a sum of bytes, as published (DTR and Coop choose addresses)"
)
_OF_THIS_SOLVER = {
    True: "; every schedule of this solver has addresses in one arena",
    False: ", and so does this schedule (--no-addresses)",
}


def show_baselines(
    console: Console,
    graph: CostedGraph,
    schedule: Schedule,
    limit: TimeLimit,
    solver: SolverOptions,
) -> list[dict[str, Any]]:
    """Run every baseline under the schedule's budget and print a table; return its rows as data.

    Each gets an equal share of the time that is left, and the threads of ``solver``, with which the
    schedule was found. Ctrl-C skips those that are not finished.
    """
    comparison = compare_with_baselines(
        graph, schedule, limit, lambda name: console.say(f"baseline {name}"), solver.threads
    )
    ours = comparison.ours
    source = graph.energy_source
    energy = f"energy ({source or NO_SOURCE})"
    table = [["method", energy, "", "time", "peak of RAM", "fragmentation", ""]]
    if ours is not None:
        table.append(["this schedule", *_figures(ours, None), "", schedule.status])
    table += [_row(baseline, ours) for baseline in comparison.baselines]
    console.result("")
    console.table(table, right=(1, 2, 3, 4, 5))
    console.result(_RAM_OF_BASELINES + _OF_THIS_SOLVER[solver.addresses])
    return [_as_data(baseline, source) for baseline in comparison.baselines]


def _row(baseline: ComparedBaseline, ours: Replay | None) -> list[str]:
    result, played = baseline.result, baseline.played
    figures = ["–", "", "", ""] if played is None else _figures(played, ours)
    share = "" if result.fragmentation is None else f"{100 * result.fragmentation:.1f} %"
    return [baseline.name, *figures, share, result.note]


def _figures(played: Replay, ours: Replay | None) -> list[str]:
    """Format energy, its excess over this schedule's, time and peak of RAM."""
    more = ""
    if ours is not None and ours.energy_j:
        more = f"{100 * (played.energy_j / ours.energy_j - 1):+.2f} %"
    return [si(played.energy_j, "J"), more, si(played.time_s, "s"), size(played.peak_bytes)]


def _as_data(baseline: ComparedBaseline, source: EnergySource | None) -> dict[str, Any]:
    result, played = baseline.result, baseline.played
    data: dict[str, Any] = {
        "name": baseline.name,
        "note": result.note,
        "seconds": baseline.seconds,
    }
    if played is not None:
        data |= {
            "energy_j": played.energy_j,
            "energy_source": source,
            "time_s": played.time_s,
            "peak_bytes": played.peak_bytes,
            "bytes_written_to_storage": played.bytes_written_to_storage,
        }
    if result.arena_bytes is not None:
        data["arena_bytes"] = result.arena_bytes
    if result.fragmentation is not None:
        data["fragmentation"] = result.fragmentation
    return data
