"""Lower bounds on the least energy at drawn costs, from bounds proven at other costs.

Every schedule computes every op once, pages in once each tensor that is read and whose home is
storage, and pages out once each tensor that must persist there. Let base(c) be the energy of this
at costs c, and b a bound proven at c. A schedule that pays beyond this only for items i of a set S
(recomputations, other transfers) needs at costs c' at least

    base(c') + α · (b - base(c)),    α = min over S of c'ᵢ / cᵢ,

since each of its items costs at least α times as much as at c. A schedule that pays for an item
which alone raises it above the best known energy at c' is not better than that. So S contains the
other items, and the smaller of the two values is a bound for all schedules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.robustness.draws import BoolArray, FloatArray


@dataclass
class DrawBounds:
    """Bounds (J) at the costs ``energy_j``, with a row for each draw and a column for each item."""

    problem: Problem
    energy_j: FloatArray
    _proofs: list[tuple[FloatArray, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unavoidable = _unavoidable(self.problem)
        self._base_j: FloatArray = self.energy_j[:, self._unavoidable].sum(axis=1)
        self._single_j = self._base_j.copy()
        self._optional = _optional(self.problem)
        self._least_extra_j = _least_extra_j(self.problem.graph, self.energy_j)

    def prove(self, energy_j: FloatArray, bound_j: float) -> None:
        """Record that no schedule needs less than ``bound_j`` at costs ``energy_j`` (by item)."""
        overhead_j = bound_j - float(energy_j[self._unavoidable].sum())
        if overhead_j > 0:
            self._proofs.append((energy_j, overhead_j))

    def prove_draw(self, draw: int, bound_j: float) -> None:
        """Record that no schedule in time in this draw needs less than ``bound_j`` in it."""
        self._single_j[draw] = max(self._single_j[draw], bound_j)

    def at(self, best_known_j: FloatArray) -> FloatArray:
        """Bound of each draw, at most the best known energy in it."""
        affordable = self._optional & (
            self._base_j[:, None] + self._least_extra_j < best_known_j[:, None]
        )
        bounds: FloatArray = self._single_j
        for energy_j, overhead_j in self._proofs:
            counted = affordable & (energy_j > 0)
            scales = np.where(counted, self.energy_j / np.where(energy_j > 0, energy_j, 1), np.inf)
            bounds = np.maximum(bounds, self._base_j + scales.min(axis=1) * overhead_j)
        least: FloatArray = np.minimum(bounds, best_known_j)
        return least


def _unavoidable(problem: Problem) -> BoolArray:
    """Items that every schedule pays for."""
    tensors = problem.graph.tensors
    page_outs = [t.persist == "storage" and t.home != "storage" for t in tensors]
    page_ins = [
        t.home == "storage" and (bool(readers) or t.persist == "ram")
        for t, readers in zip(tensors, problem.readers, strict=True)
    ]
    return np.array([*(True for _ in problem.graph.ops), *page_outs, *page_ins])


def _optional(problem: Problem) -> BoolArray:
    """Items that a schedule may pay for beyond the unavoidable."""
    page_outs = [
        possible or tensor.persist == "storage"
        for possible, tensor in zip(problem.can_page_out, problem.graph.tensors, strict=True)
    ]
    return np.array([*problem.recomputable, *page_outs, *problem.can_page_in])


def _least_extra_j(graph: CostedGraph, energy_j: FloatArray) -> FloatArray:
    """Least energy beyond the unavoidable of a schedule that pays for each item.

    A tensor that need not be in storage is paged out before it is paged in, and only for that.
    """
    extra = energy_j.copy()
    ops, tensors = len(graph.ops), len(graph.tensors)
    out, back = energy_j[:, ops : ops + tensors], energy_j[:, ops + tensors :]
    is_there = np.array([t.home == "storage" or t.persist == "storage" for t in graph.tensors])
    extra[:, ops : ops + tensors] += np.where(is_there, 0.0, back)
    extra[:, ops + tensors :] += np.where(is_there, 0.0, out)
    return extra
