"""Picture of memory over one training step, with the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from plots.residency import phase_spans
from plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    VERMILION,
    binary_unit,
    budget_key,
    energy_words,
    engineering,
    heading,
    name_phase,
    save,
    size_text,
    styled,
)
from solver.constructed import keep_everything
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut, Schedule
from solver.referee.referee import Moment, Replay, replay

_SHADES = {"forward": "#FFFFFF", "backward": "#F1F1F1", "update": "#E2E2E2"}


@dataclass(frozen=True)
class _Activity:
    """A kind of action with extra cost in a schedule, and its colour."""

    name: str
    color: str
    moments: tuple[Moment, ...]

    @property
    def spans_s(self) -> list[tuple[float, float]]:
        """Start and duration of each action; for an asynchronous transfer, of its bytes."""
        return [
            (m.start_s, m.time_s)
            if m.transfer_start_s is None
            else (m.transfer_start_s, m.transfer_s)
            for m in self.moments
        ]

    @property
    def energy_j(self) -> float:
        return sum(moment.energy_j for moment in self.moments)


def memory_timeline(graph: CostedGraph, schedule: Schedule, path: Path) -> None:
    """Draw bytes in RAM over the predicted time of the step, with the budget.

    Recomputed ops and transfers are marked.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule with actions.
        path: Picture to write.

    Raises:
        ValueError: The schedule has no actions.
    """
    if not schedule.actions:
        raise ValueError(f"the schedule of {schedule.graph} has no actions: {schedule.status}")
    played = replay(graph, schedule.actions, schedule.budget.covers)
    kept_bytes = replay(graph, keep_everything(graph), schedule.budget.covers).peak_bytes
    activities = [activity for activity in _activities(played.moments) if activity.moments]
    lanes = 0.19 * len(_lanes(activities, played))
    top, bottom, gap, axis = 1.2, 0.34, 0.08, 0.42
    height = top + 3.4 + gap + lanes + axis + bottom
    with styled():
        figure = Figure(figsize=(10, height))
        heading(
            figure,
            f"{graph.name}: memory over one training step",
            _summary(graph, schedule, played, kept_bytes, activities),
        )
        box = (0.085, 0.985 - 0.085)
        memory = figure.add_axes(
            (box[0], (bottom + axis + lanes + gap) / height, box[1], 3.4 / height)
        )
        _draw_memory(memory, graph, schedule, played, activities)
        lowest = memory
        if activities:
            lowest = figure.add_axes(
                (box[0], (bottom + axis) / height, box[1], lanes / height), sharex=memory
            )
            memory.tick_params(axis="x", labelbottom=False)
            _draw_lanes(lowest, _lanes(activities, played), played.time_s)
        lowest.set_xlabel("time in the step, predicted (s)")
        lowest.xaxis.set_major_formatter(EngFormatter(unit="s"))
        figure.legend(
            handles=_legend(schedule),
            loc="lower left",
            bbox_to_anchor=(box[0], 0.05 / height),
            ncols=4,
            borderaxespad=0,
        )
        save(figure, path)


def _activities(moments: Sequence[Moment]) -> Iterator[_Activity]:
    yield _Activity("recompute", ORANGE, tuple(m for m in moments if m.recomputation))
    yield _Activity(
        "page out", VERMILION, tuple(m for m in moments if isinstance(m.action, PageOut))
    )
    yield _Activity("page in", GREEN, tuple(m for m in moments if isinstance(m.action, PageIn)))


def _summary(
    graph: CostedGraph,
    schedule: Schedule,
    played: Replay,
    kept_bytes: int,
    activities: Sequence[_Activity],
) -> list[str]:
    budget = schedule.budget
    counted = "" if budget.covers == "all" else ", activations only"
    share = f" = {100 * budget.ram_bytes / kept_bytes:.0f} %" if kept_bytes else ""
    memory = (
        f"budget {size_text(budget.ram_bytes)}{share} of the {size_text(kept_bytes)} needed to keep"
        f" everything{counted}; peak {size_text(played.peak_bytes)}"
    )
    cost = f"{engineering(played.energy_j, 'J')} in {engineering(played.time_s, 's')}"
    if activities and played.energy_j > 0:
        extras = (
            f"{len(activity.moments)} × {activity.name}"
            f" {100 * activity.energy_j / played.energy_j:.2g} %"
            for activity in activities
        )
        cost += f"; shares of the energy: {', '.join(extras)}"
    if _runs_beside(played):
        cost += f"; {engineering(played.hidden_s, 's')} of transfers hidden beside ops"
    return [memory, cost, energy_words(schedule.energy_source or graph.energy_source)]


def _draw_memory(
    axes: Axes,
    graph: CostedGraph,
    schedule: Schedule,
    played: Replay,
    activities: Sequence[_Activity],
) -> None:
    budget_bytes = schedule.budget.ram_bytes
    highest = max(budget_bytes, played.peak_bytes, 1)
    divisor, unit = binary_unit(highest)
    times: list[float] = []
    levels: list[float] = []
    bytes_before = played.moments[0].bytes_during
    for moment in played.moments:
        if moment.waited_s:
            times += [moment.start_s - moment.waited_s, moment.start_s]
            levels += [bytes_before / divisor] * 2
        if not isinstance(moment.action, Free) and not _is_beside(moment):
            times += [moment.start_s, moment.start_s + moment.time_s]
            levels += [moment.bytes_during / divisor] * 2
        bytes_before = moment.bytes_after
    times.append(played.time_s)
    levels.append(played.moments[-1].bytes_after / divisor)
    axes.fill_between(times, levels, color=PALE, linewidth=0, zorder=1)
    for activity in activities:
        axes.bar(
            [moment.start_s for moment in activity.moments],
            [moment.bytes_during / divisor for moment in activity.moments],
            [moment.time_s for moment in activity.moments],
            align="edge",
            color=activity.color,
            alpha=0.75,
            zorder=2,
        )
    axes.plot(times, levels, color=BLUE, linewidth=0.9, zorder=3)
    axes.axhline(budget_bytes / divisor, color=BLACK, linewidth=1.1, linestyle="--", zorder=4)
    end_s = played.time_s or 1.0
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.2 * highest / divisor)
    axes.set_ylabel(f"in RAM ({unit})")
    _shade_phases(axes, graph, played, end_s)
    _mark_peak(axes, played, divisor, highest, end_s)


def _mark_peak(axes: Axes, played: Replay, divisor: float, highest: int, end_s: float) -> None:
    moment = played.moments[played.peak_action]
    middle_s = moment.start_s + moment.time_s / 2
    late = middle_s > end_s / 2
    axes.plot([middle_s], [played.peak_bytes / divisor], "o", color=BLACK, markersize=4, zorder=5)
    axes.annotate(
        f"peak {size_text(played.peak_bytes)} {_doing(moment.action)}",
        (middle_s, played.peak_bytes / divisor),
        (middle_s + (-0.02 if late else 0.02) * end_s, 1.08 * highest / divisor),
        ha="right" if late else "left",
        va="bottom",
        fontsize=8,
        color=INK,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.7},
        zorder=6,
    )


def _doing(action: Action) -> str:
    match action:
        case Compute():
            return f"during {action.op}"
        case PageOut():
            return f"while {action.tensor} is paged out"
        case PageIn():
            return f"while {action.tensor} is paged in"
        case Free():
            return f"before {action.tensor} is freed"


def _shade_phases(axes: Axes, graph: CostedGraph, played: Replay, end_s: float) -> None:
    phase_of = {op.name: op.phase for op in graph.ops}
    firsts = [
        (phase_of[moment.action.op], moment.start_s)
        for moment in played.moments
        if isinstance(moment.action, Compute) and not moment.recomputation
    ]
    starts = [start_s for _, start_s in firsts]
    for phase, first, last in phase_spans([phase for phase, _ in firsts]):
        start_s = 0.0 if first == 0 else starts[first]
        stop_s = starts[last] if last < len(starts) else end_s
        axes.axvspan(start_s, stop_s, color=_SHADES[phase], linewidth=0, zorder=0)
        if stop_s - start_s > 0.06 * end_s:
            name_phase(axes, (start_s + stop_s) / 2, phase)


@dataclass(frozen=True)
class _Lane:
    name: str
    color: str
    spans_s: list[tuple[float, float]]


def _lanes(activities: Sequence[_Activity], played: Replay) -> list[_Lane]:
    """Lanes of the activities, and one of the waits for transfers that run beside ops."""
    lanes = [_Lane(activity.name, activity.color, activity.spans_s) for activity in activities]
    waits = [(m.start_s - m.waited_s, m.waited_s) for m in played.moments if m.waited_s]
    if waits:
        lanes.append(_Lane("wait", GREY, waits))
    return lanes


def _runs_beside(played: Replay) -> bool:
    return any(_is_beside(moment) for moment in played.moments)


def _is_beside(moment: Moment) -> bool:
    return isinstance(moment.action, PageIn | PageOut) and moment.action.asynchronous


def _draw_lanes(axes: Axes, lanes: Sequence[_Lane], end_s: float) -> None:
    """Draw the lanes; edges keep spans visible that are narrower than a pixel."""
    for row, lane in enumerate(lanes):
        axes.broken_barh(
            lane.spans_s,
            (row - 0.4, 0.8),
            color=lane.color,
            edgecolor=lane.color,
            linewidth=0.7,
        )
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [lane.name for lane in lanes])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, end_s)


def _legend(schedule: Schedule) -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=BLUE, linewidth=1.2, label="in RAM, workspace included"),
        budget_key(schedule.budget.ram_bytes),
        Line2D([], [], color=BLACK, marker="o", linestyle="", markersize=4, label="peak"),
        Patch(
            facecolor=_SHADES["backward"], edgecolor=GREY, linewidth=0.5, label="backward, update"
        ),
    ]
