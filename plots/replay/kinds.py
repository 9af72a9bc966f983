"""Panel with the seconds of a replayed step by kind of action, predicted and measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from devices.replay import OtherActivity, ReplayedAction, ReplayReport
from plots.layout import SMALLEST_POINTS, shortened, size_inches, text_inches
from plots.replay.style import MEASURED, PREDICTED, whole_percent
from plots.style import GREY, INK, engineering

_BARS = 14
_POINTS = 8.0

# Distance of a bar from the middle of its row, in rows.
_HALF = 0.21

# Inches.
BAR_ROW_INCHES = 0.32
_MOST_NAME_INCHES, _GAP_INCHES = 2.6, 0.06

_OTHER_WORDS: Mapping[OtherActivity, str] = {
    "move": "moves in RAM",
    "rows": "rows to their tables",
    "wait": "waiting for transfers",
    "between": "between actions",
}


@dataclass(frozen=True)
class Bar:
    """Seconds of one kind of action in a step."""

    name: str
    predicted_s: float
    measured_s: float


def bars_of(report: ReplayReport) -> list[Bar]:
    """Bars by kind, longest first, with the shortest combined into one.

    Transfers that run beside ops are labelled so, because they add no time to the step.
    """
    kinds: dict[str, list[ReplayedAction]] = {}
    for action in report.actions:
        kinds.setdefault(_kind(action), []).append(action)
    bars = [
        Bar(
            name,
            math.fsum(action.time_s.predicted.median for action in actions),
            math.fsum(action.time_s.measured.median for action in actions),
        )
        for name, actions in kinds.items()
    ]
    bars.sort(key=lambda bar: -max(bar.predicted_s, bar.measured_s))
    rest = bars[_BARS:]
    if len(rest) > 1:
        bars = [*bars[:_BARS], _combined(f"{len(rest)} other kinds", rest)]
    bars += [
        Bar(
            _OTHER_WORDS[entry.what],
            entry.time_s.predicted.median,
            entry.time_s.measured.median,
        )
        for entry in report.other
        if entry.what in _OTHER_WORDS
    ]
    return bars


def _combined(name: str, bars: Sequence[Bar]) -> Bar:
    return Bar(
        name,
        math.fsum(bar.predicted_s for bar in bars),
        math.fsum(bar.measured_s for bar in bars),
    )


def _kind(action: ReplayedAction) -> str:
    if action.kind is None:
        return action.what.replace("_", " ") + (" beside ops" if action.asynchronous else "")
    return f"{action.kind}, recomputed" if action.what == "recompute" else action.kind


def draw_kinds(axes: Axes, bars: Sequence[Bar]) -> None:
    """Draw two bars for each kind, predicted above measured."""
    rows = np.arange(len(bars))
    axes.barh(rows - _HALF, [b.predicted_s for b in bars], 0.38, color=PREDICTED)
    axes.barh(rows + _HALF, [b.measured_s for b in bars], 0.38, color=MEASURED)
    names = [shortened(bar.name, _MOST_NAME_INCHES, _POINTS) for bar in bars]
    axes.set_yticks(rows, names, fontsize=_POINTS)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.locator_params(axis="x", nbins=6)
    axes.grid(visible=True, axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("time in a step, by kind (s)")


def write_times(axes: Axes, bars: Sequence[Bar]) -> None:
    """Write the time of each bar at its end, and make room for it within settled axes."""
    width = size_inches(axes)[0] - _GAP_INCHES
    ends = [
        (row + offset, time_s, words)
        for row, bar in enumerate(bars)
        for offset, time_s, words in (
            (-_HALF, bar.predicted_s, _predicted_words(bar)),
            (_HALF, bar.measured_s, _measured_words(bar)),
        )
    ]
    axes.set_xlim(
        0,
        max(
            time_s * width / (width - _GAP_INCHES - text_inches(words, SMALLEST_POINTS))
            for _, time_s, words in ends
        )
        or 1.0,
    )
    for place, time_s, words in ends:
        axes.annotate(
            words,
            (time_s, place),
            (72 * _GAP_INCHES, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=SMALLEST_POINTS,
            color=INK,
        )


def _predicted_words(bar: Bar) -> str:
    return engineering(bar.predicted_s, "s") if bar.predicted_s else ""


def _measured_words(bar: Bar) -> str:
    words = engineering(bar.measured_s, "s")
    if bar.predicted_s:
        words += f"  {whole_percent(100 * (bar.measured_s / bar.predicted_s - 1))}"
    return words
