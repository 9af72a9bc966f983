"""Picture of the times of all ops and transfers of a replayed step, against the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    EngFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from devices.profile import Interval
from devices.replay import ReplayedAction, ReplayReport
from plots.layout import page, save, settle, shortened, size_inches, spread, text_inches
from plots.replay.kinds import BAR_ROW_INCHES, bars_of, draw_kinds, write_times
from plots.replay.style import (
    COLORS,
    MEASURED,
    PREDICTED,
    energy_source_line,
    group,
    step_line,
    whole_percent,
)
from plots.style import BLACK, GREY, INK, engineering, styled

_BAND = 0.1
_NAMED = 6
_TICKS_PERCENT = (0, 10, 30, 100, 300, 1000, 3000, 10000)

# Inches: heights of the points, of their differences, of the numbers between them and of labels.
_POINTS, _DIFFERENCES, _NUMBERS, _LABELS = 3.4, 1.5, 0.25, 0.6
_INDENT = 0.15
_NAME_POINTS = 7.5


def predicted_against_measured(report: ReplayReport, path: Path) -> None:
    """Draw measured against predicted times of all actions, and times by kind.

    At the top, each action is a point with both intervals, on logarithmic axes, and below it is the
    relative difference; the largest are numbered, and named beside the points. At the bottom are
    the seconds of a step by kind of action. Checksums are left out, because only watched steps take
    them.

    Args:
        report: Report of the replay.
        path: Picture to write.
    """
    drawn = [
        action
        for action in report.actions
        if action.time_s.predicted.median > 0 and action.time_s.measured.median > 0
    ]
    bars = bars_of(report)
    worst = _worst(drawn)
    points_inches = _POINTS + _NUMBERS + _DIFFERENCES + _LABELS
    bars_inches = BAR_ROW_INCHES * len(bars) + _LABELS
    with styled():
        figure = page(
            f"{report.graph}: predicted against {report.board_word}",
            _lines(report),
            points_inches + bars_inches,
            _legend(report.actions, report.board_word),
        )
        halves = figure.add_gridspec(2, 1, height_ratios=(points_inches, bars_inches))
        grid = halves[0].subgridspec(
            3, 2, height_ratios=(_POINTS, _NUMBERS, _DIFFERENCES), width_ratios=(5, 3)
        )
        left = 0 if worst else slice(None)
        points = figure.add_subplot(grid[0, left])
        numbers = figure.add_subplot(grid[1, left])
        below = figure.add_subplot(grid[2, left], sharex=points)
        by_kind = figure.add_subplot(halves[1])
        numbers.axis("off")
        _draw_points(points, drawn, report.board_word)
        _draw_differences(below, drawn)
        points.tick_params(axis="x", labelbottom=False)
        draw_kinds(by_kind, bars)
        names = figure.add_subplot(grid[:, 1]) if worst else None
        settle(figure)
        if names is not None:
            _number(numbers, below, worst)
            _name(names, worst)
        write_times(by_kind, bars)
        save(figure, path)


def _lines(report: ReplayReport) -> list[str]:
    watched = "1 watched step" if report.watched_steps == 1 else f"{report.watched_steps} steps"
    known = [a.time_s.difference for a in report.actions if a.time_s.difference is not None]
    close = sum(abs(difference) <= _BAND for difference in known)
    actions = (
        f"{len(report.actions)} actions on {report.device}, medians over {watched} with 95 %"
        f" intervals: {close} within {100 * _BAND:.0f} % of the prediction,"
        f" {report.held_actions} in their predicted intervals"
    )
    return [step_line(report), actions, energy_source_line(report)]


# --- points ---------------------------------------------------------------------------------------


class _Value(NamedTuple):
    """A figure with its interval; unlike a cost it may be negative."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, interval: Interval) -> _Value:
        return cls(interval.low, interval.median, interval.high)


def _draw_points(axes: Axes, drawn: Sequence[ReplayedAction], word: str) -> None:
    ends = [
        end
        for action in drawn
        for side in (action.time_s.predicted, action.time_s.measured)
        for end in (side.low, side.high)
        if end > 0
    ]
    low, high = (min(ends) / 1.5, max(ends) * 1.5) if ends else (1e-6, 1.0)
    line = np.array([low, high])
    axes.fill_between(
        line, line * (1 - _BAND), line * (1 + _BAND), color=GREY, alpha=0.22, linewidth=0, zorder=0
    )
    axes.plot(line, line, color=GREY, linewidth=0.8, zorder=1)
    _draw_intervals(
        axes,
        drawn,
        [_Value.of(action.time_s.measured) for action in drawn],
        [_Value.of(action.time_s.predicted) for action in drawn],
    )
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{word} time of an action (s)")
    _scale_predicted(axes, low, high)


