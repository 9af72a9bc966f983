"""Search options, and the tensors that a RAM budget covers.

This module imports nothing of the project, so that the command line can list the choices quickly.
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
    """Options of one search.

    Attributes:
        formulation: Method to use; ``auto`` combines annealing with bounds from integer programs.
        order: Whether first executions of ops keep the graph's order; ``auto`` tries other orders
            where that lowers the energy.
        engine: Solver of integer programs.
        gap: Accepted distance between energy and bound, relative to the schedule's energy.
        threads: Number of threads.
        time_limit_s: Limit on wall time; None for no limit.
        addresses: Whether to plan an arena address for everything in RAM. Without addresses, RAM is
            a sum of bytes, as in the published methods; fragmentation may then exceed the budget.
    """

    formulation: FormulationName = "auto"
    order: Order = "auto"
    engine: EngineName = "highs"
    gap: float = 0.001
    threads: int = 2
    time_limit_s: float | None = None
    addresses: bool = True
