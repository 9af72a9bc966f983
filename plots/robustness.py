"""Picture of a schedule's robustness: its energy over that of the best schedule of each draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from plots.layout import page, save
from plots.style import BLUE, GREY, VERMILION, energy_words, styled
from solver.problem.schedule import DrawStatistics, Schedule

_BODY_INCHES = 4.2

# Least width of the axis, in tolerances.
_LEAST_WIDTH = 1.2
_TICKS = (0.0, 0.0025, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def robustness(schedule: Schedule, path: Path) -> None:
    """Draw the share of draws in which a schedule's excess energy is at most a given value.

    There is a curve for the schedule of least energy and one for the best on average. A curve ends
    at the share of draws in which the schedule meets the deadline.

    Args:
        schedule: Schedule that was assessed with draws.
        path: Picture to write.

    Raises:
        ValueError: The schedule was not assessed with draws.
    """
    report = schedule.robustness
    if report is None:
        raise ValueError(f"the schedule of {schedule.graph} was not assessed with draws")
    curves = [("least energy at the stated costs", report.least_energy, BLUE, "-")]
    if report.best_on_average is not None and report.best_on_average != report.least_energy:
        curves.append(("best on average over the draws", report.best_on_average, VERMILION, "--"))
    width = _LEAST_WIDTH * report.tolerance
    for _, figures, _, _ in curves:
        width = max([width, *(1.05 * regret for regret in figures.regrets if regret is not None)])
    with styled():
        figure = page(
            f"Robustness to measurement: {schedule.graph}",
            [
                f"{report.draws} draws of all costs from their 95 % intervals,"
                f" {report.solved_draws} of them searched again",
                energy_words(schedule.energy_source),
            ],
            _BODY_INCHES,
        )
        axes = figure.add_subplot()
        for name, figures, color, line in curves:
            _draw(axes, name, figures, report.tolerance, width, color, line)
        axes.axvline(report.tolerance, color=GREY, linewidth=0.8, linestyle=":")
        # Linear up to the tolerance, logarithmic beyond it: the excess of a few draws can be large.
        axes.set_xscale("symlog", linthresh=report.tolerance, linscale=2.0)
        axes.set_xticks([tick for tick in _TICKS if tick <= width])
        axes.set_xlim(-0.03 * report.tolerance, width)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda regret, _: f"{100 * regret:g} %"))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.6)
        axes.set_xlabel("largest excess of energy over the best known schedule of the draw")
        axes.set_ylabel("share of the draws")
        figure.legend(loc="outside lower left", ncols=1)
        save(figure, path)


def _draw(
    axes: Axes,
    name: str,
    figures: DrawStatistics,
    tolerance: float,
    width: float,
    color: str,
    line: str,
) -> None:
    regrets = np.sort([regret for regret in figures.regrets if regret is not None])
    shares = np.arange(1, len(regrets) + 1) / len(figures.regrets)
    late = len(figures.regrets) - len(regrets)
    label = (
        f"{name}: within {100 * tolerance:g} % in {100 * figures.within.value:.0f} % of the draws"
    )
    if late:
        label += f", late in {late}"
    axes.step(
        [0.0, *regrets, width],
        [0.0, *shares, shares[-1] if len(shares) else 0.0],
        where="post",
        color=color,
        linestyle=line,
        linewidth=1.6,
        label=label,
    )
