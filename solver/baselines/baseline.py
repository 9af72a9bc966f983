"""What every baseline is given and gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.referee import RefereeError, replay, verify


@dataclass(frozen=True)
class BaselineResult:
    """``actions`` keep to the budget, or are None; ``note`` says which variant they are of, or why
    there are none. Methods that choose addresses as they go give the bytes of the arena that they
    used, and ``fragmentation``: the largest share of the arena that was free and of no use."""

    actions: tuple[Action, ...] | None
    note: str
    arena_bytes: int | None = None
    fragmentation: float | None = None


# Given a problem and how long it may take, in seconds of wall time.
Baseline: TypeAlias = Callable[[Problem, float], BaselineResult]


def judged(problem: Problem, actions: tuple[Action, ...], note: str) -> BaselineResult:
    """``actions`` if they keep to the budget, else what they break in it.

    Raises ``RefereeError`` if they break the semantics, which is a defect.
    """
    _, broken = _energy_or_fault(problem, actions)
    return BaselineResult(actions, note) if broken is None else BaselineResult(None, broken.reason)


def cheapest(
    problem: Problem,
    candidates: Iterable[tuple[str, tuple[Action, ...]]],
    time_limit_s: float,
    nothing: str,
) -> BaselineResult:
    """The candidate (a note, actions) of least energy that keeps to the budget; with none, what the
    one that comes closest breaks in it, or ``nothing`` where there are no candidates. After the
    time limit no more are tried, which the note says.

    Raises ``RefereeError`` if one breaks the semantics, which is a defect.
    """
    deadline = time.monotonic() + time_limit_s
    best: tuple[float, str, tuple[Action, ...]] | None = None
    nearest: tuple[float, str] = (float("inf"), nothing)
    remark = ""
    for note, actions in candidates:
        if time.monotonic() > deadline:
            remark = f" (not every variant was tried in {time_limit_s:g} s)"
            break
        energy_j, broken = _energy_or_fault(problem, actions)
        if broken is None:
            if best is None or energy_j < best[0]:
                best = energy_j, note, actions
        elif broken.excess_bytes < nearest[0]:
            nearest = broken.excess_bytes, f"{note}: {broken.reason}"
    if best is None:
        return BaselineResult(None, nearest[1] + remark)
    return BaselineResult(best[2], best[1] + remark)


@dataclass(frozen=True)
class _Fault:
    excess_bytes: float
    reason: str


def _energy_or_fault(problem: Problem, actions: tuple[Action, ...]) -> tuple[float, _Fault | None]:
    budget = problem.budget
    result = replay(problem.graph, actions, budget.covers)
    excess = result.peak_bytes - budget.ram_bytes
    if excess > 0:
        share = f" ({100 * excess / budget.ram_bytes:.1f} %)" if budget.ram_bytes else ""
        reason = f"needs {result.peak_bytes} bytes, {excess}{share} over the budget"
        return result.energy_j, _Fault(excess, reason)
    try:
        verify(problem.graph, actions, budget)
    except RefereeError as error:
        return result.energy_j, _Fault(0, error.reason)
    return result.energy_j, None


def ladder(most: int, count: int) -> Iterator[int]:
    """Whole numbers from 1 to ``most``, all of them or about ``count`` in a geometric series."""
    last = 0
    for n in range(count):
        number = round(most ** (n / (count - 1))) if count > 1 else most
        number = max(number, last + 1)
        if number > most:
            return
        yield number
        last = number
    if last < most:
        yield most
