"""Picture of the energies of the operations of a step, which a meter's readings told apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from devices.profile import Interval
from devices.replay import ActivityEnergies, ActivityEnergy, ReplayReport
from plots.layout import lay_out, page, save, shortened
from plots.replay.style import MEASURED, PREDICTED, energy_source_line, step_line
from plots.style import BLUE, GREY, INK, styled
from replay.reporting.activity_names import ActivityNames

_MOST_ROWS = 20

_POINTS = 8.0

# Distance of a bar from the middle of its row, and its height, in rows.
_HALF, _THICK = 0.2, 0.36

# Inches.
_ROW, _LABELS, _MOST_NAME = 0.34, 0.6, 2.8


def energies_of_activities(report: ReplayReport, path: Path) -> None:
    """Draw energy in a step and mean power of activities, those with the most energy first.

    Args:
        report: Report with energies of activities.
        path: Picture to write.

    Raises:
        ValueError: The report has no energies of activities.
    """
    found = report.activity_energies
    if found is None:
        raise ValueError(f"the replay of {report.schedule} has no energies of activities to draw")
    shown = sorted(found.activities, key=lambda each: -each.energy_j.median)[:_MOST_ROWS]
    names = ActivityNames.of(report)
    predicted_j = [names.predicted_j(each.activities) for each in shown]
    handles = [
        Patch(facecolor=MEASURED, label=f"{report.board_word} energy"),
        Patch(facecolor=BLUE, label="mean power"),
    ]
    if any(each is not None for each in predicted_j):
        handles.insert(0, Patch(facecolor=PREDICTED, label="predicted energy"))
    with styled():
        figure = page(
            f"{report.graph}: energies of operations",
            [step_line(report), _readings_line(found, len(shown)), energy_source_line(report)],
            _ROW * len(shown) + _LABELS,
            handles,
        )
        energy, power = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
        _draw_energies(energy, shown, predicted_j)
        _draw_powers(power, shown)
        words = (names.words(each.activities) for each in shown)
        rows = np.arange(len(shown))
        energy.set_yticks(
            rows, [shortened(each, _MOST_NAME, _POINTS) for each in words], fontsize=_POINTS
        )
        energy.set_ylim(len(shown) - 0.4, -0.6)
        lay_out(figure)
        save(figure, path)


def _readings_line(found: ActivityEnergies, shown: int) -> str:
    left_out = len(found.activities) - shown
    rest = f"; the {left_out} with the least energy are not drawn" if left_out else ""
    return (
        f"{len(found.activities)} activities that the meter could tell apart, from"
        f" {found.readings} readings of {found.steps} steps, with 95 % intervals{rest}"
    )


def _draw_energies(
    axes: Axes, shown: Sequence[ActivityEnergy], predicted_j: Sequence[float | None]
) -> None:
    rows = np.arange(len(shown))
    axes.barh(rows - _HALF, [each or 0.0 for each in predicted_j], _THICK, color=PREDICTED)
    axes.barh(
        rows + _HALF,
        [each.energy_j.median for each in shown],
        _THICK,
        color=MEASURED,
        xerr=_errors([each.energy_j for each in shown]),
        error_kw={"ecolor": GREY, "elinewidth": 1.2, "capsize": 2},
    )
    axes.set_xlabel("energy in a step (J)")
    ends_j = [each.energy_j.high for each in shown] + [each or 0.0 for each in predicted_j]
    _finish(axes, "J", max(ends_j))


def _draw_powers(axes: Axes, shown: Sequence[ActivityEnergy]) -> None:
    axes.errorbar(
        [each.power_w.median for each in shown],
        np.arange(len(shown)),
        xerr=_errors([each.power_w for each in shown]),
        fmt="o",
        color=BLUE,
        markersize=4,
        elinewidth=1.0,
        capsize=2,
    )
    axes.set_xlabel("mean power (W)")
    _finish(axes, "W", max(each.power_w.high for each in shown))


def _errors(intervals: Sequence[Interval]) -> list[list[float]]:
    return [
        [each.median - each.low for each in intervals],
        [each.high - each.median for each in intervals],
    ]


def _finish(axes: Axes, unit: str, end: float) -> None:
    axes.set_xlim(0, 1.05 * end or 1.0)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(EngFormatter(unit=unit))
    axes.locator_params(axis="x", nbins=5)
    axes.grid(visible=True, axis="x", color=GREY, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_color(INK)
