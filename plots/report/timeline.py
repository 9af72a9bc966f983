"""Memory and power over a step, in a form that is small enough for hundreds of cells in one page.

A line is cut into columns of equal time, and each column has one level in 12 bits, written as two
letters of base64. Of memory, a column keeps the most bytes in it, so that no peak is lost; of
power, the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from devices.replay import PowerSamples, ReplayReport, Span
from replay.expectation import Level, memory_levels
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import Moment, Replay, replay

Levels = NDArray[np.float64]

_MOST_COLUMNS, _FEWEST_COLUMNS = 400, 60
_COLUMNS_OF_ALL = 200_000
_TOP = 4095
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@dataclass(frozen=True)
class Line:
    """Levels in columns of equal time from 0 to ``end_s``."""

    end_s: float
    levels: Levels

    def document(self) -> dict[str, object]:
        """The line as JSON data: its end, its highest level and the levels relative to that."""
        top = float(self.levels.max(initial=0.0))
        shares = np.rint(self.levels / top * _TOP) if top else np.zeros(len(self.levels))
        text = "".join(
            _LETTERS[share >> 6] + _LETTERS[share & 63] for share in shares.astype(int).tolist()
        )
        return {"end": _rounded(self.end_s), "top": _rounded(top), "levels": text}


@dataclass(frozen=True)
class Timeline:
    """Memory and power over a step of a cell's schedule.

    ``memory`` and ``power`` are predicted. ``memory_as_run`` has the board's times of one step of
    a replay, ``sampled_power`` the meter's samples over consecutive steps, which begin at
    ``step_starts_s``.
    """

    budget_bytes: int
    arena_bytes: int | None
    memory: Line
    power: Line
    memory_as_run: Line | None
    sampled_power: Line | None
    step_starts_s: tuple[float, ...]

    def document(self) -> dict[str, Any]:
        """The timeline as JSON data."""
        lines = {
            "memory": self.memory,
            "power": self.power,
            "memoryAsRun": self.memory_as_run,
            "sampledPower": self.sampled_power,
        }
        return {
            "budget": self.budget_bytes,
            "arena": self.arena_bytes,
            "starts": [_rounded(start_s) for start_s in self.step_starts_s],
            **{name: line.document() for name, line in lines.items() if line is not None},
        }


def columns_for(cells: int) -> int:
    """Columns of each line, so that the timelines of all cells stay small."""
    return max(_FEWEST_COLUMNS, min(_MOST_COLUMNS, _COLUMNS_OF_ALL // max(1, cells)))


def timeline_of(
    graph: CostedGraph, schedule: Schedule, report: ReplayReport | None, columns: int
) -> Timeline:
    """Timeline of a schedule, with the board's times and power of a replay if there is one."""
    played = replay(graph, schedule.actions, schedule.budget.covers)
    power = None if report is None else report.power
    begins_s = 0.0 if power is None else power.time_s[0]
    return Timeline(
        budget_bytes=schedule.budget.ram_bytes,
        arena_bytes=schedule.arena_bytes,
        memory=_memory(memory_levels(played), played.time_s, columns),
        power=_power(played, columns),
        memory_as_run=None if report is None else _as_run(played, report, columns),
        sampled_power=None if power is None else _sampled(power, columns),
        step_starts_s=()
        if power is None
        else tuple(start_s - begins_s for start_s in power.step_starts_s),
    )


def _as_run(played: Replay, report: ReplayReport, columns: int) -> Line:
    spans: Mapping[int, Span] = {
        action.schedule_index: Span(action.start_s, action.run_s) for action in report.actions
    }
    end_s = max((span.start_s + span.time_s for span in spans.values()), default=0.0)
    return _memory(memory_levels(played, spans), end_s, columns)


def _memory(levels: Sequence[Level], end_s: float, columns: int) -> Line:
    most = np.zeros(columns)
    ends_s = [level.time_s for level in levels[1:]] + [end_s]
    for level, until_s in zip(levels, ends_s, strict=True):
        first = _column(level.time_s, end_s, columns)
        last = max(first, math.ceil(columns * until_s / end_s) - 1) if end_s else first
        most[first : last + 1] = np.maximum(most[first : last + 1], level.bytes)
    return Line(end_s, most)


def _column(time_s: float, end_s: float, columns: int) -> int:
    return min(columns - 1, int(columns * time_s / end_s)) if end_s else 0


def _power(played: Replay, columns: int) -> Line:
    """Mean predicted power in each column: each action's joules spread evenly over its time."""
    edges_s = np.linspace(0.0, played.time_s, columns + 1)
    spent_j = np.zeros(columns + 1)
    for moment in played.moments:
        if not moment.energy_j:
            continue
        start_s, time_s = _when(moment)
        if time_s:
            spent_j += moment.energy_j * np.clip((edges_s - start_s) / time_s, 0.0, 1.0)
        else:
            spent_j[_column(start_s, played.time_s, columns) + 1 :] += moment.energy_j
    widths_s = np.diff(edges_s)
    power_w = np.divide(np.diff(spent_j), widths_s, out=np.zeros(columns), where=widths_s > 0)
    return Line(played.time_s, np.maximum(power_w, 0.0))


def _when(moment: Moment) -> tuple[float, float]:
    if moment.transfer_start_s is not None:
        return moment.transfer_start_s, moment.transfer_s
    return moment.start_s, moment.time_s


def _sampled(power: PowerSamples, columns: int) -> Line:
    """Mean of the samples in each column; a column without samples is interpolated."""
    times_s = np.asarray(power.time_s) - power.time_s[0]
    samples_w = np.asarray(power.power_w)
    end_s = float(times_s[-1])
    places = [_column(float(time_s), end_s, columns) for time_s in times_s]
    sums_w = np.bincount(places, weights=samples_w, minlength=columns)
    counts = np.bincount(places, minlength=columns)
    middles_s = (np.arange(columns) + 0.5) * end_s / columns
    between_w = np.interp(middles_s, times_s, samples_w)
    means_w = np.divide(sums_w, counts, out=between_w, where=counts > 0)
    return Line(end_s, np.maximum(means_w, 0.0))


def _rounded(value: float) -> float:
    """Six significant digits, which a picture does not resolve."""
    return float(f"{value:.6g}")
