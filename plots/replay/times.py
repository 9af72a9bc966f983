"""Picture of the times of all ops and transfers of a replayed step, against the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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

from devices.replay import ReplayedAction, ReplayReport
from plots.replay.kinds import draw_kinds
from plots.replay.style import COLORS, energy_source_line, group, step_line, whole_percent
from plots.style import BLACK, BLUE, GREY, INK, engineering, heading, save, styled

_BAND = 0.1
_NAMED = 6
_TICKS_PERCENT = (0, 10, 30, 100, 300, 1000, 3000, 10000)

# Inches.
_WIDTH, _HEIGHT = 13.0, 7.0
_TOP, _BOTTOM = 1.15, 0.95
_LEFT, _POINTS, _BELOW, _GAP = 0.95, 4.15, 1.55, 0.12
_BARS_LEFT, _BARS_RIGHT = 9.7, 0.85
_NAME_POINTS = 38.0

# Largest distance at which the numbers of two points would overlap.
_NEAR_DECADES = 0.2
_NEAR = 0.4


def predicted_against_measured(report: ReplayReport, path: Path) -> None:
    """Draw measured against predicted times of all actions, and times by kind.

    On the left, each action is a point with both intervals, on logarithmic axes, and below them are
    the relative differences; the largest are numbered and named. On the right are the seconds of a
    step by kind of action. Checksums are left out, because only watched steps take them.

    Args:
        report: Report of the replay.
        path: Picture to write.
    """
    drawn = [
        action
        for action in report.actions
        if action.time_s.predicted.median > 0 and action.time_s.measured.median > 0
    ]
    with styled():
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        heading(figure, f"{report.graph}: predicted against {report.board_word}", _lines(report))

        def place(left: float, bottom: float, width: float, height: float) -> Axes:
            """Add axes; all sizes are in inches."""
            return figure.add_axes(
                (left / _WIDTH, bottom / _HEIGHT, width / _WIDTH, height / _HEIGHT)
            )

        inner = _HEIGHT - _TOP - _BOTTOM
        points = place(_LEFT, _BOTTOM + _BELOW + _GAP, _POINTS, inner - _BELOW - _GAP)
        below = place(_LEFT, _BOTTOM, _POINTS, _BELOW)
        bars = place(_BARS_LEFT, _BOTTOM, _WIDTH - _BARS_LEFT - _BARS_RIGHT, inner)
        worst = _worst(drawn)
        _draw_points(points, drawn, report.board_word)
        _draw_differences(below, drawn, worst, points.get_xlim())
        _name(points, worst)
        draw_kinds(bars, report)
        figure.legend(
            handles=_legend(report.actions, report.board_word),
            loc="lower left",
            bbox_to_anchor=(0.1 / _WIDTH, 0.06 / _HEIGHT),
            ncols=10,
            columnspacing=1.2,
            handletextpad=0.4,
        )
        save(figure, path)


def _lines(report: ReplayReport) -> list[str]:
    watched = "1 watched step" if report.watched_steps == 1 else f"{report.watched_steps} steps"
    known = [a.time_s.difference for a in report.actions if a.time_s.difference is not None]
    close = sum(abs(difference) <= _BAND for difference in known)
    actions = (
        f"{len(report.actions)} actions on {report.device}, medians over {watched} with 95 %"
        f" intervals: {close} within {100 * _BAND:.0f} % of the prediction,"
        f" {sum(action.time_s.beyond for action in report.actions)} outside their intervals"
    )
    return [step_line(report), actions, energy_source_line(report)]


# --- points ---------------------------------------------------------------------------------------


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
    for action in drawn:
        predicted, measured = action.time_s.predicted, action.time_s.measured
        _draw_point(
            axes,
            action,
            measured.median,
            (measured.low, measured.high),
            (predicted.median - predicted.low, predicted.high - predicted.median),
        )
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{word} time of an action (s)")
    _scale_predicted(axes, low, high)
    axes.tick_params(axis="x", labelbottom=False)


def _draw_differences(
    axes: Axes,
    drawn: Sequence[ReplayedAction],
    worst: Sequence[_Offender],
    limits: tuple[float, float],
) -> None:
    """Draw measured over predicted times, on a scale that is linear near 0 %."""
    axes.axhspan(-100 * _BAND, 100 * _BAND, color=GREY, alpha=0.22, linewidth=0, zorder=0)
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    largest = 4 * _BAND
    for action in drawn:
        predicted, measured = action.time_s.predicted.median, action.time_s.measured
        ends = measured.low / predicted - 1, measured.high / predicted - 1
        largest = max(largest, *map(abs, ends))
        _draw_point(
            axes,
            action,
            100 * (measured.median / predicted - 1),
            (100 * ends[0], 100 * ends[1]),
            (0.0, 0.0),
        )
    _number(axes, worst)
    axes.set_yscale("asinh", linear_width=100 * _BAND)
    ticks = [tick for tick in _TICKS_PERCENT if tick <= 130 * largest]
    axes.yaxis.set_major_locator(
        FixedLocator([*(-tick for tick in reversed(ticks) if tick), *ticks])
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: whole_percent(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(-130 * largest if largest < 1 else -130, 130 * largest)
    axes.set_ylabel("difference")
    _scale_predicted(axes, *limits)
    axes.set_xlabel("predicted time of an action (s)")


def _number(axes: Axes, worst: Sequence[_Offender]) -> None:
    """Draw the numbers of the points; overlapping ones are put side by side."""
    placed: list[tuple[float, float]] = []
    for number, offender in enumerate(worst, start=1):
        action = offender.actions[0]
        where = math.log10(action.time_s.predicted.median), action.time_s.difference or 0.0
        near = sum(
            abs(where[0] - x) < _NEAR_DECADES and abs(where[1] - y) < _NEAR * max(0.1, abs(y))
            for x, y in placed
        )
        placed.append(where)
        axes.annotate(
            str(number),
            (10 ** where[0], 100 * where[1]),
            (5 + 8 * near, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            weight="bold",
            color=INK,
        )


def _draw_point(
    axes: Axes,
    action: ReplayedAction,
    value: float,
    ends: tuple[float, float],
    predicted_errors: tuple[float, float],
) -> None:
    color = COLORS[group(action)]
    axes.errorbar(
        [action.time_s.predicted.median],
        [value],
        xerr=[[error] for error in predicted_errors] if any(predicted_errors) else None,
        yerr=[[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]],
        fmt="o",
        color=color,
        markersize=3.6,
        markerfacecolor=color if action.time_s.beyond else "white",
        markeredgewidth=0.8,
        elinewidth=0.6,
        zorder=3 if action.time_s.beyond else 2,
    )


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
    """Name the largest differences in a column beside the axes, each in three lines."""
    if worst:
        axes.annotate(
            "largest differences, totals per step:",
            (1, 1),
            (14, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="top",
            fontsize=8,
            weight="bold",
        )
    for row, offender in enumerate(worst):
        sign = "+" if offender.excess_s > 0 else "−"
        axes.annotate(
            f"{row + 1}  {offender.name}\n"
            f"    {_shortened(offender.actions[0].label, 38)}\n"
            f"    {sign}{engineering(abs(offender.excess_s), 's')},"
            f" {whole_percent(100 * offender.difference)}",
            (1, 1),
            (14, -18 - _NAME_POINTS * row),
            xycoords="axes fraction",
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=INK,
            linespacing=1.25,
        )


def _shortened(text: str, length: int) -> str:
    """Shorten a text in the middle, because names differ at their ends."""
    if len(text) <= length:
        return text
    half = (length - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


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
        Patch(facecolor=GREY, alpha=0.55, label="predicted"),
        Patch(facecolor=BLUE, label=word),
    ]
