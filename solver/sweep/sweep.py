"""Sweeps over budgets for one or several graphs, in which each point uses the results of others.

Baselines run first: their schedules are starts for the points, and no point is worse than one that
is valid for it. Points of one graph and deadline form a chain, solved in ascending order of RAM, so
that each search starts with a schedule that is valid for it. If more workers than chains are
available, an idle worker takes over the upper half of the longest chain.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from devices.program import stops_put_off
from solver.baselines.baseline import BaselineResult, baseline_limit_s
from solver.constructed.greedy import greedy_schedule
from solver.options import SolverOptions
from solver.pools import Pool, outcome_of
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Schedule
from solver.referee.referee import replay
from solver.solving.shared_ram import SharedRam, solve_in_shared_ram
from solver.solving.solving import solve_graph
from solver.sweep.frontier import Frontier, Offer

if TYPE_CHECKING:  # some baselines import large libraries
    from solver.baselines.scheduled import BaselineSchedules


@dataclass(frozen=True)
class Study:
    """One graph of a sweep.

    ``budgets`` are to be solved, ``known`` are schedules of it from earlier sweeps, ``offers`` are
    those of baselines from there, and ``baselines`` are names of baselines to run, with their
    budgets. ``ram`` is that of a board on which schedules share it with records of the firmware.
    """

    name: str
    graph: CostedGraph
    budgets: Sequence[Budget]
    known: Sequence[Schedule] = ()
    offers: Sequence[Offer] = ()
    baselines: Sequence[tuple[str, Budget]] = ()
    ram: SharedRam | None = None

    @property
    def things(self) -> int:
        """Number of points and baselines to solve."""
        return len(self.budgets) + len(self.baselines)

    def can_run(self, schedule: Schedule) -> bool:
        """Whether the board's RAM holds a schedule and what the firmware records of it."""
        use = None if self.ram is None else self.ram.use(schedule)
        return use is None or use.fits


@dataclass(frozen=True)
class PointSolved:
    """The schedule of a solved point, followed by those of other points that it improved."""

    study: Study
    schedules: Sequence[Schedule]


@dataclass(frozen=True)
class BaselineRun:
    """The result of a baseline under one budget.

    ``schedule`` has addresses; its own budget is larger if they take more RAM than the baseline
    counted. ``packed`` is then one like it within the budget, if there is any. ``improved`` are
    points of the study that are better with them. A run that ``failed`` says nothing about the
    baseline.
    """

    study: Study
    name: str
    budget: Budget
    result: BaselineResult
    schedule: Schedule | None = None
    packed: Schedule | None = None
    failed: bool = False
    improved: Sequence[Schedule] = ()


Event: TypeAlias = PointSolved | BaselineRun


def sweep(
    studies: Sequence[Study],
    options: SolverOptions,
    pool: Pool,
    keep: Callable[[Event], None],
) -> None:
    """Run the baselines of every study, then solve its points.

    Points are begun while the last baselines run. What has finished is kept also if a search failed
    or Ctrl-C came meanwhile, which waits until ``keep`` returns.

    Args:
        studies: Graphs with their budgets and baselines.
        options: Search options of each point.
        pool: Where the searches run.
        keep: Called with each finished point or baseline, as good as the results known by then
            allow.

    Raises:
        EngineFailed: The process of an engine or a worker failed.
        RefereeError: A schedule is invalid, which is a defect.
    """
    begun = [(study, _frontier(study, options.gap)) for study in studies]
    run = _Sweep(
        options=options,
        pool=pool,
        keep=keep,
        chains=[chain for each in begun for chain in _chains(*each)],
        baselines=deque(
            _Baseline(study, frontier, name, budget)
            for study, frontier in begun
            for name, budget in study.baselines
        ),
    )
    try:
        run.solve_all()
    except BaseException:
        run.keep_finished()
        raise


@dataclass
class _Sweep:
    """Chains and baselines that are left, and the futures of those that are being solved."""

    options: SolverOptions
    pool: Pool
    keep: Callable[[Event], None]
    chains: list[_Chain]
    baselines: deque[_Baseline]
    points: dict[Future[tuple[Schedule, ...]], tuple[_Chain, Budget]] = field(default_factory=dict)
    runs: dict[Future[BaselineSchedules], _Baseline] = field(default_factory=dict)

    def solve_all(self) -> None:
        while True:
            while len(self.points) + len(self.runs) < max(1, self.pool.width()):
                if not self._begin_next():
                    break
            if not self.points and not self.runs:
                return
            in_flight: list[Future[Any]] = [*self.points, *self.runs]
            wait(in_flight, return_when=FIRST_COMPLETED)
            self._finish()

    def keep_finished(self) -> None:
        """Keep what has finished but for failures."""
        for future in self._done():
            if future.cancelled() or future.exception() is not None:
                self.points.pop(future, None)
                self.runs.pop(future, None)
        self._finish()

    def _begin_next(self) -> bool:
        """Begin the next baseline or point. Returns whether one was left."""
        if self.baselines:
            baseline = self.baselines.popleft()
            self.runs[_submit_baseline(self.pool, baseline, self.options)] = baseline
            return True
        chain = _idle(self.chains)
        if chain is None:
            return False
        budget = chain.budgets.popleft()
        inferred = chain.frontier.without_search(budget)
        if inferred is not None:
            self._keep(PointSolved(chain.study, chain.frontier.add(inferred)))
            return True
        chain.busy = True
        future = _submit_point(self.pool, chain, budget, self.options)
        self.points[future] = chain, budget
        return True

    def _done(self) -> list[Future[Any]]:
        in_flight: list[Future[Any]] = [*self.points, *self.runs]
        return [future for future in in_flight if future.done()]

    def _finish(self) -> None:
        """Keep what has finished. A future stays until its result is kept.

        Raises what has failed first, after all others have been kept.
        """
        failures = []
        for future in self._done():
            try:
                with stops_put_off():
                    if future in self.points:
                        self._finish_point(future)
                    else:
                        self._finish_baseline(future)
            except Exception as error:
                self.points.pop(future, None)
                self.runs.pop(future, None)
                failures.append(error)
        if failures:
            raise failures[0]

    def _finish_point(self, future: Future[tuple[Schedule, ...]]) -> None:
        chain, budget = self.points[future]
        *others, found = outcome_of(future)
        for other in others:
            chain.frontier.learn(other)
        self.keep(PointSolved(chain.study, chain.frontier.add(found, budget)))
        chain.busy = False
        del self.points[future]

    def _finish_baseline(self, future: Future[BaselineSchedules]) -> None:
        baseline = self.runs[future]
        found = outcome_of(future)
        study, frontier = baseline.study, baseline.frontier
        improved = [
            point
            for schedule in (found.own, found.packed)
            if schedule is not None and study.can_run(schedule)
            for point in frontier.offer(Offer(schedule, baseline.name))
        ]
        run = BaselineRun(
            study,
            baseline.name,
            baseline.budget,
            found.result,
            found.own,
            found.packed,
            found.failed,
            improved,
        )
        self.keep(run)
        del self.runs[future]

    def _keep(self, event: Event) -> None:
        with stops_put_off():
            self.keep(event)


