"""The objective of a program, in units that suit engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from solver.formulations.memory import MemoryScale
from solver.problem.graph import PageCost
from solver.problem.problem import Problem

Objective: TypeAlias = Literal["energy", "time", "memory"]

# Scaled cost of computing every op once. Engines have absolute tolerances, and a step may take only
# 1e-4 J.
_SCALED_LEAST_COST = 1000.0


@dataclass(frozen=True)
class ScaledCosts:
    """Costs in units of ``unit`` joules, seconds that count against a deadline, or bytes.

    ``op``, ``page_out`` and ``page_in`` are the costs of computing each op and moving each tensor
    once, all 0 if memory is minimised. ``constant`` is the cost of computing every op once, in
    joules or seconds, and is not part of any column. All sizes are multiples of ``grain_bytes``.
    """

    minimise: Objective
    op: Sequence[float]
    page_out: Sequence[float]
    page_in: Sequence[float]
    unit: float
    constant: float
    grain_bytes: int

    @property
    def second(self) -> float:
        """Scaled cost of one second; 0 unless time is minimised."""
        return 1.0 / self.unit if self.minimise == "time" else 0.0

    def value(self, objective: float) -> float:
        """Convert the program's objective to joules, seconds or bytes."""
        return self.constant + objective * self.unit

    def bound(self, objective: float) -> float:
        """Convert a lower bound on the objective to joules, seconds or bytes.

        Bytes are rounded up to a multiple of the grain.
        """
        value = self.value(objective)
        if self.minimise != "memory":
            return value
        tolerance = 1e-5 * self.unit
        return math.ceil((value - tolerance) / self.grain_bytes) * self.grain_bytes


def scale_costs(problem: Problem, minimise: Objective, memory: MemoryScale) -> ScaledCosts:
    """Choose the unit of the objective and scale the costs to it."""
    graph = problem.graph
    match minimise:
        case "energy":
            op = [op.energy_j for op in graph.ops]
            page_out = [_energy_j(tensor.page_out) for tensor in graph.tensors]
            page_in = [_energy_j(tensor.page_in) for tensor in graph.tensors]
            constant = problem.least_energy_j
        case "time":
            op = [op.time_s for op in graph.ops]
            page_out, page_in = problem.page_out_due_s, problem.page_in_due_s
            constant = problem.least_time_s
        case "memory":
            op = [0.0] * len(graph.ops)
            page_out = page_in = [0.0] * len(graph.tensors)
            constant = 0.0
    if minimise == "memory":
        unit = memory.unit_bytes
    else:
        # If computing costs nothing, paging determines the scale.
        least = constant or max((*page_out, *page_in), default=0.0)
        unit = least / _SCALED_LEAST_COST or 1.0
    return ScaledCosts(
        minimise=minimise,
        op=[cost / unit for cost in op],
        page_out=[cost / unit for cost in page_out],
        page_in=[cost / unit for cost in page_in],
        unit=unit,
        constant=constant,
        grain_bytes=memory.grain_bytes,
    )


def _energy_j(cost: PageCost | None) -> float:
    return 0.0 if cost is None else cost.energy_j
