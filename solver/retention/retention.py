"""The *retention* formulation (Moccasin, Bartan et al., ICML 2023) searched by OR-tools CP-SAT.

The model is that of ``solver.retention.model``. Its optimum is that of the compact formulation
where no more intervals are needed than it may have, and where it does not pay to bring a tensor
back from storage that was freed since the last first execution: only here that may be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from solver.engines.engine import EngineProcess
from solver.engines.messages import Bound, Finished
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.referee import RefereeError, verify
from solver.retention.messages import Found, Task
from solver.search.search import Ending, Progress, Search

# C of the paper.
INTERVALS = 2


def restrictions_of(problem: Problem, intervals: int = INTERVALS) -> tuple[str, ...]:
    """What the bound leaves out."""
    named = [
        "first executions keep the graph's order",
        "between two first executions each op is recomputed at most once, in the graph's order",
        f"each op is computed at most {intervals} times",
        f"a tensor that is needed comes into RAM at most {intervals} times",
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
    """Search for the least energy in joules, or the least time that counts against a deadline in
    seconds, among the schedules that :func:`restrictions_of` describes.

    ``on_actions`` gets better and better schedules, all verified; ``on_bound`` gets what is proven,
    in the objective's unit; ``on_version`` the engine's name and version. ``starts`` are schedules
    to begin with, used where they fit. The search ends when proven within ``gap``, relative to the
    value (what costs lose by being made whole, a part in 10⁹ at most, does not count), at
    ``deadline`` on ``time.monotonic``, or with Ctrl-C.

    Raises ``EngineFailed``, and ``RefereeError`` if a
    schedule proved wrong, which is a defect.
    """
    if intervals < 1:
        raise ValueError(f"intervals: {intervals}; a tensor needs at least 1")
    standing = _Standing(problem, objective, gap)
    fitting: list[tuple[float, tuple[Action, ...]]] = []
    for start in starts:
        with suppress(RefereeError):
            fitting.append((standing.offer(start), start))
    fitting.sort(key=lambda pair: pair[0])
    best_first = tuple(start for _, start in fitting)
    try:
        with EngineProcess("cp-sat", "solver.retention.worker") as engine:
            engine.send(Task(problem, objective, intervals, threads, best_first))
            for message in engine.messages(deadline):
                on_version(engine.version)
                match message:
                    case Found():
                        standing.offer(message.actions)
                        on_actions(message.actions)
                    case Bound():
                        standing.bound = max(standing.bound, message.objective)
                        on_bound(message.objective)
                    case Finished(outcome="optimal"):
                        return "proven"
                    case Finished(outcome="infeasible"):
                        return "infeasible"
                if standing.proven:
                    return "proven"
    except KeyboardInterrupt:
        return "interrupted"
    return "time_limit" if time.monotonic() >= deadline else "spent"


@dataclass
class _Standing:
    """The best value and the bound so far."""

    problem: Problem
    objective: Literal["energy", "time"]
    gap: float
    value: float = float("inf")
    bound: float = float("-inf")

    def offer(self, actions: tuple[Action, ...]) -> float:
        """The value of ``actions``. Raises :class:`RefereeError` if they are not valid."""
        result = verify(self.problem.graph, actions, self.problem.budget)
        energy = self.objective == "energy"
        value = result.energy_j if energy else result.time_due_s(self.problem.budget)
        self.value = min(self.value, value)
        return value

    @property
    def proven(self) -> bool:
        found = self.value < float("inf")
        return found and self.value - self.bound <= self.gap * abs(self.value)


def search_retention(search: Search, deadline: float) -> Ending:
    """Solve the problem of ``search``, whose objective is energy, with retention intervals instead
    of a program. What restrictions leave no schedule for may have one: that ends as ``spent``."""
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
        search.bound = max(search.bound or 0.0, bound)
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
