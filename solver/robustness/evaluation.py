"""Evaluation of schedules under drawn costs: energy and time of each schedule in each draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut, Schedule
from solver.referee.clock import Clock
from solver.robustness.bounds import DrawBounds
from solver.robustness.draws import BoolArray, CostDraws, FloatArray, Items

# Relative tolerance: sums of many doubles may differ in their last digits from the referee's.
_ROUNDING = 1e-9


@dataclass
class Evaluation:
    """Energies, and times that count against the deadline, of schedules in draws.

    Both have a row for each schedule and a column for each draw. ``bounds`` are those of the draws
    and, last, of their mean costs.
    """

    draws: CostDraws
    budget: Budget
    schedules: list[Schedule] = field(default_factory=list)
    energies_j: FloatArray = field(init=False)
    times_s: FloatArray = field(init=False)
    bounds: DrawBounds = field(init=False)

    def __post_init__(self) -> None:
        draws, _ = self.draws.energy_j.shape
        self.energies_j = np.empty((0, draws))
        self.times_s = np.empty((0, draws))
        problem = Problem(self.draws.items.graph, self.budget)
        self.bounds = DrawBounds(problem, np.vstack([self.draws.energy_j, self.mean_energy_j]))

    @property
    def mean_energy_j(self) -> FloatArray:
        """Mean energy of each item over the draws."""
        mean: FloatArray = self.draws.energy_j.mean(axis=0)
        return mean

    def add(self, schedule: Schedule) -> int:
        """Add a schedule; return its row, or that of one with the same energies and times."""
        draws = self.draws
        counts = draws.items.counts(schedule.actions)
        energies_j = _product(draws.energy_j, counts)
        times_s = self._times_due_s(schedule.actions, counts, draws.time_s)
        same = (self.energies_j == energies_j) & (self.times_s == times_s)
        if (known := np.flatnonzero(same.all(axis=1))).size:
            return int(known[0])
        self.schedules.append(schedule)
        self.energies_j = np.vstack([self.energies_j, energies_j])
        self.times_s = np.vstack([self.times_s, times_s])
        return len(self.schedules) - 1

    @property
    def on_time(self) -> BoolArray:
        """Whether each schedule meets the deadline in each draw."""
        if self.budget.deadline_s is None:
            return np.ones(self.times_s.shape, dtype=bool)
        return self.times_s <= self.budget.deadline_s * (1 + _ROUNDING)

    @property
    def best_known_j(self) -> FloatArray:
        """Least energy in each draw of the schedules in time; infinite if all are late."""
        best: FloatArray = np.where(self.on_time, self.energies_j, np.inf).min(axis=0)
        return best

    @property
    def proven_j(self) -> FloatArray:
        """Lower bound on the least energy in each draw."""
        return self._proven_j[:-1]

    @property
    def proven_mean_j(self) -> float:
        """Lower bound on the mean energy of all schedules, late ones included."""
        return float(self._proven_j[-1])

    @property
    def _proven_j(self) -> FloatArray:
        least_mean_j = self.energies_j.mean(axis=1).min()
        return self.bounds.at(np.append(self.best_known_j, least_mean_j))

    def regrets(self, row: int) -> FloatArray:
        """Relative excess of a schedule's energy over the best known of each draw.

        It is NaN where the schedule is late, and 0 where the best costs nothing.
        """
        best = self.best_known_j
        known = np.isfinite(best) & (best > 0)
        regrets = np.divide(self.energies_j[row], best, out=np.ones_like(best), where=known) - 1.0
        late_as_nan: FloatArray = np.where(self.on_time[row], np.maximum(regrets, 0.0), np.nan)
        return late_as_nan

    def within(self, row: int, tolerance: float, least_j: FloatArray) -> BoolArray:
        """Draws in which a schedule is in time and within the tolerance of ``least_j``."""
        most_j = least_j * (1 + tolerance) * (1 + _ROUNDING)
        good: BoolArray = self.on_time[row] & (self.energies_j[row] <= most_j)
        return good

    def best_at(
        self, energy_j: FloatArray, time_s: FloatArray, deadline_s: float | None
    ) -> Schedule | None:
        """The schedule of least energy at given costs among those in time; None if all are late."""
        found: tuple[float, Schedule] | None = None
        for schedule in self.schedules:
            counts = self.draws.items.counts(schedule.actions)
            if deadline_s is not None:
                due_s = float(self._times_due_s(schedule.actions, counts, time_s[None, :])[0])
                if due_s > deadline_s * (1 + _ROUNDING):
                    continue
            value = float(counts @ energy_j)
            if found is None or value < found[0]:
                found = value, schedule
        return None if found is None else found[1]

    def _times_due_s(
        self,
        actions: Sequence[Action],
        counts: FloatArray,
        time_s: FloatArray,
    ) -> FloatArray:
        """Seconds that count against the deadline at each row of costs; 0 without a deadline."""
        items = self.draws.items
        if self.budget.deadline_s is None:
            return np.zeros(len(time_s))
        if self.budget.instantaneous_paging:
            return _product(time_s[:, : items.op_count], counts[: items.op_count])
        if not any(
            isinstance(action, PageIn | PageOut) and action.asynchronous for action in actions
        ):
            return _product(time_s, counts)
        return _end_s(items, actions, time_s)


def _end_s(items: Items, actions: Sequence[Action], time_s: FloatArray) -> FloatArray:
    """Seconds of a step whose transfers run beside ops, so that time is not a sum."""
    share, handover_s = items.graph.share_of_processor, items.graph.handover_s or 0.0

    def working(transfer_s: FloatArray) -> FloatArray:
        return np.minimum(transfer_s, share * transfer_s + handover_s)

    clock = Clock(np.zeros(len(time_s)), np.maximum.reduce, working)
    for action in actions:
        match action:
            case Compute():
                op = items.op_index[action.op]
                clock.compute(items.graph.ops[op], time_s[:, op])
            case PageOut():
                clock.page_out(action, time_s[:, items.out_index[action.tensor]])
            case PageIn():
                clock.page_in(action, time_s[:, items.in_index[action.tensor]])
            case Free():
                clock.free(action.tensor)
    return clock.end_s


def _product(costs: FloatArray, counts: FloatArray) -> FloatArray:
    sums: FloatArray = costs @ counts
    return sums
