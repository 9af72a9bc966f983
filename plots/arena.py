"""Picture of addresses over time: the contents of the arena while a schedule runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

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
    heading,
    save,
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
# A rectangle gets a name if it is large enough: fractions of the width for each character, and of
# the height.
_CHARACTER_WIDTH, _NAME_HEIGHT = 0.0052, 0.025


@dataclass(frozen=True)
class _Rectangle:
    name: str
    kind: str
    start_s: float
    end_s: float
    low: int
    high: int


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
    top, bottom, axis, box_height = 0.85, 0.38, 0.42, 4.6
    height = top + box_height + axis + bottom
    with styled():
        figure = Figure(figsize=(10, height))
        heading(figure, f"{graph.name}: addresses over one training step", _summary(schedule))
        axes = figure.add_axes((0.085, (bottom + axis) / height, 0.9, box_height / height))
        for kind in kinds:
            axes.add_collection(
                PolyCollection(
                    [_corners(r, divisor) for r in rectangles if r.kind == kind],
                    facecolors=_COLORS[kind],
                    edgecolors="white",
                    linewidths=0.3,
                    alpha=0.85,
                )
            )
        _name(axes, rectangles, end_s, highest, divisor)
        axes.axhline(budget_bytes / divisor, color=BLACK, linewidth=1.1, linestyle="--")
        axes.axhline(schedule.arena_bytes / divisor, color=INK, linewidth=0.8, linestyle=":")
        axes.set_xlim(0, end_s)
        axes.set_ylim(0, 1.04 * highest / divisor)
        axes.set_xlabel("time in the step, predicted (s)")
        axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
        axes.set_ylabel(f"offset in the arena ({unit})")
        figure.legend(
            handles=[
                *(Patch(facecolor=_COLORS[kind], alpha=0.85, label=_NAMES[kind]) for kind in kinds),
                _line("--", BLACK, f"budget {size_text(budget_bytes)}"),
                _line(":", INK, f"arena {size_text(schedule.arena_bytes)}"),
            ],
            loc="lower left",
            bbox_to_anchor=(0.085, 0.05 / height),
            ncols=len(kinds) + 2,
            borderaxespad=0,
            columnspacing=1.2,
        )
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


def _name(
    axes: Axes, rectangles: list[_Rectangle], end_s: float, highest: int, divisor: float
) -> None:
    for r in rectangles:
        width = (r.end_s - r.start_s) / end_s
        if width > _CHARACTER_WIDTH * len(r.name) and r.high - r.low > _NAME_HEIGHT * highest:
            axes.text(
                (r.start_s + r.end_s) / 2,
                (r.low + r.high) / 2 / divisor,
                r.name,
                ha="center",
                va="center",
                fontsize=6,
                color=BLACK,
                clip_on=True,
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
    return [words, "each rectangle is the memory and the lifetime of a tensor or a workspace"]


def _line(style: Literal["--", ":"], color: str, label: str) -> Line2D:
    return Line2D([], [], color=color, linewidth=1.1, linestyle=style, label=label)
