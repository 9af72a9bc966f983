"""Picture of paging costs against the size of the tensor, with the fit.

Where a schedule is charged more than the fit of a transfer by itself (the transfer's share of
erasing, and what a training step adds), a curve without points says what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

from devices.profile import AffinePageCost, DeviceProfile, Interval, StorageCosts
from devices.quantities import LEAST
from plots.layout import WIDTH_INCHES, page, save, wrapped
from plots.style import (
    BLUE,
    GREY,
    PURPLE,
    VERMILION,
    energy_words,
    engineering,
    size_text,
    styled,
)

Quantity = Literal["time", "energy"]

# Inches: of the body, and of what stands beside the words of a legend.
_BODY_INCHES, _BESIDE_LEGEND_INCHES = 4.6, 1.3
_LEGEND_POINTS = 8.0

# Range of sizes for a profile with a fit but no sweep, such as a published one.
_DEFAULT_RANGE_BYTES = (512, 4 * 1024**2)


@dataclass(frozen=True)
class _Curve:
    """One direction of paging in one quantity: the fit, and the points that were fitted."""

    name: str
    color: str
    line: str
    marker: str
    fixed: float
    per_page: float
    page_bytes: int
    fit_error: float
    points: tuple[tuple[int, Interval], ...]

    def at(self, size_bytes: float) -> float:
        return self.fixed + self.per_page * math.ceil(size_bytes / self.page_bytes)


@dataclass(frozen=True)
class _Charged:
    """What a schedule is charged for one direction of paging, where that is not the fit."""

    name: str
    color: str
    at: Callable[[int], float | None]


def storage_costs(profile: DeviceProfile, path: Path) -> None:
    """Draw seconds, and joules if known, of paging one tensor in and out, on logarithmic axes.

    Args:
        profile: Profile with storage costs.
        path: Picture to write.

    Raises:
        ValueError: The profile has no storage costs.
    """
    storage = profile.storage
    if storage is None:
        raise ValueError(f"profile {profile.name} has no storage costs to draw")
    quantities: list[Quantity] = ["time"]
    if storage.read.fixed_j is not None or storage.write.fixed_j is not None:
        quantities.append("energy")
    with styled():
        figure = page(
            f"Paging costs of {profile.board.model}",
            [_medium(storage), energy_words(profile.energy_source)],
            _BODY_INCHES,
        )
        panels = figure.subplots(1, len(quantities), squeeze=False)[0]
        for axes, quantity in zip(panels, quantities, strict=True):
            charged = list(_charged(storage, quantity))
            _draw(axes, list(_curves(storage, quantity)), charged, quantity, len(quantities))
        save(figure, path)


def _medium(storage: StorageCosts) -> str:
    where = f" at {storage.path}" if storage.path else ""
    unit = (
        "no page size" if storage.page_bytes == 1 else f"pages of {size_text(storage.page_bytes)}"
    )
    return f"{storage.medium}{where}, {unit}, {storage.method}"


def _curves(storage: StorageCosts, quantity: Quantity) -> Iterator[_Curve]:
    directions: list[tuple[str, str, str, str, AffinePageCost | None, int]] = [
        ("page-in (read)", BLUE, "-", "o", storage.read, storage.page_bytes),
        ("page-out (write)", VERMILION, "--", "s", storage.write, storage.page_bytes),
        ("erase of whole blocks", PURPLE, ":", "^", storage.erase, storage.erase_block_bytes or 1),
    ]
    for name, color, line, marker, cost, page_bytes in directions:
        if cost is None:
            continue
        if quantity == "time":
            fixed, per_page = cost.fixed_s, cost.per_page_s
            points = tuple((point.bytes, point.time_s) for point in cost.sweep)
        elif cost.fixed_j is not None and cost.per_page_j is not None:
            fixed, per_page = cost.fixed_j, cost.per_page_j
            points = tuple(
                (point.bytes, point.energy_j) for point in cost.sweep if point.energy_j is not None
            )
        else:
            continue
        yield _Curve(name, color, line, marker, fixed, per_page, page_bytes, cost.fit_error, points)


def _charged(storage: StorageCosts, quantity: Quantity) -> Iterator[_Charged]:
    index = 0 if quantity == "time" else 1
    if storage.read.in_steps is not None:
        yield _Charged("page-in in a step", BLUE, lambda size: storage.read_cost(size)[index])
    with_erasing = [] if storage.erase is None else ["with erasing"]
    in_steps = [] if storage.write.in_steps is None else ["in a step"]
    if words := [*in_steps, *with_erasing]:
        name = f"page-out {', '.join(words)}"
        yield _Charged(name, VERMILION, lambda size: storage.write_cost(size)[index])


def _draw(
    axes: Axes,
    curves: list[_Curve],
    charged: list[_Charged],
    quantity: Quantity,
    panels: int,
) -> None:
    room = WIDTH_INCHES / panels - _BESIDE_LEGEND_INCHES
    unit = "s" if quantity == "time" else "J"
    measured = [size for curve in curves for size, _ in curve.points]
    low, high = (min(measured), max(measured)) if measured else _DEFAULT_RANGE_BYTES
    sizes = np.unique(np.geomspace(low, high, 400).round())
    for curve in curves:
        axes.plot(
            sizes,
            [curve.at(size) for size in sizes],
            color=curve.color,
            linestyle=curve.line,
            linewidth=1.2,
            label="\n".join(
                line
                for words in _legend(curve, unit, quantity)
                for line in wrapped(words, room, _LEGEND_POINTS)
            ),
        )
        if curve.points:
            medians = np.array([interval.median for _, interval in curve.points])
            errors = np.array(
                [
                    [interval.median - interval.low for _, interval in curve.points],
                    [interval.high - interval.median for _, interval in curve.points],
                ]
            )
            axes.errorbar(
                [size for size, _ in curve.points],
                medians,
                yerr=errors,
                fmt=curve.marker,
                color=curve.color,
                markersize=4,
                capsize=2,
                elinewidth=0.9,
                markerfacecolor="white",
            )
    for each in charged:
        costs = [cost for size in sizes if (cost := each.at(int(size))) is not None]
        if len(costs) == len(sizes):
            axes.plot(
                sizes, costs, color=each.color, linestyle="-.", linewidth=0.9, label=each.name
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(size)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(EngFormatter(unit=unit))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_xlabel("size of the tensor")
    axes.set_ylabel(f"{quantity} of one transfer ({unit})")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.15),
        borderaxespad=0,
        handlelength=1.6,
        fontsize=_LEGEND_POINTS,
    )


def _legend(curve: _Curve, unit: str, quantity: Quantity) -> list[str]:
    page = "byte" if curve.page_bytes == 1 else f"{size_text(curve.page_bytes)}"
    law = f"{engineering(curve.fixed, unit)} + {engineering(curve.per_page, unit)} per {page}"
    rate = ""
    if quantity == "time" and curve.per_page >= LEAST:  # else the rate may be infinite
        rate = f" ({engineering(curve.page_bytes / curve.per_page, 'B/s')})"
    has_fit = quantity == "time" and bool(curve.points)
    fit = [f"RMS fit error {100 * curve.fit_error:.1f} %"] if has_fit else []
    return [f"{curve.name}: {law}{rate}", *fit]
