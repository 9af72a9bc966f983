"""Sweeps over budgets for one or several graphs, in which each point uses the results of others.

Points of one graph and deadline form a chain, solved in ascending order of RAM, so that each search
starts with a schedule that is valid for it. If more workers than chains are available, an idle
worker takes over the upper half of the longest chain.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from devices.program import stops_put_off
from solver.baselines.baseline import BaselineResult
from solver.constructed.greedy import greedy_schedule
from solver.options import SolverOptions
from solver.pools import Pool, outcome_of
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Budget, Schedule
from solver.referee.referee import replay
from solver.solving.shared_ram import SharedRam, solve_in_shared_ram
from solver.solving.solving import solve_graph
from solver.sweep.frontier import Frontier


@dataclass(frozen=True)
class Study:
    """One graph of a sweep.

    ``budgets`` are to be solved, ``known`` are schedules of it from earlier sweeps, and
    ``baselines`` are names of baselines to run, with their budgets. ``ram`` is that of a board on
    which schedules share it with records of the firmware.
    """

    name: str
    graph: CostedGraph
    budgets: Sequence[Budget]
    known: Sequence[Schedule] = ()
    baselines: Sequence[tuple[str, Budget]] = ()
    ram: SharedRam | None = None

    @property
    def things(self) -> int:
        """Number of points and baselines to solve."""
        return len(self.budgets) + len(self.baselines)


@dataclass(frozen=True)
class PointSolved:
    """The schedule of a solved point, followed by those of other points that it improved."""

    study: Study
    schedules: Sequence[Schedule]


@dataclass(frozen=True)
class BaselineRun:
    """The result of a baseline under one budget."""

    study: Study
    name: str
    budget: Budget
    result: BaselineResult


Event: TypeAlias = PointSolved | BaselineRun


def sweep(
    studies: Sequence[Study],
    options: SolverOptions,
    pool: Pool,
    keep: Callable[[Event], None],
) -> None:
    """Solve every point of every study, then run the baselines.

    Baselines also run earlier if no point is left for a worker. What has finished is kept also if
    a search failed or Ctrl-C came meanwhile, which waits until ``keep`` returns.

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
    run = _Sweep(
        options=options,
        pool=pool,
        keep=keep,
        chains=[chain for study in studies for chain in _chains(study, options.gap)],
        baselines=deque((study, *each) for study in studies for each in study.baselines),
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
    baselines: deque[tuple[Study, str, Budget]]
    points: dict[Future[tuple[Schedule, ...]], tuple[_Chain, Budget]] = field(default_factory=dict)
    runs: dict[Future[BaselineResult], tuple[Study, str, Budget]] = field(default_factory=dict)

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
        """Begin the next point or baseline. Returns whether one was left."""
        chain = _idle(self.chains)
        if chain is not None:
            budget = chain.budgets.popleft()
            inferred = chain.frontier.without_search(budget)
            if inferred is not None:
                self._keep(PointSolved(chain.study, chain.frontier.add(inferred)))
                return True
            chain.busy = True
            future = _submit_point(self.pool, chain, budget, self.options)
            self.points[future] = chain, budget
        elif self.baselines:
            study, name, budget = self.baselines.popleft()
            run = _submit_baseline(self.pool, study, name, budget, self.options)
            self.runs[run] = study, name, budget
        else:
            return False
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
                        self.keep(BaselineRun(*self.runs[future], outcome_of(future)))
                        del self.runs[future]
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


def _chains(study: Study, gap: float) -> Iterator[_Chain]:
    """Chains of a study, longest deadline first.

    Its proofs hold for shorter deadlines, and its schedules may be fast enough for them.
    """
    frontier = Frontier(study.graph, gap)
    for schedule in study.known:
        frontier.add(schedule)

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
    study, start = chain.study, chain.frontier.start(budget)
    return pool.submit(_solve_point, study.graph, budget, options, study.ram, start)


def _solve_point(
    graph: CostedGraph,
    budget: Budget,
    options: SolverOptions,
    ram: SharedRam | None,
    start: tuple[Action, ...] | None,
) -> tuple[Schedule, ...]:
    """Solve one point, on a worker; the schedules are those of ``solve_in_shared_ram``.

    A start within the gap would end the search at once and leave the curve flat. It is therefore
    accompanied by a greedy schedule, which may be better.
    """
    starts = [] if start is None else [start]
    problem = Problem(graph, budget)
    if start is not None and (
        replay(graph, start, budget.covers).energy_j * (1 - options.gap) <= problem.least_energy_j
    ):
        rival = greedy_schedule(problem)
        starts += [] if rival is None else [rival]

    def find(within: Budget, seconds: float | None) -> Schedule:
        limited = replace(options, time_limit_s=seconds)
        return solve_graph(graph, within, limited, starts=starts)

    return solve_in_shared_ram(find, budget, options.time_limit_s, ram)


def _submit_baseline(
    pool: Pool, study: Study, name: str, budget: Budget, options: SolverOptions
) -> Future[BaselineResult]:
    limit_s = math.inf if options.time_limit_s is None else options.time_limit_s
    return pool.submit(_run_baseline, name, Problem(study.graph, budget), limit_s)


def _run_baseline(name: str, problem: Problem, limit_s: float) -> BaselineResult:
    from solver.baselines.registry import run_baseline  # some baselines import large libraries

    return run_baseline(name, problem, limit_s)
