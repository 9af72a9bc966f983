"""How to search, and what a budget covers.

Imports nothing of the project, so that the command line reads the choices at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FormulationName: TypeAlias = Literal["auto", "compact", "poet", "retention"]
Order: TypeAlias = Literal["auto", "given", "free"]
EngineName: TypeAlias = Literal["highs", "cbc", "gurobi"]
Coverage: TypeAlias = Literal["all", "activations"]


@dataclass(frozen=True)
class SolverOptions:
    """``gap`` is relative to the schedule's energy; ``time_limit_s`` is wall time, or None.
    ``order`` says whether first executions keep the graph's order; ``auto`` searches other orders
    where that pays. Without ``addresses`` RAM is a sum of bytes, as the published methods have it:
    such a schedule may not fit into the budget for fragmentation."""

    formulation: FormulationName = "auto"
    order: Order = "auto"
    engine: EngineName = "highs"
    gap: float = 0.001
    threads: int = 2
    time_limit_s: float | None = None
    addresses: bool = True