@dataclass
class _Chain:
    """Unsolved budgets of one study and deadline, ascending; ``busy`` while one is being solved."""

    study: Study
    frontier: Frontier
    budgets: deque[Budget]
    busy: bool = False


@dataclass(frozen=True)
class _Baseline:
    """A baseline to run under a budget of a study, whose frontier gets its schedule."""

    study: Study
    frontier: Frontier
    name: str
    budget: Budget


def _frontier(study: Study, gap: float) -> Frontier:
    """The frontier of a study, with the schedules of earlier sweeps."""
    frontier = Frontier(study.graph, gap)
    frontier.add_all(study.known)
    for offer in study.offers:
        if study.can_run(offer.schedule):
            frontier.offer(offer)
    return frontier


def _chains(study: Study, frontier: Frontier) -> Iterator[_Chain]:
    """Chains of a study, longest deadline first.

    Its proofs hold for shorter deadlines, and its schedules may be fast enough for them.
    """

    def patience_s(budget: Budget) -> float:
        return math.inf if budget.deadline_s is None else budget.deadline_s

    ordered = sorted(study.budgets, key=lambda b: (-patience_s(b), b.ram_bytes))
    for _, budgets in itertools.groupby(ordered, key=patience_s):
        yield _Chain(study, frontier, deque(budgets))


def _idle(chains: list[_Chain]) -> _Chain | None:
    """A chain with unsolved points that is not busy, or half of the longest if all are busy."""
    chains[:] = [chain for chain in chains if chain.budgets]
    for chain in chains:
        if not chain.busy:
            return chain
    if not chains:
        return None
    longest = max(chains, key=lambda chain: len(chain.budgets))
    lower = len(longest.budgets) // 2
    upper = deque(itertools.islice(longest.budgets, lower, None))
    longest.budgets = deque(itertools.islice(longest.budgets, lower))
    chains.append(_Chain(longest.study, longest.frontier, upper))
    return chains[-1]


def _submit_point(
    pool: Pool, chain: _Chain, budget: Budget, options: SolverOptions
) -> Future[tuple[Schedule, ...]]:
    study, starts = chain.study, chain.frontier.starts(budget)
    return pool.submit(_solve_point, study.graph, budget, options, study.ram, starts)


def _solve_point(
    graph: CostedGraph,
    budget: Budget,
    options: SolverOptions,
    ram: SharedRam | None,
    starts: tuple[tuple[Action, ...], ...],
) -> tuple[Schedule, ...]:
    """Solve one point, on a worker; the schedules are those of ``solve_in_shared_ram``.

    A start within the gap would end the search at once and leave the curve flat. It is therefore
    accompanied by a greedy schedule, which may be better.
    """
    problem = Problem(graph, budget)
    energies_j = [replay(graph, start, budget.covers).energy_j for start in starts]
    if any(energy_j * (1 - options.gap) <= problem.least_energy_j for energy_j in energies_j):
        rival = greedy_schedule(problem)
        starts = starts if rival is None else (*starts, rival)

    def find(within: Budget, seconds: float | None) -> Schedule:
        limited = replace(options, time_limit_s=seconds)
        return solve_graph(graph, within, limited, starts=starts)

    return solve_in_shared_ram(find, budget, options.time_limit_s, ram)


def _submit_baseline(
    pool: Pool, baseline: _Baseline, options: SolverOptions
) -> Future[BaselineSchedules]:
    limit_s = baseline_limit_s(options.time_limit_s)
    problem = Problem(baseline.study.graph, baseline.budget)
    return pool.submit(_run_baseline, baseline.name, problem, limit_s, options.threads)


def _run_baseline(name: str, problem: Problem, limit_s: float, threads: int) -> BaselineSchedules:
    """Run a baseline, on a worker."""
    from solver.baselines.scheduled import schedules_by_baseline

    return schedules_by_baseline(problem, name, limit_s, threads)
