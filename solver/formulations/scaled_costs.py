"""What a program minimises, in units that suit engines."""

from __future__ import annotations

from solver.problem.graph import PageCost
from solver.problem.problem import Problem

# Computing every op once costs this much: engines have absolute tolerances, and joules can be 1e-4.
_SCALED_LEAST_COST = 1000.0


class ScaledCosts:
    """``op``, ``page_out`` and ``page_in`` are the costs of doing each op and moving each tensor
    once, in units of ``unit`` joules (or seconds that count against a deadline), all 0 where
    neither is minimised; ``constant`` is what computing every op once costs, in joules or
    seconds."""

    def __init__(self, problem: Problem, minimise: str) -> None:
        graph = problem.graph
        op = [0.0] * len(graph.ops)
        page_out = page_in = [0.0] * len(graph.tensors)
        self.constant = 0.0
        if minimise == "energy":
            op = [op.energy_j for op in graph.ops]
            page_out = [_energy_j(tensor.page_out) for tensor in graph.tensors]
            page_in = [_energy_j(tensor.page_in) for tensor in graph.tensors]
            self.constant = problem.least_energy_j
        elif minimise == "time":
            op = [op.time_s for op in graph.ops]
            page_out, page_in = problem.page_out_due_s, problem.page_in_due_s
            self.constant = problem.least_time_s
        # Where computing costs nothing, paging sets the scale.
        least = self.constant or max((*page_out, *page_in), default=0.0)
        self.unit = least / _SCALED_LEAST_COST or 1.0
        self.op = [cost / self.unit for cost in op]
        self.page_out = [cost / self.unit for cost in page_out]
        self.page_in = [cost / self.unit for cost in page_in]


def _energy_j(cost: PageCost | None) -> float:
    return 0.0 if cost is None else cost.energy_j
