"""Rows for the RAM budget in a program."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from solver.engines.program import Program, Terms


@dataclass(frozen=True)
class MemoryScale:
    """Unit of the memory rows.

    All sizes are multiples of ``grain_bytes``. One unit in a row is ``unit_bytes``: one grain, or
    more if a budget would be more than 10,000 units. A violation by one grain is then above the
    engines' feasibility tolerance of 1e-6 if the budget has fewer than 10¹⁰ grains. In a budget
    with more, engines may miss it by some; the search then tightens the rows and proves no bound.
    """

    grain_bytes: int
    unit_bytes: float

    def whole_grains(self, limit_bytes: int) -> int:
        """Largest multiple of the grain within ``limit_bytes``."""
        return limit_bytes // self.grain_bytes * self.grain_bytes


def scale_memory(ram_bytes: int, sizes: Iterable[int]) -> MemoryScale:
    """Choose the unit for a budget of ``ram_bytes`` and all ``sizes`` (bytes) that count."""
    grain_bytes = math.gcd(*sizes) or 1
    return MemoryScale(grain_bytes, grain_bytes * max(1.0, ram_bytes // grain_bytes / 1e4))


class MemoryRows:
    """The memory rows of a program, which can be tightened."""

    def __init__(self, program: Program, scale: MemoryScale) -> None:
        self._program = program
        self.scale = scale
        self._rows: list[int] = []

    def add(self, terms: Terms, most_bytes: int) -> None:
        """Limit ``terms``, in units of the scale, to ``most_bytes``."""
        self._rows.append(len(self._program.rows))
        self._program.row(terms, "<", most_bytes / self.scale.unit_bytes)

    def tighten(self, excess_bytes: int) -> None:
        """Exclude a solution over the budget by ``excess_bytes`` within the engine's tolerance.

        Later bounds are not proven.
        """
        for row in self._rows:
            excess = (excess_bytes + self.scale.grain_bytes) / self.scale.unit_bytes
            self._program.tighten(row, excess)
