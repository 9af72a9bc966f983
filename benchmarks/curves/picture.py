"""Picture of curves: energy, its proven bound and time against RAM, a panel for each network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.curves.points import Curve
from plots.layout import page, save
from plots.style import BLUE, GREY, ORANGE, engineering, size_text, styled

_COLUMNS, _PANEL_INCHES = 3, 2.6


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Draw all curves, relative to the step of whole layers that keeps everything."""
    rows = -(-len(curves) // _COLUMNS)
    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=4, label="energy of the schedule found"),
        Patch(facecolor=BLUE, alpha=0.15, label="down to the proven bound"),
        Line2D([], [], color=ORANGE, linestyle="--", marker="s", markersize=3.5, label="its time"),
    ]
    lines = [
        "One training step, batch 1, SGD, parameters in storage; everything in RAM counts. Relative"
        " to the step that keeps everything.",
        _sources(curves),
    ]
    with styled():
        figure = page("Energy and time against RAM", lines, rows * _PANEL_INCHES, handles)
        panels = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
        for axes, curve in zip(panels, curves, strict=False):
            _draw_panel(axes, curve)
        for axes in panels[len(curves) :]:
            axes.set_visible(False)
        save(figure, path)


def _sources(curves: Sequence[Curve]) -> str:
    """Where the costs of each network come from, in words."""
    names: dict[str, list[str]] = {}
    for curve in curves:
        profile = curve.case.profile
        words = f"{profile.energy_source.upper()} costs of {profile.name}"
        names.setdefault(words, []).append(curve.case.name)
    return "; ".join(f"{words}: {', '.join(of)}" for words, of in names.items())


def _draw_panel(axes: Axes, curve: Curve) -> None:
    points = [(p, row) for p in curve.points if p.best is not None for _, row in (p.best,)]
    sizes = [point.budget.ram_bytes for point, _ in points]
    energies = [(row.energy_j or 0.0) / curve.kept_j for _, row in points]
    bounds = [point.bound_j / curve.kept_j for point, _ in points]
    times = [(row.time_s or 0.0) / curve.kept_s for _, row in points]
    axes.fill_between(sizes, bounds, energies, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(sizes, bounds, color=BLUE, linewidth=0.7)
    axes.plot(sizes, times, color=ORANGE, linestyle="--", marker="s", markersize=3.5)
    axes.plot(sizes, energies, color=BLUE, marker="o", markersize=4)
    axes.set_xscale("log", base=4)
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(x)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}×"))
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.6)
    kept = f"{engineering(curve.kept_j, 'J')}, {engineering(curve.kept_s, 's')}"
    axes.set_title(f"{curve.case.name}\n1× = {kept}", fontsize=8.5)
    axes.tick_params(axis="x", labelsize=7)
