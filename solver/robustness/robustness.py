"""Assessment of a schedule over drawn costs, and the schedule that is best on average."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

import numpy as np

from devices.errors import EngineFailed, EngineUnavailable
from devices.program import done_in_any_case, stops_put_off
from solver.options import SolverOptions
from solver.pools import Pool, local_pool, outcome_of
from solver.problem.claims import claims_of, class_of, proven_of
from solver.problem.schedule import DrawStatistics, Robustness, Schedule, Share
from solver.referee.referee import verify
from solver.robustness.draws import BoolArray, CostDraws
from solver.robustness.search import TOLERANCE, DrawProgress, DrawSearch, DrawTask

DRAWS_SEED = 0

# Time limit of all draws together if the search has none.
_TIME_LIMIT_S = 300.0
# Time after the limit for searches that are about to end; others are dropped.
_GRACE_S = 1.0
# Longest time between two reports of progress.
_REPORT_S = 1.0


@dataclass(frozen=True)
class Assessment:
    """Robustness and its schedules, with energy, time and gap at the stated costs.

    ``least_energy`` is the schedule that was assessed, or a better one if the search found one.
    ``notes`` say which searches failed.
    """

    robustness: Robustness
    least_energy: Schedule
    best_on_average: Schedule | None
    notes: tuple[str, ...] = ()


def assess(
    schedule: Schedule,
    draws: CostDraws,
    seed: int,
    options: SolverOptions,
    pool: Pool,
    time_limit_s: float,
    on_progress: Callable[[DrawProgress], None] = lambda _progress: None,
    can_run: Callable[[Schedule], bool] = lambda _schedule: True,
) -> Assessment:
    """Assess a schedule over drawn costs, and search for better ones.

    Args:
        schedule: A schedule with actions, for the graph of ``draws``.
        draws: The drawn costs.
        seed: Seed of the draws, copied to the result.
        options: Options that the schedule was searched with.
        pool: Where the searches run.
        time_limit_s: Limit on wall time; Ctrl-C ends the search, too.
        on_progress: Called with the state of the search.
        can_run: Whether a schedule that was found can run; others are not chosen, and not compared
            with. ``schedule`` can.

    Returns:
        The assessment, by the searches that did not fail.

    Raises:
        EngineUnavailable: The engine could not be started.
        RefereeError: A schedule is invalid, which is a defect.
    """
    started = time.monotonic()
    searches: _DrawSearches | None = None
    try:
        with stops_put_off():
            search = DrawSearch(schedule, draws, options, time_limit_s, can_run)
            searches = _DrawSearches(search, pool)
        searches.run(started, time_limit_s, on_progress)
    except KeyboardInterrupt:
        if searches is None:
            raise
    ended = searches

    def finished() -> Assessment:
        ended.take_done()
        found = _assessment(ended.search, options.gap, seed, time.monotonic() - started)
        return replace(found, notes=ended.notes)

    return done_in_any_case(finished)


@dataclass
class _DrawSearches:
    """The searches at drawn costs that run in a pool, and why others have failed."""

    search: DrawSearch
    pool: Pool
    _running: dict[Future[Schedule], DrawTask] = field(default_factory=dict)
    _failures: list[str] = field(default_factory=list)

    def run(
        self, started: float, time_limit_s: float, on_progress: Callable[[DrawProgress], None]
    ) -> None:
        """Search until nothing useful is left or the limit has passed, or the pool has failed."""
        search, running = self.search, self._running
        while True:
            remaining_s = started + time_limit_s - time.monotonic()
            while remaining_s > search.shortest_s and len(running) < self.pool.width():
                if (task := search.next_task()) is None:
                    break
                try:
                    running[task.submit(self.pool, remaining_s)] = task
                except EngineFailed as error:
                    self._failures.append(str(error))
                    return
            if not running or remaining_s <= -_GRACE_S:
                return
            wait(running, min(_REPORT_S, remaining_s + _GRACE_S), FIRST_COMPLETED)
            self.take_done()
            on_progress(search.progress(time.monotonic() - started))

    def take_done(self) -> None:
        """Record the results of the searches that have ended."""
        for future in [future for future in self._running if future.done()]:
            with stops_put_off():
                task = self._running.pop(future)
                try:
                    found = outcome_of(future)
                except EngineUnavailable:
                    raise
                except EngineFailed as error:
                    self._failures.append(str(error))
                    self.search.drop()
                else:
                    self.search.take(task, found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the schedule must know of searches that failed."""
        reasons = dict.fromkeys(self._failures)
        return tuple(
            f"a search at drawn costs failed, the others count: {each}" for each in reasons
        )


def draws_limit_s(options: SolverOptions) -> float:
    """Time limit of the draws: that of the search, or 300 s."""
    return _TIME_LIMIT_S if options.time_limit_s is None else options.time_limit_s


