"""The *crossing* program: a small, tight relaxation that holds for any order of the ops.

At the first execution of op ``t``, some tensors *cross* it: the first executions of the op that
writes them and of an op that reads them are before and after ``t``. A tensor that crosses ``t`` is
in RAM then, or is paged in or recomputed later. What is in RAM must fit together with what ``t``
itself needs. Columns:

- ``again[k]``: op ``k`` is computed more than once;
- ``paged[i]``: tensor ``i`` is paged in (if its home is storage: more than once);
- for each op ``t`` with memory rows: ``held[i]``, tensor ``i`` is in RAM while ``t`` runs, and
  ``later[k]``, ``k`` is recomputed after ``t``, which requires that the tensors that ``k`` reads
  are held, paged in or recomputed later. These columns are continuous.

Which tensors cross follows from the graph's reads, or from the graph's order if that is kept. Where
the graph leaves open which of ``t`` and an op ``k`` is first executed first, either nothing is said
(``open_ops`` is False: the program is small, and soon solved), or a continuous column says it:

- ``early[k]``: op ``k`` is first executed before ``t``. It is at most ``early[j]`` for the op ``j``
  that writes what ``k`` reads, and at most ``early[k]`` of an op that certainly follows ``t``. Of
  two ops ``t`` whose order is open, one is early at the other, and so is what is early there.

Tensor ``i``, written by ``k`` and read by ``r``, crosses ``t`` if ``early[k] - early[r]`` is 1,
which is the right side of its row; 1 and 0 stand for columns where the graph decides.

Without these columns, rows still say one thing of an op whose order is open and that replaces a
tensor by another, such as parameters by updated ones: one of the two crosses ``t``
(:mod:`solver.formulations.replacements`), so that their sources are at least 1 together.

Every schedule corresponds to a solution of at most its cost, so the least cost is a lower bound:
its first executions are in some order, which says what is early; it says what is in RAM at each of
them, and what is made again. What crosses one op bounds the energy too, without an engine
(:meth:`CrossingProgram.knapsack_j`). The knapsack rows alone are the idea of pebbling bounds from
the values that cross a cut of the computation. Rows for more ops are added where a solution would
not fit (:meth:`CrossingProgram.tightest`).

For an order that is kept, the bound is exact if nothing is recomputed or paged in more than once,
and if memory between first executions is no tighter than at them, which is true of many training
steps. In any order it may be lower. Without open ops, little certainly crosses large ops such as
updates of parameters. With them, parts of an op may be early, and nothing is said of small tensors
that may cross, nor of those in storage that may not have been read yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.engines.program import Program
from solver.formulations.moment import CrossingColumns, Moment
from solver.formulations.replacements import Replacements, is_made, is_needed
from solver.problem.footprint import footprint_bytes
from solver.problem.problem import Problem
from solver.time_limit import check_time

OrderKept: TypeAlias = Literal["any", "given"]

# Costs are scaled so that computing every op once costs this much.
_SCALE = 1000.0
# Smallest violation that counts, relative to the budget.
_NOTICEABLE = 1e-6
# Distance between ops that get memory rows in one round, as a share of the graph.
_APART = 1 / 40


class CrossingProgram:
    """The crossing program of one problem, initially without memory rows.

    Building it and adding rows raise :class:`~solver.time_limit.OutOfTime` after the enforced
    limit.

    Energy in joules is ``constant`` plus ``unit`` times the objective. The constant is the energy
    of computing everything once and of unavoidable transfers.
    """

    def __init__(self, problem: Problem, order: OrderKept, *, open_ops: bool = False) -> None:
        self.problem = problem
        self.program = Program()
        self.order: OrderKept = order
        self.moments: dict[int, Moment] = {}
        self._before = _certainly_before(problem, order)
        self._crossing = self._find_crossing(self._before)
        self._replacements = Replacements(problem, self._before, self._crossing)
        # Where that is open, the graph's order is a guess of what is in RAM.
        self._likely = self._crossing
        if open_ops:
            self._likely = self._find_crossing(_certainly_before(problem, "given"))
        self._size = np.array(problem.size, float)
        self._footprint = [footprint_bytes(op, problem.size_of) for op in problem.graph.ops]
        self.unit = (problem.least_energy_j or self._dearest_page()) / _SCALE or 1.0
        self.constant = problem.unavoidable_energy_j
        self.again: dict[int, int] = {}
        self.paged: dict[int, int] = {}
        self._add_columns()
        self._add_deadline()
        self._columns = CrossingColumns(
            problem,
            self.program,
            self.again,
            self.paged,
            self._before,
            self._replacements,
            open_ops,
        )

    def _dearest_page(self) -> float:
        costs = [c for t in self.problem.graph.tensors for c in (t.page_out, t.page_in) if c]
        return max((cost.energy_j for cost in costs), default=0.0)

    def _find_crossing(self, before: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Boolean matrix: whether each tensor (columns) crosses each op (rows)."""
        problem, graph = self.problem, self.problem.graph
        crossing = np.zeros((len(graph.ops), len(graph.tensors)), bool)
        for i in range(len(graph.tensors)):
            check_time()
            if problem.size[i]:
                crossing[:, i] = is_made(problem, before, i) & is_needed(problem, before, i)
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
        problem, deadline_s = self.problem, self.problem.latest_s
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
            # Transfers run beside ops, one transfer at a time, and need the processor, too.
            working = [(c, problem.paging_working_s(i) / scale) for i, c in self.paged.items()]
            working = [(c, due) for c, due in working if due]
            working_s = problem.unavoidable_working_s / scale
            self.program.row([*computing, *working], "<", computing_left - working_s)
            self.program.row(paging, "<", deadline_s / scale - pages_s)
        else:
            self.program.row([*computing, *paging], "<", computing_left - pages_s)

    # --- memory ---------------------------------------------------------------------------------

    def tightest(self, values: Sequence[float], most: int) -> list[int]:
        """At most ``most`` ops without memory rows at which a solution exceeds the budget.

        The worst is first. No two of them are close to each other in the graph's order. With open
        ops, a solution may exceed it in the graph's order only.
        """
        # Shares of tensors that are neither paged in nor recomputed.
        left = np.ones(len(self._size))
        for k, column in self.again.items():
            left[list(self.problem.writes[k])] -= values[column]
        for i, column in self.paged.items():
            left[i] -= values[column]
        held = self._size * np.maximum(left, 0.0)
        ram_bytes = self.problem.budget.ram_bytes
        excess = np.array(self._footprint, float) - ram_bytes
        for first in range(0, len(excess), 256):
            rows = slice(first, first + 256)
            excess[rows] += self._likely[rows] @ held
            if not self._columns.open_ops:  # what is likely may include what replaces it
                excess[rows] += self._replacements.bytes_at(rows, left)
        excess[list(self.moments)] = -1.0
        chosen: list[int] = []
        apart = max(1, int(len(excess) * _APART))
        for t in np.argsort(-excess, kind="stable"):
            if excess[t] <= _NOTICEABLE * ram_bytes or len(chosen) == most:
                break
            if all(abs(int(t) - other) > apart for other in chosen):
                chosen.append(int(t))
        return chosen

    def add_memory_rows(self, t: int) -> None:
        """Add the rows for memory at the first execution of op ``t``."""
        self.moments[t] = Moment(self._columns, t, dict(self.moments))

    # --- bounds ---------------------------------------------------------------------------------

    def knapsack_j(self, t: int) -> float:
        """Lower bound on energy from what crosses op ``t`` alone, without an engine.

        What of it does not fit is paged in or recomputed later; of a tensor and what replaces it,
        the smaller size at the lower cost. An op that is recomputed costs its outputs shares of its
        energy, by their sizes. The cheapest bytes, of parts of tensors too, cost no more than those
        of any schedule.
        """
        problem, crossing = self.problem, self.crossing(t)
        replacements = list(self._replacements.at(t))
        made = Counter[int]()
        for i in (*crossing, *(i for each in replacements for i in (each.old, each.new))):
            made[problem.producer[i]] += problem.size[i]

        def per_byte(i: int) -> float:
            k, cost = problem.producer[i], math.inf
            if k in self.again:
                cost = problem.graph.ops[k].energy_j / made[k]
            if i in self.paged:
                cost = min(cost, problem.paging_cost(i).energy_j / problem.size[i])
            return cost

        costs = [(per_byte(i), problem.size[i]) for i in crossing]
        for _, old, new in replacements:
            size = min(problem.size[old], problem.size[new])
            costs.append((min(per_byte(old), per_byte(new)), size))
        excess = self._footprint[t] + sum(size for _, size in costs) - problem.budget.ram_bytes
        bound_j = self.constant
        for cost, size in sorted(costs):
            if excess <= 0 or math.isinf(cost):
                break
            bound_j += cost * min(size, excess)
            excess -= size
        return bound_j

    def bound_j(self, objective: float) -> float:
        """Lower bound on energy from a lower bound on the program's objective."""
        return self.constant + max(0.0, objective) * self.unit

    def crossing(self, t: int) -> list[int]:
        """The tensors that cross op ``t``."""
        return [int(i) for i in np.flatnonzero(self._crossing[t])]


def _certainly_before(problem: Problem, order: OrderKept) -> npt.NDArray[np.bool_]:
    """Boolean matrix ``[t, k]``: op ``k`` is first executed before op ``t`` in every order."""
    count = len(problem.graph.ops)
    if order == "given":
        return np.tri(count, count, -1, dtype=bool)
    before: npt.NDArray[Any] = np.zeros((count, count), bool)
    for t in range(count):
        check_time()
        for i in problem.reads[t]:
            k = problem.producer[i]
            if k >= 0:
                before[t] |= before[k]
                before[t, k] = True
    return before
