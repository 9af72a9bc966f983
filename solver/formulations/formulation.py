"""What the search needs of a formulation: a program, and the way between its solutions and
schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from solver.engines.program import Program
from solver.problem.schedule import Action


class Formulation(Protocol):
    """``unit`` is what one unit of the program's objective is worth (joules, seconds or bytes) and
    ``constant`` what is to be added to it; ``restrictions`` say which schedules it leaves out, so
    that its bound does not cover them."""

    program: Program
    unit: float
    constant: float

    @property
    def restrictions(self) -> tuple[str, ...]: ...

    def value(self, objective: float) -> float:
        """Of the program's objective, in joules, seconds or bytes."""
        ...

    def bound(self, objective: float) -> float:
        """What a lower bound on the program's objective proves, in joules, seconds or bytes."""
        ...

    def actions(self, values: Sequence[float]) -> tuple[Action, ...]:
        """The schedule of a solution."""
        ...

    def values_of(self, actions: Sequence[Action]) -> list[float] | None:
        """The solution that does what ``actions`` do, None if the program has none."""
        ...

    def memory_cuts(self, values: Sequence[float], ram_bytes: int, per_stage: int) -> bool:
        """Add rows that a solution (a fractional one too) violates because RAM is over
        ``ram_bytes``; True if there were any. A program whose rows are complete has none."""
        ...

    def charge_transfers(self, share: float) -> bool:
        """Where transfers can run beside ops, count on less of it: at least ``share`` of their time
        counts against the deadline. False where all of it counts already. What follows is no longer
        exact."""
        ...

    def tighten_memory(self, excess_bytes: int) -> None:
        """Rule out a solution that used the engine's tolerance by this much."""
        ...

    def tighten_deadline(self, excess_s: float) -> None:
        """The same for the deadline."""
        ...
