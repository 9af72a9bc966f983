"""Picture of energy against RAM: a curve and its bound for each deadline, and the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from devices.documents.readable import above_least
from plots.layout import legend_beside, page, save
from plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    binary_unit,
    energy_words,
    engineering,
    size_text,
    styled,
)
from solver.sweep.record import SOLVED, SweepRow

# Curves differ in colour and line style, baselines in colour and marker, so that they can also be
# distinguished in grey. No baseline has the colour of a curve; most of theirs are from Tol's muted
# scheme.
_CURVE_COLORS = (BLUE, VERMILION, GREEN, PURPLE)
_CURVE_LINES = ("-", "--", "-.", ":")
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "h", "p", "*", "d")
_COLORS = (
    *(ORANGE, SKY, GREY, "#8C510A"),
    *("#882255", "#999933", "#332288", "#44AA99", "#DDCC77"),
)

# Points. Each curve is wider than the next one, as far as there is room.
_THINNEST, _WIDER, _THICKEST = 1.4, 1.6, 4.6

# The axis is nearly linear below this overhead, and logarithmic above it.
_LINEAR_PERCENT = 0.1
_TICKS_PERCENT = (0, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)

_BODY_INCHES = 4.2


def tradeoff(rows: Sequence[SweepRow], path: Path) -> None:
    """Draw the energy above that of keeping everything, against RAM.

    A point of a curve is at its RAM budget, a baseline's schedule at the arena that its addresses
    need. Bounds are those for any order, since bounds for orders of single schedules do not
    compare.

    Args:
        rows: Rows of one graph, with any number of deadlines and methods.
        path: Picture to write.

    Raises:
        ValueError: The rows cannot be drawn (:func:`can_draw`).
    """
    if not can_draw(rows):
        raise ValueError("no row has a schedule with an energy to draw")
    drawn = [row for row in rows if row.energy_j is not None]
    first = rows[0]
    largest = max(first.unconstrained_peak_bytes, *(row.ram_bytes for row in rows))
    divisor, unit = binary_unit(largest)
    with styled():
        title = f"{first.graph}: energy against RAM"
        figure = page(title, _lines(first, drawn), _BODY_INCHES)
        axes = figure.add_subplot()
        axes.set_yscale("asinh", linear_width=_LINEAR_PERCENT)
        _draw_curves(axes, [row for row in rows if row.method == SOLVED], divisor)
        _draw_baselines(axes, first, [row for row in drawn if row.method != SOLVED], divisor)
        _scale(axes, first, drawn, divisor, unit)
        _shade_infeasible(axes, rows, divisor)
        legend_beside(figure)
        save(figure, path)


def can_draw(rows: Sequence[SweepRow]) -> bool:
    """Whether a row has a schedule whose energy can be compared with that of keeping everything."""
    return any(row.energy_j is not None for row in rows) and rows[0].unconstrained_energy_j > 0


def _percent(row: SweepRow, energy_j: float | None) -> float:
    """Percentage by which ``energy_j`` is above that of keeping everything."""
    return 100 * ((energy_j or 0.0) / row.unconstrained_energy_j - 1)


def _lines(first: SweepRow, drawn: Sequence[SweepRow]) -> list[str]:
    counted = "" if first.covers == "all" else ", activations only"
    gaps = [row.any_order_gap for row in drawn if row.method == SOLVED]
    known = [gap for gap in gaps if gap is not None]
    is_proven = known and len(known) == len(gaps)
    proven = f"; all points of curves are {above_least(max(known))}" if is_proven else ""
    return [
        f"everything kept: {size_text(first.unconstrained_peak_bytes)}{counted},"
        f" {engineering(first.unconstrained_energy_j, 'J')},"
        f" {engineering(first.unconstrained_time_s, 's')}{proven}",
        energy_words(first.energy_source),
    ]


def _draw_curves(axes: Axes, solved: Sequence[SweepRow], divisor: float) -> None:
    """Draw a curve for each deadline, with a band down to its proven bound.

    Earlier curves are wider, so that coinciding ones remain visible.
    """
    deadlines = sorted({row.deadline_s for row in solved}, key=_seconds_or_infinity, reverse=True)
    wider = min(_WIDER, (_THICKEST - _THINNEST) / max(1, len(deadlines) - 1))
    for number, deadline_s in enumerate(deadlines):
        points = sorted(
            (r for r in solved if r.deadline_s == deadline_s and r.energy_j is not None),
            key=lambda row: row.ram_bytes,
        )
        if not points:
            continue
        cycle, place = divmod(number, len(_CURVE_COLORS))
        color = _CURVE_COLORS[place]
        # Another style in each cycle tells curves of one colour apart.
        line = _CURVE_LINES[(place + cycle) % len(_CURVE_LINES)]
        sizes = [row.ram_bytes / divisor for row in points]
        found = [_percent(row, row.energy_j) for row in points]
        bounds = [max(0.0, _percent(row, row.any_order_bound_j)) for row in points]
        width = _THINNEST + wider * (len(deadlines) - 1 - number)
        axes.fill_between(sizes, bounds, found, color=color, alpha=0.12, linewidth=0, zorder=2)
        axes.plot(sizes, bounds, color=color, linewidth=0.6, zorder=3)
        axes.plot(
            sizes,
            found,
            color=color,
            linestyle=line,
            marker="o",
            markersize=2.2 + width,
            linewidth=width,
            zorder=5,
            label=_curve_name(points[0]),
        )


def _seconds_or_infinity(deadline_s: float | None) -> float:
    return float("inf") if deadline_s is None else deadline_s


def _curve_name(row: SweepRow) -> str:
    if row.deadline_s is None:
        return "Joulewright, no deadline"
    if not row.unconstrained_time_s:
        return f"Joulewright, {engineering(row.deadline_s, 's')}"
    return f"Joulewright, {row.deadline_s / row.unconstrained_time_s:.3g}× the time"


def _draw_baselines(
    axes: Axes, first: SweepRow, baselines: Sequence[SweepRow], divisor: float
) -> None:
    kept = (first.unconstrained_peak_bytes / divisor, 0.0)
    axes.plot(*kept, "o", color=BLACK, markersize=7, zorder=4, label="keep-everything")
    drawn = 0
    for method in sorted({row.method for row in baselines}):
        points = sorted(
            {
                (
                    max(row.peak_bytes or 0, row.arena_bytes or 0) / divisor,
                    _percent(row, row.energy_j),
                )
                for row in baselines
                if row.method == method
            }
        )
        if points == [kept]:
            continue
        axes.plot(
            *zip(*points, strict=True),
            color=_COLORS[drawn % len(_COLORS)],
            linewidth=0.6,
            marker=_MARKERS[drawn % len(_MARKERS)],
            markersize=5,
            markerfacecolor="white",
            markeredgewidth=1.1,
            zorder=6,
            label=method,
        )
        drawn += 1


def _scale(
    axes: Axes, first: SweepRow, drawn: Sequence[SweepRow], divisor: float, unit: str
) -> None:
    kept_j = first.unconstrained_energy_j
    most = max(_percent(row, row.energy_j) for row in drawn)
    ticks = [tick for tick in _TICKS_PERCENT if tick <= 1.3 * most] or [0]
    axes.set_ylim(-0.2 * _LINEAR_PERCENT, max(1.25 * most, 2 * _LINEAR_PERCENT))
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"+{y:g} %"))
    axes.set_ylabel("energy above keeping everything")
    joules = axes.twinx()
    joules.set_yscale("asinh", linear_width=_LINEAR_PERCENT)
    joules.set_ylim(axes.get_ylim())
    joules.spines["right"].set_visible(True)
    joules.yaxis.set_major_locator(FixedLocator(ticks))
    joules.yaxis.set_minor_locator(NullLocator())
    # Four digits distinguish overheads of a tenth of a percent.
    joules.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: engineering(kept_j * (1 + y / 100), "J", digits=4))
    )
    axes.set_xlabel(f"RAM ({unit}): budget for points of curves, arena needed for baselines")
    axes.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.6)
    joules.tick_params(colors=INK)
    if first.unconstrained_peak_bytes:
        _scale_shares(axes, first.unconstrained_peak_bytes / divisor)


def _scale_shares(axes: Axes, peak: float) -> None:
    """Show RAM as shares of that of keeping everything, ``peak``, at the top."""

    def share(sizes: npt.ArrayLike) -> npt.ArrayLike:
        return np.asarray(sizes) / peak

    def size(shares: npt.ArrayLike) -> npt.ArrayLike:
        return np.asarray(shares) * peak

    of_peak = axes.secondary_xaxis("top", functions=(share, size))
    of_peak.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.0f} %"))
    of_peak.tick_params(colors=INK)


def _shade_infeasible(axes: Axes, rows: Sequence[SweepRow], divisor: float) -> None:
    """Shade the RAM budgets under which nothing fits with any deadline."""
    longest_s = max((row.deadline_s for row in rows), key=_seconds_or_infinity)
    refused = [
        row.smallest_ram_bound_bytes or row.ram_bytes
        for row in rows
        if row.status == "infeasible" and row.deadline_s == longest_s
    ]
    if not refused:
        return
    limit = max(refused) / divisor
    axes.set_xlim(left=min(axes.get_xlim()[0], 0.85 * limit))
    left = axes.get_xlim()[0]
    axes.axvspan(left, limit, facecolor="#F4F4F4", edgecolor="#CFCFCF", hatch="///", zorder=0)
    axes.text(
        limit,
        0.97,
        "nothing fits ",
        transform=axes.get_xaxis_transform(),
        rotation=90,
        ha="right",
        va="top",
        fontsize=8,
        color=INK,
        bbox={"facecolor": "#F4F4F4", "edgecolor": "none", "pad": 1.5},
    )
