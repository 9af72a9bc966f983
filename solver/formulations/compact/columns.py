"""The columns of the compact program: what may be recomputed, retained and paged, and when.

See :mod:`solver.formulations.compact.formulation` for what they mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from solver.engines.program import Program
from solver.formulations.scaled_costs import ScaledCosts
from solver.problem.problem import Problem

# What the bound of this formulation is a bound on.
COVERS = "every schedule that keeps to the restrictions"
RESTRICTIONS = (
    "first executions keep the graph's order",
    "between two first executions each op is recomputed at most once, in the graph's order",
    "between two first executions a tensor that was in RAM and was freed is not paged in again",
)
# Further ones, of a program that is simplified.
_NOT_BEFORE_UPDATES = "nothing is recomputed right before an update"
_SMALL_STAY = "tensors of at most {small_bytes} bytes stay in RAM until their last possible use"
# Of the budget: what a tensor may take at most to count as small, and what all small ones may.
_SMALL, _SMALL_TOGETHER = 0.001, 0.02


class CompactColumns:
    """Columns with their costs, and what their meaning needs: who reads and writes what, what stays
    in RAM without columns, sizes and scales."""

    def __init__(self, problem: Problem, minimise: str, *, simplify: bool) -> None:
        self.problem = problem
        self.program = Program()
        self.minimise = minimise
        self.op_count = len(problem.graph.ops)
        # One more stage ends the step: an op of no cost reads what must persist in RAM.
        end = self.op_count
        persistent = [i for i, t in enumerate(problem.graph.tensors) if t.persist == "ram"]
        self.reads = [*problem.reads, persistent]
        self.writes = [*problem.writes, []]
        self.readers = [
            (*readers, end) if t.persist == "ram" else readers
            for readers, t in zip(problem.readers, problem.graph.tensors, strict=True)
        ]
        self.tensor_count = len(problem.graph.tensors)
        self.simplify = simplify
        self.stays_until = self._find_staying()
        # Counted by stage, not by tensor: what stays.
        self.size = [
            0 if until >= 0 else size
            for until, size in zip(self.stays_until, problem.size, strict=True)
        ]
        self.footprint = [self._footprint_of(k) for k in range(end + 1)]
        self.recompute: dict[tuple[int, int], int] = {}
        self.retain: dict[tuple[int, int], int] = {}
        self.page_in: dict[tuple[int, int], int] = {}
        self.page_out: dict[int, int] = {}

        self._costs = ScaledCosts(problem, minimise)
        self.unit = self._costs.unit
        self.constant = self._costs.constant
        # Memory rows are in multiples of what all sizes share, scaled so that a unit of violation
        # stands well above the engines' feasibility tolerance of 1e-6.
        self.grain = math.gcd(*self.size, *self.footprint) or 1
        budget = problem.budget.ram_bytes // self.grain
        self.memory_scale = self.grain * max(1.0, budget / 1e4)
        self.budget_column: int | None = None
        if minimise == "memory":
            self.unit = self.memory_scale
            self.budget_column = self.program.column(
                cost=1.0, upper=problem.budget.ram_bytes / self.memory_scale, integer=False
            )
        self._add_columns()

    def _find_staying(self) -> list[int]:
        """For each tensor that is never given up, the last stage that finds it in RAM; -1 for the
        others. It costs nothing to keep what counts nothing; it goes when it is written over."""
        problem, end = self.problem, self.op_count
        until = [-1 if stored else end for stored in problem.starts_in_storage]
        for k, consumed in enumerate(problem.consumes):
            for i in consumed:
                until[i] = -1 if problem.recomputable[k] else min(until[i], k)
        self.small_bytes = self._largest_small(i for i, u in enumerate(until) if u >= 0)
        return [
            u if size <= self.small_bytes else -1
            for u, size in zip(until, problem.size, strict=True)
        ]

    def _largest_small(self, tensors: Iterable[int]) -> int:
        """Bytes up to which a tensor counts as small; 0 where none does."""
        budget = self.problem.budget.ram_bytes
        counts = Counter(self.problem.size[i] for i in tensors)
        largest, together = 0, 0
        for size in sorted(counts):
            together += size * counts[size]
            if not self.simplify or size > _SMALL * budget or together > _SMALL_TOGETHER * budget:
                break
            largest = size
        return largest

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What the bound leaves out."""
        further = []
        if any(not self._recomputes_in(stage) for stage in range(self.op_count)):
            further.append(_NOT_BEFORE_UPDATES)
        if self.small_bytes:
            further.append(_SMALL_STAY.format(small_bytes=self.small_bytes))
        return (*RESTRICTIONS, *further)

    def _footprint_of(self, k: int) -> int:
        """Bytes that op ``k`` needs, without what stays."""
        size, index = self.size, self.problem.tensor_index
        touched = sum(size[i] for i in {*self.reads[k], *self.writes[k]})
        if k == self.op_count:
            return touched
        op = self.problem.graph.ops[k]
        shared = sum(min(size[index[w]], size[index[r]]) for w, r in op.in_place.items())
        return touched - shared + op.workspace_bytes

    def _standing_bytes(self, last_use: Sequence[int], last_recompute: Sequence[int]) -> list[int]:
        """For each stage, the bytes of what stays."""
        standing = [0] * (self.op_count + 1)
        for i, until in enumerate(self.stays_until):
            made, size = self.problem.producer[i], self.problem.size[i]
            if until < 0 or not size:
                continue
            again = last_recompute[made] if made >= 0 else -1
            for stage in range(max(made, 0), min(until, max(made, last_use[i], again)) + 1):
                standing[stage] += size
        return standing

    def _add_columns(self) -> None:
        problem, program = self.problem, self.program
        last_use, last_recompute = self._last_useful_stages()
        self.standing = self._standing_bytes(last_use, last_recompute)
        for k in range(self.op_count):
            for stage in range(k + 1, last_recompute[k] + 1):
                if self._recomputes_in(stage):
                    self.recompute[stage, k] = program.column(cost=self._costs.op[k])
        for i, tensor in enumerate(problem.graph.tensors):
            made = max(problem.producer[i], self.stays_until[i])
            uses = {stage for stage in self._stages_that_may_read(i) if stage >= made}
            must_page_out = tensor.persist == "storage"
            may_page_out = problem.can_page_out[i] and problem.can_page_in[i]
            # What lives in storage is written by no op: the copy there stays valid.
            if not problem.starts_in_storage[i] and (
                must_page_out or (may_page_out and any(stage > made for stage in uses))
            ):
                self.page_out[i] = program.column(
                    cost=self._costs.page_out[i], lower=float(must_page_out)
                )
            if problem.can_page_in[i] and (i in self.page_out or problem.starts_in_storage[i]):
                for stage in sorted(uses):
                    if stage > made:
                        self.page_in[stage, i] = program.column(cost=self._costs.page_in[i])
            self._add_retention(i, last_use[i], uses)

    def _last_useful_stages(self) -> tuple[list[int], list[int]]:
        """For each tensor the last stage that may read it, for each op the last stage in which
        recomputing it can be of use (-1: none)."""
        problem = self.problem
        last_use = [-1] * self.tensor_count
        last_recompute = [-1] * (self.op_count + 1)

        def settle(i: int) -> None:
            uses = (max(j, last_recompute[j]) for j in self.readers[i])
            last_use[i] = max(uses, default=-1)

        for k in reversed(range(self.op_count)):
            for i in problem.writes[k]:
                settle(i)
            if problem.recomputable[k]:
                useful = (i for i in problem.writes[k] if last_use[i] > self.stays_until[i])
                last = max((last_use[i] for i in useful), default=-1)
                last_recompute[k] = last if last > k else -1
        for i in range(self.tensor_count):
            if problem.producer[i] < 0:
                settle(i)
        return last_use, last_recompute

    def _stages_that_may_read(self, i: int) -> set[int]:
        stages = set(self.readers[i])
        for j in self.readers[i]:
            stages.update(self.recomputing_stages(j))
        return stages

    def recomputing_stages(self, k: int) -> Iterator[int]:
        stages = range(k + 1, self.op_count + 1)
        return (stage for stage in stages if (stage, k) in self.recompute)

    def _recomputes_in(self, stage: int) -> bool:
        ops = self.problem.graph.ops
        return not (self.simplify and stage < len(ops) and ops[stage].phase == "update")

    def _add_retention(self, i: int, last_use: int, uses: set[int]) -> None:
        made = max(self.problem.producer[i], self.stays_until[i])
        if made < 0 and not self.problem.starts_in_ram[i]:
            if not uses:
                return
            first = min(uses) + 1
        else:
            first = made + 1
        # Between events nothing can read, make or bring the tensor: one column will do.
        events = uses | {made}
        if made >= 0:
            events.update(self.recomputing_stages(made))
        column: int | None = None
        for stage in range(first, last_use + 1):
            if column is None or stage - 1 in events:
                column = self.program.column()
            self.retain[stage, i] = column

    def sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i``, made before ``stage``, is at hand in it
        although it does not stay."""
        keys = (
            (self.retain, (stage, i)),
            (self.page_in, (stage, i)),
            (self.recompute, (stage, self.problem.producer[i])),
        )
        return [table[key] for table, key in keys if key in table]