def _draw_differences(
    axes: Axes,
    drawn: Sequence[ReplayedAction],
) -> None:
    """Draw measured over predicted times, on a scale that is linear near 0 %."""
    axes.axhspan(-100 * _BAND, 100 * _BAND, color=GREY, alpha=0.22, linewidth=0, zorder=0)
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    differences = [
        _Value(
            100 * (measured.low / predicted - 1),
            100 * (measured.median / predicted - 1),
            100 * (measured.high / predicted - 1),
        )
        for measured, predicted in (
            (action.time_s.measured, action.time_s.predicted.median) for action in drawn
        )
    ]
    ends = [abs(end) / 100 for difference in differences for end in difference]
    largest = max([4 * _BAND, *ends])
    _draw_intervals(axes, drawn, differences)
    axes.set_yscale("asinh", linear_width=100 * _BAND)
    ticks = [tick for tick in _TICKS_PERCENT if tick <= 130 * largest]
    axes.yaxis.set_major_locator(
        FixedLocator([*(-tick for tick in reversed(ticks) if tick), *ticks])
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: whole_percent(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(-130 * largest if largest < 1 else -130, 130 * largest)
    axes.set_ylabel("difference")
    _scale_predicted(axes, *axes.get_xlim())
    axes.set_xlabel("predicted time of an action (s)")


def _number(numbers: Axes, axes: Axes, worst: Sequence[_Offender]) -> None:
    """Number the points of the largest differences above them, with a line to each.

    Args:
        numbers: Settled axes for a row of numbers.
        axes: Settled axes of the points, as wide as the row.
        worst: Largest differences; their place is their number.
    """
    places = []
    for number, offender in enumerate(worst, start=1):
        action = offender.actions[0]
        point = action.time_s.predicted.median, 100 * (action.time_s.difference or 0.0)
        shares = axes.transAxes.inverted().transform(axes.transData.transform(point))
        places.append((float(shares[0]), number, point))
    places.sort()
    pitch = 2.2 * text_inches(str(_NAMED), _NAME_POINTS, "bold") / size_inches(axes)[0]
    centres = spread([place[0] for place in places], pitch, pitch / 2, 1 - pitch / 2)
    for centre, (_, number, point) in zip(centres, places, strict=True):
        axes.annotate(
            str(number),
            point,
            (centre, 0.5),
            textcoords=numbers.transAxes,
            ha="center",
            va="center",
            fontsize=_NAME_POINTS,
            weight="bold",
            color=INK,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkB": 2},
            zorder=4,
        )


def _draw_intervals(
    axes: Axes,
    drawn: Sequence[ReplayedAction],
    values: Sequence[_Value],
    predicted: Sequence[_Value] | None = None,
) -> None:
    """Draw a value of each action over its predicted time, with their intervals.

    Points of actions whose intervals overlap are open.
    """
    for name, color in COLORS.items():
        for beyond in (False, True):
            rows = [
                row
                for row, action in enumerate(drawn)
                if group(action) == name and action.time_s.beyond == beyond
            ]
            if not rows:
                continue
            axes.errorbar(
                [drawn[row].time_s.predicted.median for row in rows],
                [values[row].median for row in rows],
                xerr=None if predicted is None else _errors([predicted[row] for row in rows]),
                yerr=_errors([values[row] for row in rows]),
                fmt="o",
                color=color,
                markersize=3.6,
                markerfacecolor=color if beyond else "white",
                markeredgewidth=0.8,
                elinewidth=0.6,
                zorder=3 if beyond else 2,
            )


def _errors(values: Sequence[_Value]) -> list[list[float]]:
    return [[v.median - v.low for v in values], [v.high - v.median for v in values]]


def _scale_predicted(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)


# --- largest differences --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Offender:
    """Actions that share one measured cost, the one with the largest difference first."""

    actions: tuple[ReplayedAction, ...]

    @property
    def excess_s(self) -> float:
        return math.fsum(action.time_s.excess for action in self.actions)

    @property
    def difference(self) -> float:
        return self.excess_s / math.fsum(a.time_s.predicted.median for a in self.actions)

    @property
    def name(self) -> str:
        first = self.actions[0]
        what = first.kind or first.what.replace("_", " ")
        return f"{what} × {len(self.actions)}" if len(self.actions) > 1 else what


def _worst(drawn: Sequence[ReplayedAction]) -> list[_Offender]:
    """Costs with an action outside its interval, by their effect on the time of the step."""
    sharing: dict[str, list[ReplayedAction]] = {}
    for action in drawn:
        if action.time_s.beyond:
            sharing.setdefault(action.cost_key, []).append(action)
    offenders = [
        _Offender(tuple(sorted(actions, key=lambda action: -abs(action.time_s.excess))))
        for actions in sharing.values()
    ]
    return sorted(offenders, key=lambda offender: -abs(offender.excess_s))[:_NAMED]


def _name(axes: Axes, worst: Sequence[_Offender]) -> None:
    """Name the largest differences in settled axes, each in three lines."""
    axes.axis("off")
    width, height = size_inches(axes)
    line = 1.35 * _NAME_POINTS / 72

    def write(row: float, text: str, left: float = 0.0, weight: str = "normal") -> None:
        axes.text(
            left / width,
            1 - row * line / height,
            shortened(text, width - left, _NAME_POINTS, weight),
            va="top",
            fontsize=_NAME_POINTS,
            weight=weight,
            color=INK,
        )

    write(0, "largest differences, totals per step:", weight="bold")
    for place, offender in enumerate(worst):
        sign = "+" if offender.excess_s > 0 else "−"
        total = f"{sign}{engineering(abs(offender.excess_s), 's')}"
        row = 1.6 + 3.5 * place
        write(row, str(place + 1), weight="bold")
        write(row, offender.name, _INDENT)
        write(row + 1, offender.actions[0].label, _INDENT)
        write(row + 2, f"{total}, {whole_percent(100 * offender.difference)}", _INDENT)


def _legend(actions: Sequence[ReplayedAction], word: str) -> list[Line2D | Patch]:
    present = {group(action) for action in actions}
    dots = [
        Line2D([], [], marker="o", linestyle="", color=color, markersize=5, label=name)
        for name, color in COLORS.items()
        if name in present
    ]
    allowed = Line2D(
        [],
        [],
        marker="o",
        linestyle="",
        color=BLACK,
        markerfacecolor="white",
        markersize=5,
        label="open: intervals overlap",
    )
    return [
        *dots,
        allowed,
        Patch(facecolor=GREY, alpha=0.18, label=f"±{100 * _BAND:.0f} %"),
        Patch(facecolor=PREDICTED, label="predicted"),
        Patch(facecolor=MEASURED, label=word),
    ]
