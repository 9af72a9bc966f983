"""Picture of the power that a meter measured during steps of a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from devices.replay import PowerSamples, ReplayedAction, ReplayReport
from plots.layout import lay_out, page, save, size_inches, text_inches
from plots.replay.style import (
    COLORS,
    energy_source_line,
    group,
    signed_percent,
    step_line,
    with_interval,
)
from plots.style import BLUE, GREY, INK, engineering, styled

# Inches: of the axes, and of the labels around them.
_HEIGHTS, _LABELS_INCHES = (2.4, 0.2), 0.75

# Most samples that are drawn with points.
_DOTTED = 400


def replayed_power(report: ReplayReport, path: Path) -> None:
    """Draw power over consecutive steps, and the board's actions below it.

    The actions are those of the median step, stretched to the length of each step.

    Args:
        report: Report with samples of power.
        path: Picture to write.

    Raises:
        ValueError: The report has no samples of power.
    """
    power = report.power
    if power is None:
        raise ValueError(f"the replay of {report.schedule} has no samples of power to draw")
    with styled():
        present = {group(action) for action in report.actions}
        figure = page(
            f"{report.graph}: power during the replay",
            [
                step_line(report),
                _energy_line(report),
                _meter_line(report),
                energy_source_line(report),
            ],
            sum(_HEIGHTS) + _LABELS_INCHES,
            [Patch(color=color, label=name) for name, color in COLORS.items() if name in present],
        )
        trace, strip = figure.subplots(len(_HEIGHTS), 1, height_ratios=_HEIGHTS, sharex=True)
        _draw_trace(trace, power)
        _draw_actions(strip, report.actions, power)
        strip.set_xlabel("time since the start of the first step (s)")
        lay_out(figure)
        _number_steps(trace, power)
        save(figure, path)


def _energy_line(report: ReplayReport) -> str:
    energy = report.energy_j
    if energy is None:
        return "no energy of single steps: too few samples in each step"
    difference = "" if energy.difference is None else f": {signed_percent(energy.difference)}"
    return (
        f"energy of a step: predicted {with_interval(energy.predicted, 'J')},"
        f" replayed {with_interval(energy.measured, 'J')}{difference}"
    )


def _meter_line(report: ReplayReport) -> str:
    meter = report.meter
    if meter is None:
        return "meter not stated"
    rate = "" if meter.rate_hz is None else f", {engineering(meter.rate_hz, 'Sa/s')}"
    return f"{report.device}, meter {meter.kind}, {meter.detail}{rate}"


def _draw_trace(axes: Axes, power: PowerSamples) -> None:
    marker = "." if len(power.time_s) <= _DOTTED else ""
    axes.plot(power.time_s, power.power_w, color=BLUE, linewidth=0.8, marker=marker, markersize=3)
    for start_s in power.step_starts_s:
        axes.axvline(start_s, color=GREY, linewidth=0.8, linestyle=":")
    axes.axvline(
        power.step_starts_s[-1] + power.step_times_s[-1], color=GREY, linewidth=0.8, linestyle=":"
    )
    axes.set_xlim(power.time_s[0], power.time_s[-1])
    axes.set_ylim(0, 1.1 * max(power.power_w))
    axes.set_ylabel("power (W)")
    axes.tick_params(axis="x", labelbottom=False, length=0)


def _number_steps(axes: Axes, power: PowerSamples) -> None:
    """Number the steps above the axes, or every second, third or further one if they are narrow."""
    low, high = axes.get_xlim()
    starts_s, times_s = power.step_starts_s, power.step_times_s
    shortest = size_inches(axes)[0] * min(times_s) / (high - low)
    apart = math.ceil(1.1 * text_inches(f"step {len(times_s)}", 8) / shortest)
    for number in range(0, len(times_s), apart):
        middle_s = starts_s[number] + times_s[number] / 2
        if not low <= middle_s <= high:
            continue  # short steps may end before the first sample
        axes.text(
            middle_s,
            1.01,
            f"step {number + 1}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
        )


def _draw_actions(axes: Axes, actions: Sequence[ReplayedAction], power: PowerSamples) -> None:
    end_s = max(action.start_s + action.run_s for action in actions)
    for start_s, time_s in zip(power.step_starts_s, power.step_times_s, strict=True):
        stretch = time_s / end_s if end_s else 1.0
        for name, color in COLORS.items():
            axes.broken_barh(
                [
                    (start_s + stretch * action.start_s, stretch * action.run_s)
                    for action in actions
                    if group(action) == name
                ],
                (0, 1),
                color=color,
                linewidth=0,
            )
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.spines["left"].set_visible(False)
