"""Search with the *retention* formulation (Moccasin, Bartan et al., ICML 2023) by OR-tools CP-SAT.

The model is that of ``solver.retention.model``. Its optimum equals that of the compact formulation
if it needs no more intervals than allowed, and if it does not pay to page in a tensor again that
was freed since the last first execution, which only this formulation allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from solver.engines.engine import EngineProcess
from solver.engines.messages import Bound, Finished
from solver.problem.claims import GIVEN_ORDER
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.referee import RefereeError, verify
from solver.retention.messages import Found, Task
from solver.search.search import Ending, Progress, Search

# Most retention intervals of a tensor, C of the paper.
INTERVALS = 2
# Relative difference between value and bound that the rounding of costs to integers may leave.
_ROUNDING = 1e-9


def restrictions_of(problem: Problem, intervals: int = INTERVALS) -> tuple[str, ...]:
    """Restrictions of the schedules that the bound covers."""
    named = [
        GIVEN_ORDER,
        "between two first executions each op is recomputed at most once, in the graph's order",
        f"each op is computed at most {intervals} times",
        f"a tensor that is needed is in RAM at most {intervals} times, of which being there when"
        " the step begins is one",
    ]
    if problem.overlaps:
        named.append("transfers do not run beside ops")
    return tuple(named)


def solve_retention(
    problem: Problem,
    *,
    objective: Literal["energy", "time"],
    gap: float,
    threads: int,
    deadline: float,
    starts: Sequence[tuple[Action, ...]],
    on_actions: Callable[[tuple[Action, ...]], None],
    on_bound: Callable[[float], None],
    intervals: int = INTERVALS,
    on_version: Callable[[str], None] = lambda _version: None,
) -> Ending:
    """Search for the least energy or time among the schedules of :func:`restrictions_of`.

    The search ends when proven within ``gap``, at ``deadline``, or with Ctrl-C.

    Args:
        problem: The problem.
        objective: Energy in joules, or time in seconds that counts against a deadline.
        gap: Accepted distance from the bound, relative to the value. Rounding of costs to integers,
            at most a part in 10⁹, is not counted.
        threads: Number of threads.
        deadline: End of the search, on ``time.monotonic``.
        starts: Start schedules; only those that fit are used.
        on_actions: Called with each better schedule, verified.
        on_bound: Called with each better bound, in the objective's unit.
        intervals: Most retention intervals of a tensor.
        on_version: Called with the engine's name and version.

    Returns:
        How the search ended.

    Raises:
        EngineFailed: The process of the engine failed.
        RefereeError: A schedule is invalid, which is a defect.
    """
    if intervals < 1:
        raise ValueError(f"intervals is {intervals}, but a tensor needs at least 1")
    best = _BestSoFar(problem, objective, gap)
    fitting: list[tuple[float, tuple[Action, ...]]] = []
    for start in starts:
        with suppress(RefereeError):
            fitting.append((best.offer(start), start))
    fitting.sort(key=lambda pair: pair[0])
    best_first = tuple(start for _, start in fitting)
    try:
        while True:
            known = best.value
            known_first = () if best.actions is None else (best.actions,)
            starts = (*known_first, *best_first)
            task = Task(problem, objective, intervals, threads, starts, known)
            ending = _run(task, best, deadline, on_actions, on_bound, on_version)
            if ending != "proven" or best.is_within(max(gap, _ROUNDING)) or best.value >= known:
                break
            # The unit of costs is coarse for the schedule found: search again with a finer one.
    except KeyboardInterrupt:
        return "interrupted"
    if ending is not None:
        return ending
    return "time_limit" if time.monotonic() >= deadline else "spent"


def _run(
    task: Task,
    best: _BestSoFar,
    deadline: float,
    on_actions: Callable[[tuple[Action, ...]], None],
    on_bound: Callable[[float], None],
    on_version: Callable[[str], None],
) -> Ending | None:
    """Search once; None if the engine ended without a proof."""
    with EngineProcess("cp-sat", "solver.retention.worker") as engine:
        engine.send(task)
        for message in engine.messages(deadline):
            on_version(engine.version)
            match message:
                case Found():
                    best.offer(message.actions)
                    on_actions(message.actions)
                case Bound():
                    best.bound = max(best.bound, message.objective)
                    on_bound(message.objective)
                case Finished(outcome="optimal"):
                    return "proven"
                case Finished(outcome="infeasible"):
                    return "infeasible"
            if best.proven:
                return "proven"
    return None


@dataclass
class _BestSoFar:
    """The best value and the bound so far."""

    problem: Problem
    objective: Literal["energy", "time"]
    gap: float
    actions: tuple[Action, ...] | None = None
    value: float = float("inf")
    bound: float = float("-inf")

    def offer(self, actions: tuple[Action, ...]) -> float:
        """Record and return the value of ``actions``. Raises :class:`RefereeError` if invalid."""
        result = verify(self.problem.graph, actions, self.problem.budget)
        energy = self.objective == "energy"
        value = result.energy_j if energy else result.time_due_s(self.problem.budget)
        if value < self.value:
            self.value, self.actions = value, actions
        return value

    @property
    def proven(self) -> bool:
        return self.is_within(self.gap)

    def is_within(self, gap: float) -> bool:
        """Whether the value is within ``gap`` of the bound, relative to the value."""
        found = self.value < float("inf")
        return found and self.value - self.bound <= gap * abs(self.value)


def search_retention(search: Search, deadline: float) -> Ending:
    """Solve the problem of ``search``, whose objective is energy, with retention intervals.

    A problem that is infeasible under the restrictions may be feasible without them, so the search
    then ends as ``spent``.
    """
    began = time.monotonic()
    search.restrictions = restrictions_of(search.problem)
    search.rounds += 1

    def report() -> None:
        seconds = time.monotonic() - began
        search.on_progress(Progress(seconds, search.rounds, search.value, search.bound))

    def take(actions: tuple[Action, ...]) -> None:
        search.offer(actions)
        report()

    def raise_bound(bound: float) -> None:
        if bound > (search.bound or 0.0):
            search.bound, search.by = bound, "constraint program"
        report()

    def name(version: str) -> None:
        search.engine_version = version

    ending = solve_retention(
        search.problem,
        objective="energy",
        gap=search.options.gap,
        threads=search.options.threads,
        deadline=deadline,
        starts=() if search.actions is None else (search.actions,),
        on_actions=take,
        on_bound=raise_bound,
        on_version=name,
    )
    return "spent" if ending == "infeasible" else ending