def assess_robustness(
    schedule: Schedule,
    draws: CostDraws,
    options: SolverOptions,
    robust: bool,
    on_progress: Callable[[DrawProgress], None] = lambda _progress: None,
    can_run: Callable[[Schedule], bool] = lambda _schedule: True,
) -> Schedule:
    """Assess a schedule over drawn costs and choose between least energy and best on average.

    Args:
        schedule: A schedule with actions, for the graph of ``draws``.
        draws: Costs drawn with :data:`DRAWS_SEED`.
        options: Options that the schedule was searched with; one process is used for each thread.
        robust: Whether to return the schedule that is best on average, if one is known.
        on_progress: Called with the state of the search.
        can_run: Whether a schedule that was found can run, as in :func:`assess`.

    Returns:
        The chosen schedule with its ``robustness``. It may be better than ``schedule``. A note says
        which searches failed.

    Raises:
        EngineUnavailable: The engine could not be started.
        RefereeError: A schedule is invalid, which is a defect.
    """
    with local_pool(options.threads) as pool:
        limit_s = draws_limit_s(options)
        found = assess(schedule, draws, DRAWS_SEED, options, pool, limit_s, on_progress, can_run)
    robustness, chosen = found.robustness, found.least_energy
    if robust and found.best_on_average is not None:
        chosen = found.best_on_average
        robustness = robustness.model_copy(update={"schedule": "best_on_average"})
    order = draws.items.graph.order
    if not class_of(schedule, order).includes(class_of(chosen, order)):
        robustness = _without_bounds(robustness)
    notes = (*chosen.notes, *found.notes)
    return chosen.model_copy(update={"robustness": robustness, "notes": notes})


def _without_bounds(robustness: Robustness) -> Robustness:
    """The statistics without the bounds over draws, which hold for another class of schedules."""

    def unproven(statistics: DrawStatistics) -> DrawStatistics:
        return statistics.model_copy(update={"provably_within": share_of(0, robustness.draws)})

    best = robustness.best_on_average
    return robustness.model_copy(
        update={
            "mean_bound_j": 0.0,
            "least_energy": unproven(robustness.least_energy),
            "best_on_average": None if best is None else unproven(best),
        }
    )


def _assessment(search: DrawSearch, asked_gap: float, seed: int, seconds: float) -> Assessment:
    evaluation = search.evaluation
    least, best = search.least, _best_on_average(search)
    robustness = Robustness(
        draws=len(search.draws.energy_j),
        seed=seed,
        tolerance=TOLERANCE,
        least_energy=_over_draws(search, least),
        best_on_average=None if best is None else _over_draws(search, best),
        mean_bound_j=evaluation.proven_mean_j,
        solved_draws=search.solved,
        schedules=len(evaluation.schedules),
        seconds=seconds,
    )
    return Assessment(
        robustness,
        _at_stated_costs(search, evaluation.schedules[least], asked_gap),
        None if best is None else _at_stated_costs(search, evaluation.schedules[best], asked_gap),
    )


def _best_on_average(search: DrawSearch) -> int | None:
    """Row of the schedule that is best on average, None if all are late too often.

    Of equally good schedules it is the one of least energy, or else the one found first.
    """
    evaluation = search.evaluation
    means_j = evaluation.energies_j.mean(axis=1)
    found: int | None = None
    rows = range(len(evaluation.schedules))
    for row in (search.least, *rows):
        if search.is_late_too_often(row) or search.is_late(evaluation.schedules[row]):
            continue
        if found is None or means_j[row] < means_j[found] * (1 - 1e-9):
            found = row
    return found


def _at_stated_costs(search: DrawSearch, other: Schedule, asked_gap: float) -> Schedule:
    """Combine the bound of the assessed schedule, which holds for all, with another's actions."""
    assessed = search.schedule
    if other is assessed:
        return other
    graph, budget = search.draws.items.graph, assessed.budget
    result = verify(graph, other.actions, budget)
    claims = claims_of(assessed, graph.order)
    return assessed.model_copy(
        update={
            "energy_j": result.energy_j,
            "time_s": result.time_s,
            "peak_bytes": result.peak_bytes,
            "arena_bytes": other.arena_bytes,
            "arena_bound_bytes": other.arena_bound_bytes,
            "bytes_written_to_storage": result.bytes_written_to_storage,
            "resident_address": other.resident_address,
            "actions": other.actions,
            **proven_of(claims, budget, graph.order, other.actions, result.energy_j, asked_gap),
        }
    )


def _over_draws(search: DrawSearch, row: int) -> DrawStatistics:
    evaluation = search.evaluation
    stated_j, _ = search.draws.items.costs()
    regrets = evaluation.regrets(row)
    in_time = regrets[~np.isnan(regrets)]
    counts = search.draws.items.counts(evaluation.schedules[row].actions)
    return DrawStatistics(
        energy_j=float(counts @ stated_j),
        mean_energy_j=float(evaluation.energies_j[row].mean()),
        within=_share(evaluation.within(row, TOLERANCE, evaluation.best_known_j)),
        provably_within=_share(evaluation.within(row, TOLERANCE, evaluation.proven_j)),
        mean_regret=float(in_time.mean()) if in_time.size else None,
        regret_95=float(np.quantile(in_time, 0.95)) if in_time.size else None,
        in_time=None
        if search.schedule.budget.deadline_s is None
        else _share(evaluation.on_time[row]),
        regrets=tuple(None if np.isnan(regret) else float(regret) for regret in regrets),
    )


def share_of(count: int, draws: int) -> Share:
    """Share of ``count`` in ``draws``, with its 95 % interval."""
    from scipy.stats import binomtest

    interval = binomtest(count, draws).proportion_ci(method="wilson")
    return Share(value=count / draws, low=float(interval.low), high=float(interval.high))


def _share(hits: BoolArray) -> Share:
    return share_of(int(hits.sum()), len(hits))
