"""Figures of a campaign's cell, predicted and measured, as the report states them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from campaigns.keeping.records import Repetition
from campaigns.keeping.results import CellResult
from devices.documents.readable import NO_SOURCE
from devices.profile import EnergySource, Interval
from plots.report.timeline import Timeline, timeline_of
from replay.expectation import expected_step

# Logarithm of the widest factor between a mean and an end: two repetitions alone can exceed it.
_WIDEST = 10.0


@dataclass(frozen=True)
class Figure:
    """A figure with its interval; ``source`` is set for joules, and says where they come from."""

    interval: Interval
    source: str | None = None


@dataclass(frozen=True)
class CellFigures:
    """A cell with the figures of its schedule and of its replays.

    ``number`` counts the campaign's cells from 1. Measured figures are medians over the
    repetitions, with the 95 % interval of Student's t over them on a logarithmic scale, and without
    an interval over one repetition. What does not exist is None. ``solver`` is what searched the
    schedule, ``bound_covers`` the class of schedules that its bound holds for.
    """

    number: int
    result: CellResult
    predicted_time: Figure | None = None
    predicted_energy: Figure | None = None
    measured_time: Figure | None = None
    measured_energy: Figure | None = None
    solver: str | None = None
    bound_covers: str | None = None
    timeline: Timeline | None = None

    @property
    def bound(self) -> Figure | None:
        """Proven least energy, of the class of schedules that the cell's method searches."""
        solved = self.result.solved
        if solved is None or solved.energy_bound_j is None:
            return None
        return Figure(Interval.exact(solved.energy_bound_j), solved.energy_source or NO_SOURCE)

    @property
    def time_difference(self) -> float | None:
        """Measured over predicted time, minus 1."""
        return _difference(self.predicted_time, self.measured_time)

    @property
    def energy_difference(self) -> float | None:
        """Measured over predicted energy, minus 1."""
        return _difference(self.predicted_energy, self.measured_energy)

    @property
    def differs(self) -> bool:
        """Whether a trained value of any replay differed from that of the unscheduled step."""
        return not all(replay.values_identical for replay in self.result.replays)


def figures_of(result: CellResult, number: int, columns: int) -> CellFigures:
    """Compute the figures of a cell.

    Args:
        result: The cell.
        number: Its number in the campaign, from 1.
        columns: Points of each line of its timeline.

    Raises:
        DocumentError: A file of the cell is missing or damaged.
        InputError: Its schedule states a figure that its actions do not have.
    """
    solved = result.solved
    if solved is None or not solved.has_schedule:
        return CellFigures(number, result)
    graph, schedule = result.schedule()
    expected = expected_step(graph, schedule)
    typical = _typical(result.repetitions)
    report = None if typical is None else result.report(typical)
    energies = [repetition.energy_j for repetition in result.repetitions]
    return CellFigures(
        number=number,
        result=result,
        predicted_time=Figure(expected.time_s),
        predicted_energy=Figure(expected.energy_j, solved.energy_source or NO_SOURCE),
        measured_time=_over(
            [repetition.time_s.measured for repetition in result.repetitions], None
        ),
        measured_energy=_over(
            [energy.measured for energy in energies if energy is not None],
            _source(result.repetitions),
        ),
        solver=f"{schedule.solver.engine} {schedule.solver.version}, {schedule.solver.formulation}",
        bound_covers="; ".join((schedule.bound_covers, *schedule.restrictions)),
        timeline=timeline_of(graph, schedule, report, columns),
    )


def _typical(repetitions: Sequence[Repetition]) -> Repetition | None:
    """The repetition whose time is in the middle."""
    by_time = sorted(repetitions, key=lambda repetition: repetition.time_s.measured.median)
    return by_time[len(by_time) // 2] if by_time else None


def _over(figures: Sequence[Interval], source: str | None) -> Figure | None:
    if not figures:
        return None
    return Figure(_over_repetitions([figure.median for figure in figures]), source)


def _over_repetitions(values: Sequence[float]) -> Interval:
    """Median, with Student's t interval of the logarithms' mean; none for one, or for a zero."""
    from scipy.special import stdtrit

    middle = median(values)
    if len(values) < 2 or min(values) == 0:
        return Interval.exact(middle)
    logs = [math.log(value) for value in values]
    reach = float(stdtrit(len(logs) - 1, 0.975)) * stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(fmean(logs) + side * min(reach, _WIDEST)) for side in (-1, 1))
    return Interval(median=middle, low=min(low, middle), high=max(high, middle))


def _source(repetitions: Sequence[Repetition]) -> str:
    sources: list[EnergySource] = [
        repetition.measured_energy_source
        for repetition in repetitions
        if repetition.measured_energy_source is not None
    ]
    return ", ".join(dict.fromkeys(sources)) or NO_SOURCE


def _difference(predicted: Figure | None, measured: Figure | None) -> float | None:
    if predicted is None or measured is None or not predicted.interval.median:
        return None
    return measured.interval.median / predicted.interval.median - 1
