"""Picture of bytes in RAM over a replayed step, as predicted and as run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from devices.replay import MemoryUse, ReplayedAction, ReplayReport, Span
from plots.replay.style import COLORS, energy_source_line, group, step_line
from plots.style import (
    BLACK,
    BLUE,
    GREY,
    PALE,
    PURPLE,
    binary_unit,
    budget_key,
    heading,
    save,
    size_text,
    styled,
)
from replay.expectation import Level, memory_levels
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule
from solver.referee.referee import replay

# Inches.
_WIDTH = 10.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.85, 0.2, 1.15, 0.85
_PANEL, _STRIP, _BETWEEN = 2.1, 0.16, 0.42


def replayed_memory(
    graph: CostedGraph, schedule: Schedule, report: ReplayReport, path: Path
) -> None:
    """Draw bytes in RAM over predicted time (top) and over the board's time (bottom).

    Both panels have the same scale; the board's is of the median step. The strips show the actions.

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
        ("as run", memory_levels(played, as_run), as_run),
    ]
    end_s = max(span.start_s + span.time_s for _, _, spans in panels for span in spans.values())
    height = _TOP + _BOTTOM + 2 * (_PANEL + _STRIP) + _BETWEEN
    with styled():
        figure = Figure(figsize=(_WIDTH, height))
        heading(figure, f"{graph.name}: memory over a replayed step", _lines(report))
        top = height - _TOP
        for name, levels, spans in panels:
            top -= _PANEL
            memory = _axes(figure, height, top, _PANEL)
            top -= _STRIP
            strip = _axes(figure, height, top, _STRIP)
            _draw_levels(memory, name, levels, report.memory, end_s)
            _draw_strip(strip, report.actions, spans, end_s)
            top -= _BETWEEN
        strip.set_xlabel("time in the step (s)")
        figure.legend(
            handles=_legend(report),
            loc="lower left",
            bbox_to_anchor=(0.1 / _WIDTH, 0.03 / height),
            ncols=6,
            columnspacing=1.3,
            handletextpad=0.5,
        )
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


def _axes(figure: Figure, height: float, bottom: float, axes_height: float) -> Axes:
    return figure.add_axes(
        (
            _LEFT / _WIDTH,
            bottom / height,
            1 - (_LEFT + _RIGHT) / _WIDTH,
            axes_height / height,
        )
    )


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
    if name == "as run":
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
