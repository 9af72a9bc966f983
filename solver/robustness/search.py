"""Choice of searches at drawn costs, and evaluation of their results.

For each draw, the least energy of all schedules found so far is an upper bound on its least energy;
a lower bound is proven. The searches are, in this order:

1. The mean costs of the draws: the schedule that is best at the mean is best on average, since
   energy is linear in the costs.
2. The least costs of transfers over all draws, for a bound that holds in every draw.
3. Single draws, first those in which it is undecided whether the schedule of least energy is good
   enough. A schedule found for one draw is evaluated in all of them.

A search with less time than checking its result takes is not begun: it would end late with nothing.

With a deadline, a schedule that is in time at the mean costs may be late in too many draws. The
mean costs are then searched again with a deadline shortened by that excess. The schedule of least
time is searched first: a draw in which it is late is not searched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from solver.options import SolverOptions
from solver.pools import Pool
from solver.problem.claims import claims_of, class_of
from solver.problem.schedule import Schedule
from solver.referee.referee import RefereeError, verify
from solver.robustness.draws import CostDraws, FloatArray
from solver.robustness.evaluation import Evaluation
from solver.solving.reserve import checks_s
from solver.solving.solving import solve_graph

TOLERANCE = 0.01
# Share of the draws in which the schedule that is best on average must be in time.
LEAST_IN_TIME = 0.95
# Gap to which a draw is solved, a part of the tolerance.
_GAP = 0.25 * TOLERANCE
# Shares of the time limit that one search may take.
_PART_OF_SPECIAL, _PART_OF_DRAW = 0.25, 0.1
# The search ends after this many consecutive draws without a new result.
_PATIENCE = 10
_MOST_TIGHTENED = 4

_Special: TypeAlias = Literal["fastest", "mean", "floor"]


@dataclass(frozen=True)
class DrawProgress:
    """State of the search over draws.

    A draw is undecided while it is unknown whether the schedule is within the tolerance of the
    best.
    """

    seconds: float
    solved_draws: int
    undecided: int
    draws: int
    schedules: int


@dataclass(frozen=True)
class DrawTask:
    """A search at given costs (one for each item) from a start schedule.

    ``kind`` is the number of a draw, or the name of other costs.
    """

    kind: int | _Special
    draws: CostDraws
    start: Schedule
    energy_j: FloatArray
    time_s: FloatArray
    deadline_s: float | None
    limit_s: float
    options: SolverOptions
    certified: bool

    def submit(self, pool: Pool, most_s: float) -> Future[Schedule]:
        """Start the search in a pool, for at most ``most_s`` seconds."""
        limit_s = min(most_s, self.limit_s)
        options = replace(self.options, time_limit_s=limit_s)
        graph = self.draws.items.graph_at(self.energy_j, self.time_s)
        budget = self.start.budget.model_copy(update={"deadline_s": self.deadline_s})
        return pool.submit(
            solve_graph,
            graph,
            budget,
            options,
            starts=(self.start.actions,),
            certified=self.certified,
        )


class DrawSearch:
    """Chooses the next search and records results.

    ``least`` is the row in ``evaluation`` of the schedule of least energy at the stated costs;
    ``solved`` is the number of draws searched; ``shortest_s`` is the least time for a search. Of a
    found schedule that ``can_run`` refuses, only the bound counts.
    """

    def __init__(
        self,
        schedule: Schedule,
        draws: CostDraws,
        options: SolverOptions,
        time_limit_s: float,
        can_run: Callable[[Schedule], bool] = lambda _schedule: True,
    ) -> None:
        self.schedule = schedule
        self.draws = draws
        self._can_run = can_run
        self._time_limit_s = time_limit_s
        self.shortest_s = checks_s(draws.items.graph, schedule.budget.covers)
        self._options = replace(options, threads=1, gap=max(_GAP, options.gap))
        self._deadline_s = schedule.budget.deadline_s
        self.evaluation = Evaluation(draws, schedule.budget)
        self.evaluation.add(schedule)
        self.least = 0
        self._stated_j, self._stated_s = draws.items.costs()
        self._mean_s: FloatArray = draws.time_s.mean(axis=0)
        # If the schedule was certified, only bounds count that are certified, too.
        self._certified = schedule.certificate is not None
        if self._deadline_s is None:
            self.evaluation.bounds.prove(self._stated_j, self._bound_j(schedule))
        self._begun: set[int] = set()
        self.solved = 0
        self._fruitless = 0
        self._tightened = 0
        self._mean_deadline_s = self._deadline_s
        first: tuple[_Special, ...] = () if self._deadline_s is None else ("fastest",)
        self._specials: deque[_Special] = deque([*first, "mean", "floor"])

    # --- tasks ------------------------------------------------------------------------------------

    def next_task(self) -> DrawTask | None:
        """The next search, None if no further search is useful."""
        while self._specials:
            if (task := self._special(self._specials.popleft())) is not None:
                return task
        return self._next_draw() if self._fruitless < _PATIENCE else None

    def _next_draw(self) -> DrawTask | None:
        best = self.evaluation.best_known_j
        gaps = np.where(np.isfinite(best), best - self.evaluation.proven_j, 0.0)
        gaps /= np.where(gaps > 0, best, 1.0)
        urgency = gaps + self._undecided()
        urgency[gaps <= self._options.gap] = -1.0
        urgency[list(self._begun)] = -1.0
        draw = int(np.argmax(urgency))
        if urgency[draw] < 0:
            return None
        self._begun.add(draw)
        return self._task(
            draw,
            self.draws.energy_j[draw],
            self.draws.time_s[draw],
            self._deadline_s,
            _PART_OF_DRAW,
        )

    def _special(self, kind: _Special) -> DrawTask | None:
        ops = self.draws.items.op_count
        match kind:
            case "fastest":
                # Durations serve as costs here.
                due_s = self._mean_s.copy()
                if self.schedule.budget.instantaneous_paging:
                    due_s[ops:] = 0.0
                return self._task(kind, due_s, self._mean_s, None, _PART_OF_SPECIAL)
            case "mean":
                mean_j = self.evaluation.mean_energy_j
                deadline_s = self._mean_deadline_s
                return self._task(kind, mean_j, self._mean_s, deadline_s, _PART_OF_SPECIAL)
            case "floor":
                floor_j = self._stated_j.copy()
                floor_j[ops:] = self.draws.energy_j[:, ops:].min(axis=0)
                known = self._deadline_s is None and (floor_j == self._stated_j).all()
                if known or not self._undecided().any():
                    return None
                return self._task(kind, floor_j, self._stated_s, None, _PART_OF_SPECIAL)

    def _task(
        self,
        kind: int | _Special,
        energy_j: FloatArray,
        time_s: FloatArray,
        deadline_s: float | None,
        part: float,
    ) -> DrawTask | None:
        """A task, or None if no known schedule is in time: such costs may be infeasible.

        None, too, if its part of the time is too short.
        """
        limit_s = part * self._time_limit_s
        if limit_s < self.shortest_s:
            return None
        start = self.evaluation.best_at(energy_j, time_s, deadline_s)
        if start is None:
            return None
        return DrawTask(
            kind,
            self.draws,
            start,
            energy_j,
            time_s,
            deadline_s,
            limit_s,
            self._options,
            self._certified,
        )

    # --- results ----------------------------------------------------------------------------------

    def take(self, task: DrawTask, found: Schedule) -> None:
        """Record the result of a search."""
        evaluation = self.evaluation
        undecided, best = int(self._undecided().sum()), evaluation.best_known_j
        row = evaluation.add(found) if found.actions and self._is_runnable(found) else None
        if row is not None:
            self._take_if_least(row)
        bound_j = self._bound_j(found)
        if task.kind != "fastest":
            if task.deadline_s is None:
                evaluation.bounds.prove(task.energy_j, bound_j)
            elif isinstance(task.kind, int):
                evaluation.bounds.prove_draw(task.kind, bound_j)
        if task.kind == "mean" and row is not None:
            self._tighten(task, row)
        if isinstance(task.kind, int):
            self.solved += 1
            better = (evaluation.best_known_j < best * (1 - self._options.gap)).any()
            new = better or int(self._undecided().sum()) < undecided
            self._fruitless = 0 if new else self._fruitless + 1

    def drop(self) -> None:
        """Record that a search has failed."""
        self._fruitless += 1

    def _is_runnable(self, found: Schedule) -> bool:
        """Whether the board can run a schedule, which may be late at the stated costs."""
        budget = found.budget.model_copy(update={"deadline_s": None})
        return self._can_run(found.model_copy(update={"budget": budget}))

    def _bound_j(self, found: Schedule) -> float:
        """Bound for all schedules that the bound of the assessed schedule covers; 0 if unknown."""
        certificate = found.certificate
        if self._certified and (certificate is None or certificate.outcome == "undecided"):
            return 0.0
        order = self.draws.items.graph.order
        covered = class_of(self.schedule, order)
        return claims_of(found, order).finite.about(found.budget, covered).least_j

    def _take_if_least(self, row: int) -> None:
        """Make a schedule the least if it is in time and needs less energy at the stated costs."""
        schedules, counts = self.evaluation.schedules, self.draws.items.counts
        least_j, found_j = (
            float(counts(schedules[r].actions) @ self._stated_j) for r in (self.least, row)
        )
        if found_j < least_j * (1 - 1e-9) and not self.is_late(schedules[row]):
            self.least = row

    def _tighten(self, task: DrawTask, row: int) -> None:
        """Search the mean costs again with a shorter deadline if the schedule is late too often."""
        if task.deadline_s is None or self._deadline_s is None:
            return
        if not self.is_late_too_often(row) or self._tightened == _MOST_TIGHTENED:
            return
        self._tightened += 1
        times_s = self.evaluation.times_s[row]
        late_s = float(np.quantile(times_s, LEAST_IN_TIME, method="inverted_cdf"))
        self._mean_deadline_s = task.deadline_s * self._deadline_s / late_s
        self._specials.append("mean")

    def _undecided(self) -> FloatArray:
        """1 for each undecided draw, 0 for the others."""
        evaluation = self.evaluation
        known = evaluation.within(self.least, TOLERANCE, evaluation.best_known_j)
        proven = evaluation.within(self.least, TOLERANCE, evaluation.proven_j)
        return (known & ~proven).astype(np.float64)

    def progress(self, seconds: float) -> DrawProgress:
        """State of the search after ``seconds``."""
        return DrawProgress(
            seconds,
            self.solved,
            int(self._undecided().sum()),
            len(self.draws.energy_j),
            len(self.evaluation.schedules),
        )

    def is_late_too_often(self, row: int) -> bool:
        """Whether a schedule is in time in too few draws to be best on average."""
        return bool(self.evaluation.on_time[row].mean() < LEAST_IN_TIME)

    def is_late(self, schedule: Schedule) -> bool:
        """Whether a schedule is late at the stated costs."""
        try:
            verify(self.draws.items.graph, schedule.actions, self.schedule.budget)
        except RefereeError:
            return True
        return False
