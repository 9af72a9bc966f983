"""What the search needs of a formulation: a program, and the way between its solutions and
schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from solver.engines.program import Program
from solver.formulations.deadline import DeadlineRows
from solver.formulations.memory import MemoryRows
from solver.formulations.scaled_costs import ScaledCosts
from solver.problem.schedule import Action


class Formulation(Protocol):
    """A program of one problem. ``costs`` say what its objective stands for, ``restrictions`` which
    schedules it leaves out, so that its bound does not cover them. ``memory`` and ``deadline`` are
    the rows that an engine may violate within its tolerance, and that can be tightened then."""

    program: Program
    costs: ScaledCosts
    memory: MemoryRows
    deadline: DeadlineRows

    @property
    def restrictions(self) -> tuple[str, ...]: ...

    def decode(self, values: Sequence[float]) -> tuple[Action, ...]:
        """The schedule of a solution."""
        ...

    def encode(self, actions: Sequence[Action]) -> list[float] | None:
        """The solution that does what ``actions`` do, None if the program has none."""
        ...

    def add_memory_cuts(self, values: Sequence[float], ram_bytes: int, per_stage: int) -> bool:
        """Add rows that a solution (a fractional one too) violates because RAM is over
        ``ram_bytes``; True if there were any. A program whose rows are complete has none."""
        ...
