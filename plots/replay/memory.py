"""Picture of bytes in RAM over a replayed step, as predicted and as run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from devices.replay import MemoryUse, ReplayedAction, ReplayReport, Span
from plots.layout import page, save
from plots.replay.style import COLORS, energy_source_line, group, step_line
from plots.style import (
    BLACK,
    BLUE,
    GREY,
    PALE,
    PURPLE,
    binary_unit,
    budget_key,
    size_text,
    styled,
)
from replay.expectation import Level, memory_levels
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import replay

# Inches: of the axes, and of the labels between and below them.
_HEIGHTS, _LABELS_INCHES = (2.1, 0.16, 2.1, 0.16), 1.2

# The heading has the time of unwatched steps, which is shorter.
_AS_RUN = "as run in watched steps, which time every action"


def replayed_memory(
    graph: CostedGraph, schedule: Schedule, report: ReplayReport, path: Path
) -> None:
    """Draw bytes in RAM over predicted time (top) and over the board's time (bottom).

    Both panels have the same scale; the board's is of the median watched step. The strips show the
    actions.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule that was replayed.
        report: Report of the replay.
        path: Picture to write.
    """
    played = replay(graph, schedule.actions, schedule.budget.covers)
    as_run = {
        action.schedule_index: Span(action.start_s, action.run_s) for action in report.actions
    }
    as_expected = {
        action.schedule_index: Span(action.expected_start_s, action.time_s.predicted.median)
        for action in report.actions
    }
    panels = [
        ("predicted", memory_levels(played), as_expected),
        (_AS_RUN, memory_levels(played, as_run), as_run),
    ]
    end_s = max(span.start_s + span.time_s for _, _, spans in panels for span in spans.values())
    with styled():
        figure = page(
            f"{graph.name}: memory over a replayed step",
            _lines(report),
            sum(_HEIGHTS) + _LABELS_INCHES,
            _legend(report),
        )
        rows = figure.subplots(len(_HEIGHTS), 1, height_ratios=_HEIGHTS)
        for row, (name, levels, spans) in enumerate(panels):
            _draw_levels(rows[2 * row], name, levels, report.memory, end_s)
            _draw_strip(rows[2 * row + 1], report.actions, spans, end_s)
        rows[-1].set_xlabel("time in the step (s)")
        save(figure, path)


def _lines(report: ReplayReport) -> list[str]:
    memory = report.memory
    peak = f"sum of bytes {size_text(memory.peak_bytes)}, with addresses"
    touched = (
        f"{peak} {size_text(memory.arena_bytes)}; on the board the arena was written up to byte"
        f" {memory.touched_bytes} of {memory.arena_bytes}"
    )
    if memory.as_predicted:
        touched = f"{peak} {size_text(memory.arena_bytes)}; the board used exactly these bytes"
    process = memory.process
    if process is not None:
        touched += f"; process: {size_text(process.peak_resident_bytes)} resident"
    return [step_line(report), touched, energy_source_line(report)]


def _draw_levels(
    axes: Axes, name: str, levels: Sequence[Level], memory: MemoryUse, end_s: float
) -> None:
    highest = max(memory.budget_bytes, memory.arena_bytes, memory.touched_bytes, memory.peak_bytes)
    divisor, unit = binary_unit(highest)
    times = [level.time_s for level in levels]
    values = [level.bytes / divisor for level in levels]
    axes.fill_between(times, values, step="post", color=PALE, linewidth=0)
    axes.step(times, values, where="post", color=BLUE, linewidth=0.9)
    axes.axhline(memory.budget_bytes / divisor, color=BLACK, linewidth=1.1, linestyle="--")
    axes.axhline(memory.arena_bytes / divisor, color=GREY, linewidth=1.0)
    if name == _AS_RUN:
        axes.plot(
            [1.0],
            [memory.touched_bytes / divisor],
            marker="<",
            markersize=7,
            color=PURPLE,
            transform=axes.get_yaxis_transform(),
            clip_on=False,
            zorder=5,
        )
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.12 * highest / divisor)
    axes.set_ylabel(f"in RAM ({unit})")
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.text(0.005, 1.01, name, transform=axes.transAxes, va="bottom", fontsize=9, weight="bold")


def _draw_strip(
    axes: Axes, actions: Sequence[ReplayedAction], spans: Mapping[int, Span], end_s: float
) -> None:
    for name, color in COLORS.items():
        drawn = [spans[action.schedule_index] for action in actions if group(action) == name]
        axes.broken_barh(
            [(span.start_s, span.time_s) for span in drawn], (0, 1), color=color, linewidth=0
        )
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.spines["left"].set_visible(False)


def _legend(report: ReplayReport) -> list[Line2D | Patch]:
    memory = report.memory
    present = {group(action) for action in report.actions}
    return [
        Line2D([], [], color=BLUE, linewidth=1.2, label="in RAM, workspace included"),
        budget_key(memory.budget_bytes),
        Line2D([], [], color=GREY, linewidth=1.0, label=f"arena {size_text(memory.arena_bytes)}"),
        Line2D(
            [],
            [],
            color=PURPLE,
            marker="<",
            linestyle="",
            markersize=6,
            label=f"touched on the board {size_text(memory.touched_bytes)}",
        ),
        *(Patch(color=color, label=name) for name, color in COLORS.items() if name in present),
    ]
