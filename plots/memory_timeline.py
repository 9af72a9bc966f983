"""Picture of memory over one training step, with the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from plots.layout import lay_out, name_phase, page, save, settle, shortened, size_inches
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
    size_text,
    styled,
)
from solver.constructed import keep_everything
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut, Schedule
from solver.referee.referee import Moment, Replay, replay

# Height of the axes of memory in inches; distance of the words on the peak as a share of the width.
_MEMORY_INCHES = 3.2
_BESIDE = 0.02

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
    lanes = _lanes(activities, played)
    lanes_inches = 0.19 * len(lanes)
    with styled():
        figure = page(
            f"{graph.name}: memory over one training step",
            _summary(graph, schedule, played, kept_bytes, activities),
            _MEMORY_INCHES + lanes_inches + 0.75,
            _legend(schedule),
        )
        if lanes:
            grid = figure.add_gridspec(2, 1, height_ratios=(_MEMORY_INCHES, lanes_inches))
            memory = figure.add_subplot(grid[0])
            lowest = figure.add_subplot(grid[1], sharex=memory)
            memory.tick_params(axis="x", labelbottom=False)
            _draw_lanes(lowest, lanes, played.time_s)
        else:
            memory = lowest = figure.add_subplot()
        lowest.set_xlabel("time in the step, predicted (s)")
        lowest.xaxis.set_major_formatter(EngFormatter(unit="s"))
        _draw_memory(memory, schedule, played, activities)
        lay_out(figure)
        _shade_phases(memory, graph, played, played.time_s or 1.0)
        settle(figure)
        _mark_peak(memory, schedule, played)
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
    schedule: Schedule,
    played: Replay,
    activities: Sequence[_Activity],
) -> None:
    budget_bytes = schedule.budget.ram_bytes
    highest = _highest_bytes(schedule, played)
    divisor, unit = binary_unit(highest)
    times: list[float] = []
    levels: list[float] = []
    bytes_before = played.moments[0].bytes_during
    for moment in played.moments:
        if moment.waited_s:
            times += [moment.start_s - moment.waited_s, moment.start_s]
            levels += [bytes_before / divisor] * 2
        if not isinstance(moment.action, Free) and (moment.time_s or not moment.is_beside_ops):
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
            edgecolor=activity.color,
            linewidth=0.3,
            alpha=0.75,
            zorder=2,
        )
    axes.plot(times, levels, color=BLUE, linewidth=0.9, zorder=3)
    axes.axhline(budget_bytes / divisor, color=BLACK, linewidth=1.1, linestyle="--", zorder=4)
    end_s = played.time_s or 1.0
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, 1.2 * highest / divisor)
    axes.set_ylabel(f"in RAM ({unit})")


def _highest_bytes(schedule: Schedule, played: Replay) -> int:
    return max(schedule.budget.ram_bytes, played.peak_bytes, 1)


def _mark_peak(axes: Axes, schedule: Schedule, played: Replay) -> None:
    """Mark the peak, and describe it above the budget, towards the side with more room."""
    divisor, _ = binary_unit(_highest_bytes(schedule, played))
    moment = played.moments[played.peak_action]
    place = (moment.start_s + moment.time_s / 2) / (played.time_s or 1.0)
    late = place > 0.5
    room = size_inches(axes)[0] * (max(place, 1 - place) - _BESIDE)
    axes.plot(
        [place],
        [played.peak_bytes / divisor],
        "o",
        color=BLACK,
        markersize=4,
        zorder=5,
        transform=axes.get_yaxis_transform(),
    )
    axes.annotate(
        shortened(f"peak {size_text(played.peak_bytes)} {_doing(moment.action)}", room, 8),
        (place, played.peak_bytes / divisor),
        (place + (-_BESIDE if late else _BESIDE), 0.9),
        xycoords=axes.get_yaxis_transform(),
        textcoords="axes fraction",
        ha="right" if late else "left",
        va="bottom",
        fontsize=8,
        color=INK,
        arrowprops={
            "arrowstyle": "-",
            "color": INK,
            "linewidth": 0.7,
            "relpos": (1 if late else 0, 0),
        },
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
        name_phase(axes, start_s, stop_s, phase)


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
    return any(moment.is_beside_ops for moment in played.moments)


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
