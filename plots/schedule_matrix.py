"""Picture of a schedule as stages × tensors: residency, recomputed and paged tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from plots.residency import Stage, phase_spans, stages
from plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERMILION,
    energy_words,
    heading,
    name_phase,
    save,
    size_text,
    styled,
)
from solver.problem.graph import CostedGraph, Tensor
from solver.problem.schedule import Schedule

# States in the order of precedence; a later one hides an earlier one.
_STATES = {
    "neither in RAM nor in storage": "#FFFFFF",
    "in storage only": "#EFE3EC",
    "in RAM": "#BCD4E6",
    "first computed": BLUE,
    "paged out": VERMILION,
    "recomputed": ORANGE,
    "paged in": GREEN,
}
_ABSENT, _STORED, _RESIDENT, _MADE, _PAGED_OUT, _RECOMPUTED, _PAGED_IN = range(len(_STATES))

_KINDS = {
    "input": "inputs",
    "activation": "activations",
    "gradient": "gradients",
    "parameter": "parameters",
    "optimizer_state": "optimizer state",
}

_MOST_NAMES = 90
_NAME_CHARACTER_INCHES = 0.055


def schedule_matrix(graph: CostedGraph, schedule: Schedule, path: Path) -> None:
    """Draw a matrix with a column for each stage and a row for each tensor.

    A stage ends with the first execution of an op. Tensors of a kind are in the order of the ops
    that write them. Up to ninety ops or tensors are named at the axes; beyond that, only groups
    are.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule with actions.
        path: Picture to write.

    Raises:
        ValueError: The schedule has no actions.
    """
    if not schedule.actions:
        raise ValueError(f"the schedule of {schedule.graph} has no actions: {schedule.status}")
    columns = stages(graph, schedule)
    rows = _rows(graph)
    states = _states(columns, rows)

    cell_width = min(0.14, max(0.03, 12 / len(columns)))
    cell_height = min(0.14, max(0.02, 9 / len(rows)))
    row_names = [tensor.name for tensor in rows] if len(rows) <= _MOST_NAMES else []
    column_names = [stage.op.name for stage in columns] if len(columns) <= _MOST_NAMES else []
    left = 1.35 + _NAME_CHARACTER_INCHES * max(map(len, row_names), default=0)
    below = 0.8 + _NAME_CHARACTER_INCHES * max(map(len, column_names), default=4)
    box = (max(cell_width * len(columns), 5.0), max(cell_height * len(rows), 2.0))
    width, height = left + box[0] + 0.2, 1.05 + box[1] + below
    with styled():
        figure = Figure(figsize=(width, height))
        heading(figure, f"{graph.name}: schedule", _summary(graph, schedule))
        axes = figure.add_axes((left / width, below / height, box[0] / width, box[1] / height))
        axes.pcolormesh(
            states,
            cmap=ListedColormap(list(_STATES.values())),
            vmin=-0.5,
            vmax=len(_STATES) - 0.5,
            rasterized=True,
        )
        axes.invert_yaxis()
        axes.set_xlabel("stage: ends with the first execution of an op")
        _label_columns(axes, columns, column_names)
        _label_rows(axes, rows, row_names, left)
        figure.legend(
            handles=[
                Patch(facecolor=color, edgecolor=GREY, linewidth=0.4, label=name)
                for state, (name, color) in enumerate(_STATES.items())
                if (states == state).any()
            ],
            loc="lower left",
            bbox_to_anchor=(0.1 / width, 0.05 / height),
            ncols=max(2, min(len(_STATES), int(width / 1.75))),
            borderaxespad=0,
            columnspacing=1.2,
        )
        save(figure, path)


def _rows(graph: CostedGraph) -> list[Tensor]:
    """Sort tensors by kind, and within a kind by the op that writes them."""
    kinds = list(_KINDS)

    def place(tensor: Tensor) -> tuple[int, int]:
        return kinds.index(tensor.kind), graph.producer.get(tensor.name, -1)

    return sorted(graph.tensors, key=place)


def _states(columns: Sequence[Stage], rows: Sequence[Tensor]) -> npt.NDArray[np.uint8]:
    row_of = {tensor.name: row for row, tensor in enumerate(rows)}
    states = np.full((len(rows), len(columns)), _ABSENT, dtype=np.uint8)
    for column, stage in enumerate(columns):
        for state, names in (
            (_STORED, stage.stored),
            (_RESIDENT, stage.resident),
            (_MADE, stage.op.writes),
            (_PAGED_OUT, stage.events.paged_out),
            (_RECOMPUTED, stage.events.recomputed),
            (_PAGED_IN, stage.events.paged_in),
        ):
            states[[row_of[name] for name in names], column] = state
    return states


def _summary(graph: CostedGraph, schedule: Schedule) -> list[str]:
    counted = "" if schedule.budget.covers == "all" else " (activations only)"
    source = schedule.energy_source or graph.energy_source
    return [
        f"budget {size_text(schedule.budget.ram_bytes)}{counted}; {schedule.status};"
        f" {energy_words(source)}",
        "each column shows RAM during the op that ends the stage, and recompute and paging before"
        " it",
    ]


def _label_columns(axes: Axes, columns: Sequence[Stage], names: Sequence[str]) -> None:
    if names:
        centres = np.arange(len(names)) + 0.5
        axes.set_xticks(centres, names, rotation=90, fontsize=6)
    for phase, first, last in phase_spans([stage.op.phase for stage in columns]):
        if first > 0:
            axes.axvline(first, color=INK, linewidth=0.7)
        if last - first > 0.06 * len(columns):
            name_phase(axes, (first + last) / 2, phase)


def _label_rows(
    axes: Axes, rows: Sequence[Tensor], names: Sequence[str], margin_inches: float
) -> None:
    centres = np.arange(len(names)) + 0.5
    axes.set_yticks(centres, names, fontsize=6)
    axes.tick_params(axis="y", length=2 if names else 0)
    first = 0
    for kind, group in groupby(rows, key=lambda tensor: tensor.kind):
        count = len(list(group))
        if first > 0:
            axes.axhline(first, color=INK, linewidth=0.7)
        axes.annotate(
            f"{_KINDS[kind]}\n({count})",
            (0, first + count / 2),
            (-72 * margin_inches + 8, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8,
            color=INK,
        )
        first += count
