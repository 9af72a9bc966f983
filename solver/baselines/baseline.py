"""Interface of all baselines, and common helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.referee import RefereeError, replay, verify
from solver.time_limit import OutOfTime

TIME_LIMIT_S = 60.0
"""Seconds of wall time of a baseline for which no limit was stated."""


def baseline_limit_s(stated_s: float | None) -> float:
    """Seconds of wall time that a baseline has; ``stated_s`` is None if no limit was stated."""
    return TIME_LIMIT_S if stated_s is None else stated_s


@dataclass(frozen=True)
class BaselineResult:
    """Result of a baseline.

    ``actions`` are within the budget, or None. ``note`` names the variant, or the reason why there
    are no actions. Methods that allocate addresses online report ``arena_bytes``, the bytes of the
    arena that they used, and ``fragmentation``, the largest share of the arena that was free but
    unusable. ``resident_address`` is stated if the actions have addresses, in ``arena_bytes``.
    """

    actions: tuple[Action, ...] | None
    note: str
    arena_bytes: int | None = None
    fragmentation: float | None = None
    resident_address: Mapping[str, int] | None = None


# Takes a problem, a time limit in seconds of wall time, and the number of threads of a search.
Baseline: TypeAlias = Callable[[Problem, float, int], BaselineResult]


def judged(problem: Problem, actions: tuple[Action, ...], note: str) -> BaselineResult:
    """Check ``actions`` against the budget; the result has no actions if they violate it.

    Raises ``RefereeError`` if they violate the semantics, which is a defect.
    """
    _, broken = _energy_or_fault(problem, actions)
    return BaselineResult(actions, note) if broken is None else BaselineResult(None, broken.reason)


def cheapest(
    problem: Problem,
    candidates: Iterable[tuple[str, tuple[Action, ...]]],
    time_limit_s: float,
    nothing: str,
) -> BaselineResult:
    """Choose the candidate (note, actions) of least energy within the budget.

    If none is, the note says how the closest one violates it, or is ``nothing`` without candidates.
    If the enforced time limit, of ``time_limit_s``, passes while a candidate is made, those before
    count, and the note says so.

    Raises ``OutOfTime`` if it passes before the first, and ``RefereeError`` if one violates the
    semantics, which is a defect.
    """
    best: tuple[float, str, tuple[Action, ...]] | None = None
    nearest: tuple[float, str] | None = None
    remark = ""
    try:
        for note, actions in candidates:
            energy_j, broken = _energy_or_fault(problem, actions)
            if broken is None:
                if best is None or energy_j < best[0]:
                    best = energy_j, note, actions
            elif nearest is None or broken.excess_bytes < nearest[0]:
                nearest = broken.excess_bytes, f"{note}: {broken.reason}"
    except OutOfTime:
        if best is None and nearest is None:
            raise
        remark = f" (not every variant was tried in {time_limit_s:.3g} s)"
    if best is not None:
        return BaselineResult(best[2], best[1] + remark)
    return BaselineResult(None, nothing if nearest is None else nearest[1] + remark)


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
    """Integers from 1 to ``most``: all of them, or about ``count`` in a geometric series."""
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
