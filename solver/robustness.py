"""How a schedule fares when costs are drawn from their intervals, and which fares best on average.

Of a draw is known the least energy of all schedules found so far, which is an upper bound of the
least there is, and a proven lower bound. Searched are, in this order: the draws' mean costs, since
the schedule that is best on average over the draws is the one that is best at their mean (energy is
linear in the costs); costs below which storage never falls, for a bound that holds in every draw;
and then one draw after the other, first those in which it is still open whether the schedule is
good enough. What is found for one draw is held against all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from solver.cost_draws import BoolArray, CostDraws, FloatArray
from solver.draw_evaluation import Evaluation
from solver.options import SolverOptions
from solver.pools import Pool
from solver.referee import RefereeError, verify
from solver.schedule import OverDraws, Robustness, Schedule, Share
from solver.solving import solve_graph

TOLERANCE = 0.01
# Draws in which a schedule that is offered as best on average must be in time.
LEAST_IN_TIME = 0.95
# What is left between the best known of a draw and its bound, as a part of the tolerance.
_GAP = 0.25 * TOLERANCE
# Parts of the whole time that one search may take.
_PART_OF_SPECIAL, _PART_OF_DRAW = 0.25, 0.1
# So many searches in a row that show nothing new are the last.
_PATIENCE = 10
_MOST_TIGHTENED = 4

_Special: TypeAlias = Literal["fastest", "mean", "floor"]


@dataclass(frozen=True)
class DrawProgress:
    """``undecided`` draws are those in which it is open whether the schedule is within the
    tolerance of the best."""

    seconds: float
    solved_draws: int
    undecided: int
    draws: int
    schedules: int


@dataclass(frozen=True)
class Assessment:
    """``best_on_average`` is the whole schedule of that part of ``robustness``, with energy, time
    and gap at the stated costs."""

    robustness: Robustness
    best_on_average: Schedule | None


def assess(
    schedule: Schedule,
    draws: CostDraws,
    seed: int,
    options: SolverOptions,
    pool: Pool,
    time_limit_s: float,
    on_progress: Callable[[DrawProgress], None] = lambda _progress: None,
) -> Assessment:
    """Of a schedule with steps, for the graph of ``draws``. ``options`` are those that it was
    searched with; ``seed`` is repeated in the result. Ctrl-C ends the search for better ones.

    Raises what :func:`~solver.solving.solve_graph` raises.
    """
    started = time.monotonic()
    search = _Search(schedule, draws, options, time_limit_s)
    running: dict[Future[Schedule], _Task] = {}
    try:
        while True:
            remaining_s = started + time_limit_s - time.monotonic()
            while remaining_s > 0 and len(running) < pool.width():
                if (task := search.next_task()) is None:
                    break
                running[task.submit(pool, remaining_s)] = task
            if not running:
                break
            done, _ = wait(running, 1.0, FIRST_COMPLETED)
            for future in done:
                search.take(running.pop(future), future.result())
            on_progress(search.progress(time.monotonic() - started))
    except KeyboardInterrupt:
        pass
    return search.assessment(seed, time.monotonic() - started)


@dataclass(frozen=True)
class _Task:
    """A search at costs (one for each item), with a schedule to begin with. ``kind`` is the number
    of a draw, or what other costs these are."""

    kind: int | _Special
    draws: CostDraws
    start: Schedule
    energy_j: FloatArray
    time_s: FloatArray
    deadline_s: float | None
    limit_s: float
    options: SolverOptions

    def submit(self, pool: Pool, most_s: float) -> Future[Schedule]:
        limit_s = min(most_s, self.limit_s)
        options = replace(self.options, time_limit_s=limit_s)
        graph = self.draws.items.graph_at(self.energy_j, self.time_s)
        budget = self.start.budget.model_copy(update={"deadline_s": self.deadline_s})
        starts = (self.start.steps,)
        return pool.executor.submit(solve_graph, graph, budget, options, starts=starts)


class _Search:
    """What to search next, and what the searches have shown."""

    def __init__(
        self, schedule: Schedule, draws: CostDraws, options: SolverOptions, time_limit_s: float
    ) -> None:
        self._schedule = schedule
        self._draws = draws
        self._asked_gap = options.gap
        self._time_limit_s = time_limit_s
        self._options = replace(options, threads=1, gap=max(_GAP, options.gap))
        self._deadline_s = schedule.budget.deadline_s
        self._evaluation = Evaluation(draws, schedule.budget)
        self._evaluation.add(schedule)
        self._stated_j, self._stated_s = draws.items.costs()
        self._mean_s: FloatArray = draws.time_s.mean(axis=0)
        if self._deadline_s is None and schedule.energy_bound_j is not None:
            self._evaluation.bounds.prove(self._stated_j, schedule.energy_bound_j)
        self._begun: set[int] = set()
        self._solved = 0
        self._fruitless = 0
        self._tightened = 0
        self._mean_deadline_s = self._deadline_s
        first: tuple[_Special, ...] = () if self._deadline_s is None else ("fastest",)
        self._specials: deque[_Special] = deque([*first, "mean", "floor"])

    # --- what to search ---------------------------------------------------------------------------

    def next_task(self) -> _Task | None:
        while self._specials:
            if (task := self._special(self._specials.popleft())) is not None:
                return task
        return self._next_draw() if self._fruitless < _PATIENCE else None

    def _next_draw(self) -> _Task | None:
        best = self._evaluation.best_known_j
        gaps = np.where(np.isfinite(best), best - self._evaluation.proven_j, 0.0)
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
            self._draws.energy_j[draw],
            self._draws.time_s[draw],
            self._deadline_s,
            _PART_OF_DRAW,
        )

    def _special(self, kind: _Special) -> _Task | None:
        ops = self._draws.items.op_count
        match kind:
            case "fastest":
                # Energies are times: what is late in the place of this one is late whatever it is.
                due_s = self._mean_s.copy()
                if self._schedule.budget.instantaneous_paging:
                    due_s[ops:] = 0.0
                return self._task(kind, due_s, self._mean_s, None, _PART_OF_SPECIAL)
            case "mean":
                mean_j = self._evaluation.mean_energy_j
                deadline_s = self._mean_deadline_s
                return self._task(kind, mean_j, self._mean_s, deadline_s, _PART_OF_SPECIAL)
            case "floor":
                floor_j = self._stated_j.copy()
                floor_j[ops:] = self._draws.energy_j[:, ops:].min(axis=0)
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
    ) -> _Task | None:
        """None where no known schedule is in time, so that there may be none at all."""
        start = self._evaluation.best_at(energy_j, time_s, deadline_s)
        if start is None:
            return None
        return _Task(
            kind,
            self._draws,
            start,
            energy_j,
            time_s,
            deadline_s,
            part * self._time_limit_s,
            self._options,
        )

    # --- what it has shown ------------------------------------------------------------------------

    def take(self, task: _Task, found: Schedule) -> None:
        evaluation = self._evaluation
        undecided, best = int(self._undecided().sum()), evaluation.best_known_j
        if found.steps:
            evaluation.add(found)
        if found.energy_bound_j is not None and task.kind != "fastest":
            if task.deadline_s is None:
                evaluation.bounds.prove(task.energy_j, found.energy_bound_j)
            elif isinstance(task.kind, int):
                evaluation.bounds.prove_draw(task.kind, found.energy_bound_j)
        if task.kind == "mean":
            self._tighten(task, found)
        if isinstance(task.kind, int):
            self._solved += 1
            better = (evaluation.best_known_j < best * (1 - self._options.gap)).any()
            new = better or int(self._undecided().sum()) < undecided
            self._fruitless = 0 if new else self._fruitless + 1

    def _tighten(self, task: _Task, found: Schedule) -> None:
        """Search again with less time at the mean costs where what was found is late too often."""
        if task.deadline_s is None or self._deadline_s is None or not found.steps:
            return
        row = self._evaluation.row(found)
        late_s = float(np.quantile(self._evaluation.times_s[row], LEAST_IN_TIME))
        if late_s > self._deadline_s and self._tightened < _MOST_TIGHTENED:
            self._tightened += 1
            self._mean_deadline_s = task.deadline_s * self._deadline_s / late_s
            self._specials.append("mean")

    def _undecided(self) -> FloatArray:
        """1 for draws in which it is open whether the schedule is within the tolerance, 0 for
        others."""
        evaluation = self._evaluation
        known = evaluation.within(0, TOLERANCE, evaluation.best_known_j)
        proven = evaluation.within(0, TOLERANCE, evaluation.proven_j)
        return (known & ~proven).astype(np.float64)

    def progress(self, seconds: float) -> DrawProgress:
        return DrawProgress(
            seconds,
            self._solved,
            int(self._undecided().sum()),
            len(self._draws.energy_j),
            len(self._evaluation.schedules),
        )

    # --- the result -------------------------------------------------------------------------------

    def assessment(self, seed: int, seconds: float) -> Assessment:
        evaluation = self._evaluation
        best = self._best_on_average()
        robustness = Robustness(
            draws=len(self._draws.energy_j),
            seed=seed,
            tolerance=TOLERANCE,
            least_energy=self._over_draws(0),
            best_on_average=None if best is None else self._over_draws(best),
            mean_bound_j=evaluation.proven_mean_j,
            solved_draws=self._solved,
            schedules=len(evaluation.schedules),
            seconds=seconds,
        )
        chosen = None if best is None else self._at_stated_costs(evaluation.schedules[best])
        return Assessment(robustness, chosen)

    def _best_on_average(self) -> int | None:
        """Of two that are as good, the one found first."""
        evaluation = self._evaluation
        means = evaluation.energies_j.mean(axis=1)
        in_time = evaluation.on_time.mean(axis=1)
        found: int | None = None
        for row, schedule in enumerate(evaluation.schedules):
            if in_time[row] < LEAST_IN_TIME or self._is_late(schedule):
                continue
            if found is None or means[row] < means[found] * (1 - 1e-9):
                found = row
        return found

    def _is_late(self, schedule: Schedule) -> bool:
        """At the stated costs."""
        try:
            verify(self._draws.items.graph, schedule.steps, self._schedule.budget)
        except RefereeError:
            return True
        return False

    def _at_stated_costs(self, other: Schedule) -> Schedule:
        """What is proven at the stated costs holds for every schedule; the rest is the other's."""
        if other is self._schedule:
            return other
        graph, budget = self._draws.items.graph, self._schedule.budget
        result = verify(graph, other.steps, budget)
        bound_j = min(self._schedule.energy_bound_j or 0.0, result.energy_j)
        gap = (result.energy_j - bound_j) / result.energy_j if result.energy_j else 0.0
        return self._schedule.model_copy(
            update={
                "status": "optimal" if gap <= self._asked_gap else "feasible",
                "energy_j": result.energy_j,
                "energy_bound_j": bound_j,
                "gap": gap,
                "time_s": result.time_s,
                "peak_bytes": result.peak_bytes,
                "arena_bytes": other.arena_bytes,
                "arena_bound_bytes": other.arena_bound_bytes,
                "bytes_written_to_storage": result.bytes_written_to_storage,
                "resident_address": other.resident_address,
                "steps": other.steps,
            }
        )

    def _over_draws(self, row: int) -> OverDraws:
        evaluation = self._evaluation
        regrets = evaluation.regrets(row)
        in_time = regrets[~np.isnan(regrets)]
        counts = self._draws.items.counts(evaluation.schedules[row].steps)
        return OverDraws(
            energy_j=float(counts @ self._stated_j),
            mean_energy_j=float(evaluation.energies_j[row].mean()),
            within=_share(evaluation.within(row, TOLERANCE, evaluation.best_known_j)),
            provably_within=_share(evaluation.within(row, TOLERANCE, evaluation.proven_j)),
            mean_regret=float(in_time.mean()) if in_time.size else None,
            regret_95=float(np.quantile(in_time, 0.95)) if in_time.size else None,
            in_time=None if self._deadline_s is None else _share(evaluation.on_time[row]),
            regrets=tuple(None if np.isnan(regret) else float(regret) for regret in regrets),
        )


def _share(hits: BoolArray) -> Share:
    from scipy.stats import binomtest

    count = int(hits.sum())
    interval = binomtest(count, len(hits)).proportion_ci(method="wilson")
    return Share(value=count / len(hits), low=float(interval.low), high=float(interval.high))
