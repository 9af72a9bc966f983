"""Columns of POET's program, by stages and nodes.

Names are those of the paper; their meaning is documented in :mod:`solver.formulations.poet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from solver.engines.program import Program
from solver.formulations.memory import MemoryScale
from solver.formulations.scaled_costs import ScaledCosts
from solver.formulations.staged import StageAccesses, StageTable
from solver.problem.problem import Problem

# Columns by stage, tensor and op.
MomentTable: TypeAlias = Mapping[tuple[int, int, int], int]


@dataclass(frozen=True)
class PoetColumns:
    """Columns by stage and op (``r``, ``u``), stage and tensor, or stage, tensor and op.

    The last are ``free_e`` and ``in_e``. Columns that the paper fixes at 0 (above the diagonal, and
    transfers of tensors that cannot be paged) do not exist. ``extra_bytes`` is what each op takes
    beyond the tensors in RAM; ``may_free_after`` are the tensors that may be freed right after it.
    """

    problem: Problem
    accesses: StageAccesses
    extra_bytes: Sequence[int]
    may_free_after: Sequence[Sequence[int]]
    r: StageTable
    s_ram: StageTable
    s_sd: StageTable
    m_in: StageTable
    m_out: StageTable
    u: StageTable
    free_e: MomentTable
    in_e: MomentTable

    @property
    def stage_count(self) -> int:
        """Number of stages: one for each op, and one for the end if tensors persist in RAM."""
        return len(self.extra_bytes)

    def sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i`` is in RAM at some time in ``stage``."""
        made = self.problem.producer[i]
        keys = ((self.r, made), (self.s_ram, i), (self.m_in, i))
        return [table[stage, index] for table, index in keys if (stage, index) in table]

    def paged_in_by(self, stage: int, i: int, k: int) -> list[int]:
        """Columns that are 1 if ``i`` is paged in during ``stage`` for op ``k`` or earlier."""
        return [
            self.in_e[stage, i, j]
            for j in self.accesses.readers[i]
            if j <= k and (stage, i, j) in self.in_e
        ]

    def hazards(self, stage: int, i: int, k: int) -> list[int]:
        """Columns that, if 1, forbid to free ``i`` right after op ``k`` of ``stage``."""
        hazards = [self.r[stage, j] for j in self.accesses.readers[i] if k < j <= stage]
        if (stage + 1, i) in self.s_ram:
            hazards.append(self.s_ram[stage + 1, i])
        return hazards


def add_columns(
    problem: Problem,
    accesses: StageAccesses,
    costs: ScaledCosts,
    memory: MemoryScale,
    program: Program,
) -> PoetColumns:
    """Add the columns with their costs to ``program``."""
    # The end of the step takes no RAM, and is omitted if it reads nothing.
    extra_bytes = [*problem.extra_bytes, 0] if accesses.reads[-1] else problem.extra_bytes
    stage_count = len(extra_bytes)
    s_sd, m_in, m_out = _add_storage(problem, costs, program, stage_count)
    # Tensors that an op reads; for an op that writes several, also these, which may be unneeded.
    may_free_after = [
        [i for i in (*read, *(made if len(made) > 1 else ())) if problem.size[i]]
        for read, made in zip(accesses.reads, accesses.writes, strict=True)
    ]
    budget_bytes = memory.whole_grains(problem.budget.ram_bytes)
    r: dict[tuple[int, int], int] = {}
    s_ram: dict[tuple[int, int], int] = {}
    u: dict[tuple[int, int], int] = {}
    free_e: dict[tuple[int, int, int], int] = {}
    in_e: dict[tuple[int, int, int], int] = {}
    for stage in range(stage_count):
        for k in range(stage):
            upper = float(problem.recomputable[k])
            r[stage, k] = program.column(cost=costs.op[k], upper=upper)
        # The first execution of each op is part of the constant cost.
        r[stage, stage] = program.column(lower=1.0)
        for i in range(len(problem.graph.tensors)):
            if stage >= _first_stage(problem, i):
                s_ram[stage, i] = program.column()
            if (stage, i) in m_in:
                for k in accesses.readers[i]:
                    if k <= stage:
                        in_e[stage, i, k] = program.column(integer=False)
        for k in range(stage + 1):
            most_bytes = budget_bytes - min(0, extra_bytes[k])
            u[stage, k] = program.column(upper=most_bytes / memory.unit_bytes, integer=False)
            # After the last op of a stage, S_ram of the next stage determines what is freed.
            if k < stage:
                for i in may_free_after[k]:
                    free_e[stage, i, k] = program.column()
    return PoetColumns(
        problem=problem,
        accesses=accesses,
        extra_bytes=extra_bytes,
        may_free_after=may_free_after,
        r=r,
        s_ram=s_ram,
        s_sd=s_sd,
        m_in=m_in,
        m_out=m_out,
        u=u,
        free_e=free_e,
        in_e=in_e,
    )


def _add_storage(
    problem: Problem, costs: ScaledCosts, program: Program, stage_count: int
) -> tuple[StageTable, StageTable, StageTable]:
    """Add the columns S_sd, M_in and M_out."""
    s_sd: dict[tuple[int, int], int] = {}
    m_in: dict[tuple[int, int], int] = {}
    m_out: dict[tuple[int, int], int] = {}
    for i, tensor in enumerate(problem.graph.tensors):
        stored, made = problem.starts_in_storage[i], problem.producer[i]
        if problem.can_page_in[i]:
            for stage in range(made + 1, stage_count):
                # A tensor whose home is storage is written by no op: its copy stays valid.
                s_sd[stage, i] = program.column(
                    lower=float(stored), upper=float(stored or stage > 0)
                )
                m_in[stage, i] = program.column(cost=costs.page_in[i])
        must_page_out = tensor.persist == "storage"
        if not stored and (problem.can_page_out[i] or must_page_out):
            for stage in range(max(made, 0), stage_count):
                m_out[stage, i] = program.column(cost=costs.page_out[i])
    return s_sd, m_in, m_out


def _first_stage(problem: Problem, i: int) -> int:
    """The first stage that may begin with tensor ``i`` in RAM."""
    if problem.starts_in_ram[i]:
        return 0
    return max(problem.producer[i], 0) + 1
