"""Panel with the seconds of a replayed step by kind of action, predicted and measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from devices.replay import OtherActivity, ReplayedAction, ReplayReport
from plots.replay.style import whole_percent
from plots.style import BLUE, GREY, INK, engineering

_BARS = 14

_OTHER_WORDS: Mapping[OtherActivity, str] = {
    "move": "moves in RAM",
    "rows": "rows to their tables",
    "wait": "waiting for transfers",
    "between": "between actions",
}


@dataclass(frozen=True)
class _Bar:
    """Seconds of one kind of action in a step."""

    name: str
    predicted_s: float
    measured_s: float


def _bars(report: ReplayReport) -> list[_Bar]:
    """Bars by kind, longest first, with the shortest combined into one.

    Transfers that run beside ops are labelled so, because they add no time to the step.
    """
    kinds: dict[str, list[ReplayedAction]] = {}
    for action in report.actions:
        kinds.setdefault(_kind(action), []).append(action)
    bars = [
        _Bar(
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
        _Bar(
            _OTHER_WORDS[entry.what],
            entry.time_s.predicted.median,
            entry.time_s.measured.median,
        )
        for entry in report.other
        if entry.what in _OTHER_WORDS
    ]
    return bars


def _combined(name: str, bars: Sequence[_Bar]) -> _Bar:
    return _Bar(
        name,
        math.fsum(bar.predicted_s for bar in bars),
        math.fsum(bar.measured_s for bar in bars),
    )


def _kind(action: ReplayedAction) -> str:
    if action.kind is None:
        return action.what.replace("_", " ") + (" beside ops" if action.asynchronous else "")
    return f"{action.kind}, recomputed" if action.what == "recompute" else action.kind


def draw_kinds(axes: Axes, report: ReplayReport) -> None:
    """Draw two bars for each kind, predicted and measured, with numbers beside them."""
    bars = _bars(report)
    rows = np.arange(len(bars))
    axes.barh(rows - 0.2, [b.predicted_s for b in bars], 0.36, color=GREY, alpha=0.55)
    axes.barh(rows + 0.2, [b.measured_s for b in bars], 0.36, color=BLUE)
    for row, bar in enumerate(bars):
        words = engineering(bar.measured_s, "s")
        if bar.predicted_s:
            words += f"  {whole_percent(100 * (bar.measured_s / bar.predicted_s - 1))}"
        axes.annotate(
            words,
            (max(bar.predicted_s, bar.measured_s), row),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=INK,
        )
    axes.set_yticks(rows, [bar.name for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.locator_params(axis="x", nbins=5)
    axes.grid(visible=True, axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("time in a step, by kind (s)")
