"""Columns of the compact program: recomputation, retention and paging by stage.

Their meaning is documented in :mod:`solver.formulations.compact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.engines.program import Program
from solver.formulations.compact.outline import Outline
from solver.formulations.memory import MemoryScale
from solver.formulations.scaled_costs import ScaledCosts
from solver.formulations.staged import StageTable
from solver.problem.problem import Problem


@dataclass(frozen=True)
class CompactColumns:
    """Columns by stage and op or tensor; ``page_out`` by tensor only.

    ``budget`` is the column of the RAM in use, in units of the memory rows, if it is minimised.
    """

    problem: Problem
    outline: Outline
    recompute: StageTable
    retain: StageTable
    page_in: StageTable
    page_out: Mapping[int, int]
    budget: int | None

    def sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i`` is in RAM at some time in ``stage``.

        The tensor is written before ``stage`` and is not one that always stays in RAM.
        """
        keys = (
            (self.retain, (stage, i)),
            (self.page_in, (stage, i)),
            (self.recompute, (stage, self.problem.producer[i])),
        )
        return [table[key] for table, key in keys if key in table]

    def recomputed(self, stage: int, ops: Sequence[int]) -> list[int]:
        """Columns of the ``ops`` that may be recomputed in ``stage``."""
        return [self.recompute[stage, k] for k in ops if (stage, k) in self.recompute]

    def retained_after(self, stage: int, i: int) -> list[int]:
        """The column that retains tensor ``i`` from ``stage`` into the next one, if it exists."""
        return [self.retain[stage + 1, i]] if (stage + 1, i) in self.retain else []


def add_columns(
    problem: Problem,
    outline: Outline,
    costs: ScaledCosts,
    memory: MemoryScale,
    program: Program,
) -> CompactColumns:
    """Add the columns with their costs to ``program``."""
    budget: int | None = None
    if costs.minimise == "memory":
        budget = program.column(
            cost=1.0, upper=problem.budget.ram_bytes / memory.unit_bytes, integer=False
        )
    recompute: dict[tuple[int, int], int] = {}
    for k in range(len(problem.graph.ops)):
        for stage in range(k + 1, outline.last_recompute[k] + 1):
            if outline.may_recompute[stage]:
                recompute[stage, k] = program.column(cost=costs.op[k])
    retain: dict[tuple[int, int], int] = {}
    page_in: dict[tuple[int, int], int] = {}
    page_out: dict[int, int] = {}
    for i, tensor in enumerate(problem.graph.tensors):
        made = max(problem.producer[i], outline.stays_until[i])
        uses = {stage for stage in _stages_that_may_read(outline, recompute, i) if stage >= made}
        must_page_out = tensor.persist == "storage"
        may_page_out = problem.can_page_out[i] and problem.can_page_in[i]
        # A tensor whose home is storage is written by no op: its copy there stays valid.
        if not problem.starts_in_storage[i] and (
            must_page_out or (may_page_out and any(stage > made for stage in uses))
        ):
            page_out[i] = program.column(cost=costs.page_out[i], lower=float(must_page_out))
        if problem.can_page_in[i] and (i in page_out or problem.starts_in_storage[i]):
            for stage in sorted(uses):
                if stage > made:
                    page_in[stage, i] = program.column(cost=costs.page_in[i])
        # Between these stages the tensor cannot be read, computed or paged in: one column suffices.
        events = uses | {made}
        if made >= 0:
            events.update(recomputing_stages(outline, recompute, made))
        column: int | None = None
        # A tensor whose home is storage is in RAM only from its first use on.
        starts = made >= 0 or problem.starts_in_ram[i]
        before = made if starts else min(uses, default=0)
        for stage in range(before + 1, outline.last_use[i] + 1):
            if column is None or stage - 1 in events:
                column = program.column()
            retain[stage, i] = column
    return CompactColumns(problem, outline, recompute, retain, page_in, page_out, budget)


def _stages_that_may_read(outline: Outline, recompute: StageTable, i: int) -> set[int]:
    readers = outline.accesses.readers[i]
    stages = set(readers)
    for j in readers:
        stages.update(recomputing_stages(outline, recompute, j))
    return stages


def recomputing_stages(outline: Outline, recompute: StageTable, k: int) -> Iterator[int]:
    """Stages in which op ``k`` may be recomputed."""
    return (stage for stage in range(k + 1, outline.stage_count) if (stage, k) in recompute)
