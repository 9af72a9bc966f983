"""``Formulation``: the protocol of a program whose solutions can be converted to schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from solver.engines.program import Program
from solver.formulations.deadline import DeadlineRows
from solver.formulations.memory import MemoryRows
from solver.formulations.scaled_costs import ScaledCosts
from solver.problem.schedule import Action


class Formulation(Protocol):
    """A program of one problem.

    ``costs`` converts its objective to energy, time or memory. ``restrictions`` lists the schedules
    that it excludes, which its bound does not cover. ``memory`` and ``deadline`` are rows that can
    be tightened if an engine violates them within its tolerance.
    """

    program: Program
    costs: ScaledCosts
    memory: MemoryRows
    deadline: DeadlineRows

    @property
    def restrictions(self) -> tuple[str, ...]: ...

    def decode(self, values: Sequence[float]) -> tuple[Action, ...]:
        """Convert a solution to a schedule."""
        ...

    def encode(self, actions: Sequence[Action]) -> list[float] | None:
        """Convert a schedule to a solution; None if the program excludes it."""
        ...

    def add_memory_cuts(self, values: Sequence[float], ram_bytes: int, per_stage: int) -> bool:
        """Add memory rows that a (possibly fractional) solution violates.

        At most ``per_stage`` rows are added for a stage. Returns whether any was added; a program
        with complete rows adds none.
        """
        ...
