"""The *crossing* program: a relaxation that is small, tight, and holds for any order of the ops.

When op ``t`` is first executed, some tensors *cross* it: they were made before it for certain, and
what reads them for the first time then comes after it for certain, because the graph's reads say so
(or the graph's order, where that is kept). A tensor that crosses ``t`` is in RAM then, or is paged
in or made again afterwards. What is in RAM must fit beside what ``t`` itself needs. Columns:

- ``again[k]``: op ``k`` is computed more than once;
- ``paged[i]``: tensor ``i`` is paged in (if storage is its home: more than once);
- for each op ``t`` at which memory is looked at: ``held[i]``, tensor ``i`` is in RAM while ``t``
  runs, and ``later[k]``, ``k`` is computed again after ``t``, for which in turn what ``k`` reads
  must be held, paged in or made again later. These are continuous.

Every schedule gives a solution that costs no more than it does, so that the least cost is a lower
bound. It is met where nothing is made again twice and where memory between the first executions is
no tighter than at them, which is so for many training steps. The knapsack rows alone are the idea
of the bounds on pebbling by what crosses a cut of the computation; rows for more ops are added
where a solution would not fit (:meth:`CrossingProgram.tightest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.engines.program import Program
from solver.problem.footprint import footprint_bytes
from solver.problem.problem import Problem

OrderKept: TypeAlias = Literal["any", "given"]

# Costs are scaled so that computing every op once costs this much, memory so that the budget does.
_SCALE = 1000.0
# What a violation must exceed to count, relative to the budget.
_NOTICEABLE = 1e-6
# Ops are looked at this share of the graph apart, at most so many at once.
_APART, _AT_ONCE = 1 / 40, 8


@dataclass(frozen=True)
class Moment:
    """The first execution of an op at which memory is looked at: columns of the tensors that are
    held then, by tensor, and of the ops computed again later, by op."""

    held: dict[int, int] = field(default_factory=dict)
    later: dict[int, int] = field(default_factory=dict)


class CrossingProgram:
    """The program of one problem, with no memory rows at first.

    ``constant`` joules are added to ``unit`` times its objective: computing everything once, and
    what must be paged whatever is chosen.
    """

    def __init__(self, problem: Problem, order: OrderKept) -> None:
        self.problem = problem
        self.program = Program()
        self.order: OrderKept = order
        self.moments: dict[int, Moment] = {}
        self._before = _certainly_before(problem, order)
        self._crossing = self._find_crossing()
        self._size = np.array(problem.size, float)
        self._footprint = [footprint_bytes(op, problem.size_of) for op in problem.graph.ops]
        self.unit = (problem.least_energy_j or self._dearest_page()) / _SCALE or 1.0
        self.constant = problem.least_energy_j + problem.unavoidable_pages.energy_j
        self.again: dict[int, int] = {}
        self.paged: dict[int, int] = {}
        self._add_columns()
        self._add_deadline()

    def _dearest_page(self) -> float:
        costs = [c for t in self.problem.graph.tensors for c in (t.page_out, t.page_in) if c]
        return max((cost.energy_j for cost in costs), default=0.0)

    def _find_crossing(self) -> npt.NDArray[np.bool_]:
        """Of each op (rows) and each tensor (columns), whether the tensor crosses the op."""
        problem, graph = self.problem, self.problem.graph
        crossing = np.zeros((len(graph.ops), len(graph.tensors)), bool)
        for i, tensor in enumerate(graph.tensors):
            if not problem.size[i]:
                continue
            readers = list(problem.readers[i])
            if problem.starts_in_storage[i]:
                # Brought before for certain only if it was read.
                made = self._before[:, readers].any(axis=1)
            elif problem.producer[i] < 0:
                made = np.ones(len(graph.ops), bool)
            else:
                made = self._before[:, problem.producer[i]]
            if tensor.persist == "ram":
                crossing[:, i] = made
            elif readers:
                crossing[:, i] = made & self._before[readers].any(axis=0)
        for t in range(len(graph.ops)):
            crossing[t, [*problem.reads[t], *problem.writes[t]]] = False
        return crossing

    def _add_columns(self) -> None:
        problem = self.problem
        for k, op in enumerate(problem.graph.ops):
            if problem.recomputable[k]:
                self.again[k] = self.program.column(cost=op.energy_j / self.unit)
        for i in range(len(problem.graph.tensors)):
            if problem.can_page_in[i]:
                cost = problem.paging_cost(i)
                self.paged[i] = self.program.column(cost=cost.energy_j / self.unit)

    def _add_deadline(self) -> None:
        problem, deadline_s = self.problem, self.problem.budget.deadline_s
        if deadline_s is None:
            return
        scale = deadline_s or 1.0
        ops = problem.graph.ops
        computing = [(column, ops[k].time_s / scale) for k, column in self.again.items()]
        paging = [(c, problem.paging_cost(i).time_s / scale) for i, c in self.paged.items()]
        computing_left = (deadline_s - problem.least_time_s) / scale
        pages_s = problem.unavoidable_pages.time_s / scale
        if problem.budget.instantaneous_paging:
            self.program.row(computing, "<", computing_left)
        elif problem.overlaps:
            # Beside each other, but one transfer at a time.
            self.program.row(computing, "<", computing_left)
            self.program.row(paging, "<", deadline_s / scale - pages_s)
        else:
            self.program.row([*computing, *paging], "<", computing_left - pages_s)

    # --- memory ---------------------------------------------------------------------------------

    def tightest(self, values: Sequence[float]) -> list[int]:
        """Ops, not yet looked at, at which a solution needs more RAM than there is, the worst
        first; none of them close to another."""
        left = self._size.copy()
        for k, column in self.again.items():
            for i in self.problem.writes[k]:
                left[i] -= self._size[i] * values[column]
        for i, column in self.paged.items():
            left[i] -= self._size[i] * values[column]
        np.maximum(left, 0.0, out=left)
        ram_bytes = self.problem.budget.ram_bytes
        excess = np.array(self._footprint, float) - ram_bytes
        for first in range(0, len(excess), 256):
            rows = slice(first, first + 256)
            excess[rows] += self._crossing[rows] @ left
        excess[list(self.moments)] = -1.0
        chosen: list[int] = []
        apart = max(1, int(len(excess) * _APART))
        for t in np.argsort(-excess, kind="stable"):
            if excess[t] <= _NOTICEABLE * ram_bytes or len(chosen) == _AT_ONCE:
                break
            if all(abs(int(t) - other) > apart for other in chosen):
                chosen.append(int(t))
        return chosen

    def add_memory_rows(self, t: int) -> None:
        """Add the rows for memory at the first execution of op ``t``."""
        problem, program = self.problem, self.program
        moment = self.moments[t] = Moment()
        at_hand = {*problem.reads[t], *problem.writes[t]}
        unsettled: list[int] = []

        def sources(i: int) -> list[tuple[int, float]]:
            """Columns of which one is at least 1 if tensor ``i`` is there later."""
            if i not in moment.held:
                moment.held[i] = program.column(integer=False)
            columns = [moment.held[i]]
            k = problem.producer[i]
            if k in self.again:
                if k not in moment.later:
                    moment.later[k] = program.column(integer=False)
                    program.row([(moment.later[k], 1.0), (self.again[k], -1.0)], "<", 0.0)
                    unsettled.append(k)
                columns.append(moment.later[k])
            if i in self.paged:
                columns.append(self.paged[i])
            return [(column, 1.0) for column in columns]

        for i in self.crossing(t):
            program.row(sources(i), ">", 1.0)
        while unsettled:
            k = unsettled.pop()
            for i in problem.reads[k]:
                if i not in at_hand and problem.size[i] and self._is_made_before(i, t):
                    program.row([*sources(i), (moment.later[k], -1.0)], ">", 0.0)
        ram_bytes = problem.budget.ram_bytes
        scale = _SCALE / max(1, ram_bytes)
        program.row(
            [(column, problem.size[i] * scale) for i, column in moment.held.items()],
            "<",
            (ram_bytes - self._footprint[t]) * scale,
        )

    def _is_made_before(self, i: int, t: int) -> bool:
        """Whether having tensor ``i`` after op ``t`` takes holding it, or bringing it once more."""
        problem = self.problem
        if problem.starts_in_storage[i]:
            return bool(self._before[t, list(problem.readers[i])].any())
        k = problem.producer[i]
        return k < 0 or bool(self._before[t, k])

    # --- what it proves -------------------------------------------------------------------------

    def bound_j(self, objective: float) -> float:
        """What a lower bound on the program's objective proves."""
        return self.constant + max(0.0, objective) * self.unit

    def crossing(self, t: int) -> list[int]:
        """The tensors that cross op ``t``."""
        return [int(i) for i in np.flatnonzero(self._crossing[t])]


def _certainly_before(problem: Problem, order: OrderKept) -> npt.NDArray[np.bool_]:
    """``[t, k]``: the first execution of op ``k`` comes before that of op ``t``."""
    count = len(problem.graph.ops)
    if order == "given":
        return np.tri(count, count, -1, dtype=bool)
    before: npt.NDArray[Any] = np.zeros((count, count), bool)
    for t in range(count):
        for i in problem.reads[t]:
            k = problem.producer[i]
            if k >= 0:
                before[t] |= before[k]
                before[t, k] = True
    return before
