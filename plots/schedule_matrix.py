"""Picture of a schedule as stages × tensors: residency, recomputed and paged tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from plots.cell_names import cell_names
from plots.layout import (
    LINE_INCHES,
    SMALLEST_POINTS,
    WIDTH_INCHES,
    lay_out,
    name_phase,
    page,
    save,
    shortened,
    spread,
    text_inches,
)
from plots.residency import Stage, phase_spans, stages
from plots.style import (
    BLUE,
    DOTS_PER_INCH,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERMILION,
    energy_words,
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

# Inches.
_MOST_ROW_NAME, _MOST_COLUMN_NAME = 2.2, 2.2
_LEAST_HEIGHT, _NAMED_HEIGHT, _HEIGHT = 1.6, 11.0, 8.0
_GAP = 0.12

_KIND_POINTS = 8.0


def schedule_matrix(graph: CostedGraph, schedule: Schedule, path: Path) -> None:
    """Draw a matrix with a column for each stage and a row for each tensor.

    A stage ends with the first execution of an op. Tensors of a kind are in the order of the ops
    that write them. Where columns or rows are too narrow for names, layers are named instead.

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
    kinds = [tensor.kind for tensor in rows]
    height = max(_LEAST_HEIGHT, LINE_INCHES * len(rows))
    height = height if height <= _NAMED_HEIGHT else _HEIGHT
    # Parameters that the step reads, then those that it writes: each layer is among both.
    groups = [(tensor.kind, tensor.name in graph.producer) for tensor in rows]
    row_names = cell_names([tensor.name for tensor in rows], groups, height / len(rows))
    row_words = [shortened(n.text, _MOST_ROW_NAME, SMALLEST_POINTS) for n in row_names]
    name_width = max((text_inches(words, SMALLEST_POINTS) for words in row_words), default=0.0)
    kind_width = max(text_inches(_kind_words(kind, kinds), _KIND_POINTS) for kind in kinds)
    width = WIDTH_INCHES - name_width - kind_width - 4 * _GAP
    phases = phase_spans([stage.op.phase for stage in columns])
    phase_of = [phase for phase, first, end in phases for _ in range(first, end)]
    column_names = cell_names([stage.op.name for stage in columns], phase_of, width / len(columns))
    column_words = [shortened(n.text, _MOST_COLUMN_NAME, SMALLEST_POINTS) for n in column_names]
    below = max((text_inches(words, SMALLEST_POINTS) for words in column_words), default=0.0)
    unnamed = [
        f"{count} {what}"
        for what, count, names in (
            ("stages in columns", len(columns), column_names),
            ("tensors in rows", len(rows), row_names),
        )
        if len(names) < count
    ]
    across = _edges(len(columns), width)
    down = _edges(len(rows), height)
    states = _in_blocks(_states(columns, rows), across, down)
    with styled():
        figure = page(
            f"{graph.name}: schedule",
            _summary(graph, schedule, unnamed),
            height + below + 0.7,
            [
                Patch(facecolor=color, edgecolor=GREY, linewidth=0.4, label=name)
                for state, (name, color) in enumerate(_STATES.items())
                if (states == state).any()
            ],
        )
        axes = figure.add_subplot()
        axes.pcolormesh(
            across,
            down,
            states,
            cmap=ListedColormap(list(_STATES.values())),
            vmin=-0.5,
            vmax=len(_STATES) - 0.5,
            rasterized=True,
        )
        axes.invert_yaxis()
        axes.set_xlabel("stage: ends with the first execution of an op")
        axes.set_xticks(
            [name.middle for name in column_names],
            column_words,
            rotation=90,
            fontsize=SMALLEST_POINTS,
        )
        axes.set_yticks([name.middle for name in row_names], row_words, fontsize=SMALLEST_POINTS)
        axes.tick_params(length=2)
        _label_kinds(axes, kinds, height / len(rows), name_width + 2 * _GAP)
        lay_out(figure)
        for phase, first, last in phases:
            if first > 0:
                axes.axvline(first, color=INK, linewidth=0.7)
            name_phase(axes, first, last, phase)
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


def _edges(count: int, inches: float) -> npt.NDArray[np.intp]:
    """Edges of as many blocks of cells as there are cells or pixels, shape [blocks + 1]."""
    blocks = min(count, round(inches * DOTS_PER_INCH))
    return np.arange(blocks + 1) * count // blocks


def _in_blocks(
    states: npt.NDArray[np.uint8], across: npt.NDArray[np.intp], down: npt.NDArray[np.intp]
) -> npt.NDArray[np.uint8]:
    """State of highest precedence in each block, so that rare ones remain visible."""
    tall = np.maximum.reduceat(states, down[:-1], axis=0)
    return np.maximum.reduceat(tall, across[:-1], axis=1)


def _summary(graph: CostedGraph, schedule: Schedule, unnamed: Sequence[str]) -> list[str]:
    counted = "" if schedule.budget.covers == "all" else " (activations only)"
    source = schedule.energy_source or graph.energy_source
    return [
        f"budget {size_text(schedule.budget.ram_bytes)}{counted}; {schedule.status};"
        f" {energy_words(source)}",
        "each column shows RAM during the op that ends the stage, and recompute and paging before"
        " it",
        *([f"{', '.join(unnamed)}: layers are named where a name has room"] if unnamed else []),
    ]


def _kind_words(kind: str, kinds: Sequence[str]) -> str:
    return f"{_KINDS[kind]} ({kinds.count(kind)})"


def _label_kinds(
    axes: Axes, kinds: Sequence[str], row_inches: float, distance_inches: float
) -> None:
    """Name the kinds of rows left of the names of rows, a line apart at least."""
    firsts = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    ends = [*firsts[1:], len(kinds)]
    pitch = 1.3 * _KIND_POINTS / 72 / row_inches
    middles = [(first + end) / 2 for first, end in zip(firsts, ends, strict=True)]
    for first, middle in zip(
        firsts, spread(middles, pitch, pitch / 2, len(kinds) - pitch / 2), strict=True
    ):
        if first > 0:
            axes.axhline(first, color=INK, linewidth=0.7)
        axes.annotate(
            _kind_words(kinds[first], kinds),
            (0, middle),
            (-72 * distance_inches, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=_KIND_POINTS,
            color=INK,
        )
