"""Picture of addresses over time: the contents of the arena while a schedule runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from plots.layout import (
    LINE_INCHES,
    SMALLEST_POINTS,
    name_within,
    page,
    save,
    settle,
    size_inches,
    spread,
)
from plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    binary_unit,
    size_text,
    styled,
)
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Compute, Free, PageIn, Schedule
from solver.referee.referee import replay

_COLORS = {
    "input": GREY,
    "parameter": GREEN,
    "optimizer_state": PURPLE,
    "activation": SKY,
    "gradient": BLUE,
    "workspace": ORANGE,
}
_NAMES = {
    "input": "inputs",
    "parameter": "parameters",
    "optimizer_state": "optimizer state",
    "activation": "activations",
    "gradient": "gradients",
    "workspace": "workspace of an op",
}
# Inches. The height of the axes is about that of the body without the labels below.
_BODY_INCHES, _AXES_INCHES = 5.2, 4.7
_EDGED_INCHES, _PADDING_INCHES = 0.03, 0.08
_MOST_BANDS = 20


@dataclass(frozen=True)
class _Rectangle:
    name: str
    kind: str
    start_s: float
    end_s: float
    low: int
    high: int

    @property
    def bytes(self) -> int:
        return self.high - self.low


def arena(graph: CostedGraph, schedule: Schedule, path: Path) -> None:
    """Draw offsets in the arena over the predicted time of the step, with the budget.

    Each resident tensor and each workspace is a rectangle, coloured by kind.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule with addresses.
        path: Picture to write.

    Raises:
        ValueError: The schedule has no addresses.
    """
    if schedule.arena_bytes is None:
        raise ValueError(f"the schedule of {schedule.graph} has no addresses: {schedule.status}")
    rectangles = list(_rectangles(graph, schedule))
    kinds = [kind for kind in _COLORS if any(r.kind == kind for r in rectangles)]
    end_s = max((r.end_s for r in rectangles), default=0.0) or 1.0
    budget_bytes = schedule.budget.ram_bytes
    highest = max(budget_bytes, schedule.arena_bytes, 1)
    divisor, unit = binary_unit(highest)
    with styled():
        figure = page(
            f"{graph.name}: addresses over one training step",
            _summary(schedule),
            _BODY_INCHES,
            [
                *(Patch(facecolor=_COLORS[kind], alpha=0.85, label=_NAMES[kind]) for kind in kinds),
                _line("--", BLACK, f"budget {size_text(budget_bytes)}"),
                _line(":", INK, f"arena {size_text(schedule.arena_bytes)}"),
            ],
        )
        axes = figure.add_subplot()
        axes.set_xlim(0, end_s)
        axes.set_ylim(0, 1.04 * highest / divisor)
        axes.set_xlabel("time in the step, predicted (s)")
        axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
        axes.set_ylabel(f"offset in the arena ({unit})")
        axes.axhline(budget_bytes / divisor, color=BLACK, linewidth=1.1, linestyle="--")
        axes.axhline(schedule.arena_bytes / divisor, color=INK, linewidth=0.8, linestyle=":")
        bytes_per_inch = 1.04 * highest / _AXES_INCHES
        _count_thin(axes, rectangles, divisor, bytes_per_inch)
        settle(figure)
        _draw(axes, rectangles, divisor)
        _name(axes, rectangles, divisor)
        save(figure, path)


def _rectangles(graph: CostedGraph, schedule: Schedule) -> Iterator[_Rectangle]:
    """Rectangles in the order of their ends.

    With an op in place, the written tensor starts and the overwritten tensor ends when the op
    starts, so that the same bytes are drawn once.
    """
    moments = replay(graph, schedule.actions, schedule.budget.covers).moments
    ops = {op.name: op for op in graph.ops}
    begun = {name: (0.0, offset) for name, offset in (schedule.resident_address or {}).items()}

    def end(name: str, at_s: float) -> Iterator[_Rectangle]:
        if name in begun:
            start_s, offset = begun.pop(name)
            tensor = graph.tensor[name]
            yield _Rectangle(name, tensor.kind, start_s, at_s, offset, offset + tensor.bytes)

    end_s = 0.0
    for moment in moments:
        end_s = moment.start_s + moment.time_s
        match moment.action:
            case Compute() as action:
                op = ops[action.op]
                for name in op.in_place.values():
                    yield from end(name, moment.start_s)
                for name, offset in (action.address or {}).items():
                    begun[name] = (moment.start_s, offset)
                if action.workspace_address is not None:
                    low, high = (
                        action.workspace_address,
                        action.workspace_address + op.workspace_bytes,
                    )
                    yield _Rectangle(op.name, "workspace", moment.start_s, end_s, low, high)
            case PageIn() as action if action.address is not None:
                begun[action.tensor] = (moment.start_s, action.address)
            case Free() as action:
                yield from end(action.tensor, moment.start_s)
    for name in tuple(begun):
        yield from end(name, end_s)


def _corners(r: _Rectangle, divisor: float) -> list[tuple[float, float]]:
    low, high = r.low / divisor, r.high / divisor
    return [(r.start_s, low), (r.start_s, high), (r.end_s, high), (r.end_s, low)]


def _draw(axes: Axes, rectangles: Sequence[_Rectangle], divisor: float) -> None:
    """Draw the rectangles; those that are hardly thicker or wider than an edge have none."""
    width, height = size_inches(axes)
    edged_s = _EDGED_INCHES / width * axes.get_xlim()[1]
    edged_bytes = _EDGED_INCHES / height * axes.get_ylim()[1] * divisor
    for kind, color in _COLORS.items():
        for edged in (False, True):
            drawn = [
                _corners(r, divisor)
                for r in rectangles
                if r.kind == kind
                and (r.bytes > edged_bytes and r.end_s - r.start_s > edged_s) == edged
            ]
            axes.add_collection(
                PolyCollection(
                    drawn,
                    facecolors=color,
                    edgecolors="white",
                    linewidths=0.3 if edged else 0.0,
                    alpha=0.85,
                )
            )


def _name(axes: Axes, rectangles: Sequence[_Rectangle], divisor: float) -> None:
    """Name the rectangles in which a name has room."""
    width, height = size_inches(axes)
    inches_per_s = width / axes.get_xlim()[1]
    inches_per_unit = height / axes.get_ylim()[1]
    for r in rectangles:
        room = inches_per_s * (r.end_s - r.start_s), inches_per_unit * r.bytes / divisor
        name = name_within(r.name, room[0] - _PADDING_INCHES, room[1])
        if name is not None:
            axes.text(
                (r.start_s + r.end_s) / 2,
                (r.low + r.high) / 2 / divisor,
                name,
                ha="center",
                va="center",
                fontsize=SMALLEST_POINTS,
                linespacing=1.1,
                color=BLACK,
            )


@dataclass(frozen=True)
class _Band:
    """Addresses that no rectangle holds which has room for a name."""

    low: int
    high: int
    held: tuple[_Rectangle, ...]

    @property
    def words(self) -> str:
        names = {r.name for r in self.held}
        return f"{len(names)} of ≤ {size_text(max(r.bytes for r in self.held))}"


def _bands(rectangles: Sequence[_Rectangle], thin_bytes: float) -> list[_Band]:
    """Maximal bands of more than one rectangle, in ascending order. Gaps in them are thin, too."""
    thick = sorted((r.low, r.high) for r in rectangles if r.bytes >= thin_bytes)
    thin = sorted((r for r in rectangles if 0 < r.bytes < thin_bytes), key=lambda r: r.low)
    bands: list[_Band] = []
    for r in thin:
        if any(low < r.high and r.low < high for low, high in thick):
            continue
        if bands and r.low < bands[-1].high + thin_bytes:
            last = bands[-1]
            bands[-1] = _Band(last.low, max(last.high, r.high), (*last.held, r))
        else:
            bands.append(_Band(r.low, r.high, (r,)))
    return [band for band in bands if len(band.held) > 1]


def _count_thin(
    axes: Axes, rectangles: Sequence[_Rectangle], divisor: float, bytes_per_inch: float
) -> None:
    """Mark bands of thin rectangles at the right, with their number and greatest size."""
    bands = _bands(rectangles, LINE_INCHES * bytes_per_inch)
    bands = sorted(bands, key=lambda band: band.low - band.high)[:_MOST_BANDS]
    bands.sort(key=lambda band: band.low)
    pitch = LINE_INCHES * bytes_per_inch
    highest = _AXES_INCHES * bytes_per_inch
    centres = spread([(b.low + b.high) / 2 for b in bands], pitch, pitch / 2, highest - pitch / 2)
    for band, centre in zip(bands, centres, strict=True):
        middle = (band.low + band.high) / 2
        axes.plot(
            [1.008, 1.008],
            [band.low / divisor, band.high / divisor],
            color=INK,
            linewidth=1.0,
            transform=axes.get_yaxis_transform(),
            clip_on=False,
        )
        axes.annotate(
            band.words,
            (1.008, middle / divisor),
            (1.03, centre / divisor),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=SMALLEST_POINTS,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "relpos": (0, 0.5)},
        )


def _summary(schedule: Schedule) -> list[str]:
    counted = "" if schedule.budget.covers == "all" else ", activations only"
    assert schedule.arena_bytes is not None
    words = f"arena {size_text(schedule.arena_bytes)} of a budget of"
    words += f" {size_text(schedule.budget.ram_bytes)}{counted}"
    if schedule.arena_bound_bytes is not None and schedule.arena_bytes:
        fragmentation = 1 - schedule.arena_bound_bytes / schedule.arena_bytes
        words += (
            f"; this schedule needs at least {size_text(schedule.arena_bound_bytes)}:"
            f" fragmentation {100 * fragmentation:.2g} %"
        )
    return [
        words,
        "rectangles: memory and lifetime of tensors and workspaces, named where a name has room;"
        " thin ones are counted",
    ]


def _line(style: Literal["--", ":"], color: str, label: str) -> Line2D:
    return Line2D([], [], color=color, linewidth=1.1, linestyle=style, label=label)
