"""How to search."""

from __future__ import annotations

from dataclasses import dataclass

from solver.engine import EngineName


@dataclass(frozen=True)
class SolverOptions:
    """``gap`` is relative to the schedule's energy; ``time_limit_s`` is wall time, or None."""

    engine: EngineName = "highs"
    gap: float = 0.001
    threads: int = 2
    time_limit_s: float | None = None
