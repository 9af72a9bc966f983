"""The columns of POET's program: stages × nodes.

See :mod:`solver.formulations.poet.formulation` for what they mean. Names are those of the paper.
"""

from __future__ import annotations

import math

from solver.engines.program import Program
from solver.formulations.scaled_costs import ScaledCosts
from solver.problem.problem import Problem


class PoetColumns:
    """Columns with their costs; tables are by stage and then by op or tensor. What the paper fixes
    at 0 (above the diagonal; pages of what cannot be paged) has no column."""

    def __init__(self, problem: Problem, minimise: str) -> None:
        self.problem = problem
        self.program = Program()
        self.minimise = minimise
        self.tensor_count = len(problem.graph.tensors)
        tensors = problem.graph.tensors
        # What must persist in RAM is read, in a stage of its own, by an op that ends the step.
        persistent = [i for i, tensor in enumerate(tensors) if tensor.persist == "ram"]
        self.reads = [*problem.reads, persistent] if persistent else problem.reads
        self.writes = [*problem.writes, []] if persistent else problem.writes
        self.stage_count = len(self.reads)
        self.readers: list[list[int]] = [[] for _ in tensors]
        for k, read in enumerate(self.reads):
            for i in read:
                self.readers[i].append(k)
        # For each op the tensors that may go right after it: those that it reads and, of an op
        # that makes several, those that may not have been wanted.
        self.may_go_after = [
            [i for i in (*read, *(made if len(made) > 1 else ())) if problem.size[i]]
            for read, made in zip(self.reads, self.writes, strict=True)
        ]
        # During op ``k``, beside what is resident: workspace, less what in-place tensors share.
        self.extra_bytes = [self._extra_bytes(k) for k in range(self.stage_count)]

        self._costs = ScaledCosts(problem, minimise)
        self.unit = self._costs.unit
        self.constant = self._costs.constant
        # Memory is in multiples of what all sizes share, scaled so that a unit of violation stands
        # well above the engines' feasibility tolerance of 1e-6.
        self.grain = math.gcd(*problem.size, *self.extra_bytes) or 1
        self.budget_bytes = problem.budget.ram_bytes // self.grain * self.grain
        self.memory_scale = self.grain * max(1.0, self.budget_bytes / self.grain / 1e4)

        self.r: dict[tuple[int, int], int] = {}
        self.s_ram: dict[tuple[int, int], int] = {}
        self.s_sd: dict[tuple[int, int], int] = {}
        self.m_in: dict[tuple[int, int], int] = {}
        self.m_out: dict[tuple[int, int], int] = {}
        self.u: dict[tuple[int, int], int] = {}
        self.free_e: dict[tuple[int, int, int], int] = {}
        self.in_e: dict[tuple[int, int, int], int] = {}
        for i in range(self.tensor_count):
            self._add_storage(i)
        for stage in range(self.stage_count):
            self._add_stage(stage)

    def _extra_bytes(self, k: int) -> int:
        graph, size, index = self.problem.graph, self.problem.size, self.problem.tensor_index
        if k == len(graph.ops):
            return 0
        op = graph.ops[k]
        return op.workspace_bytes - sum(
            min(size[index[written]], size[index[read]]) for written, read in op.in_place.items()
        )

    def first_stage(self, i: int) -> int:
        """The first that may begin with tensor ``i`` in RAM."""
        if self.problem.starts_in_ram[i]:
            return 0
        return max(self.problem.producer[i], 0) + 1

    def _add_storage(self, i: int) -> None:
        problem, column = self.problem, self.program.column
        stored = problem.starts_in_storage[i]
        made = problem.producer[i]
        if problem.can_page_in[i]:
            for stage in range(made + 1, self.stage_count):
                # The copy of what lives in storage stays valid: no op writes it.
                self.s_sd[stage, i] = column(lower=float(stored), upper=float(stored or stage > 0))
                self.m_in[stage, i] = column(cost=self._costs.page_in[i])
        must_page_out = problem.graph.tensors[i].persist == "storage"
        if not stored and (problem.can_page_out[i] or must_page_out):
            for stage in range(max(made, 0), self.stage_count):
                self.m_out[stage, i] = column(cost=self._costs.page_out[i])

    def _add_stage(self, stage: int) -> None:
        problem, column = self.problem, self.program.column
        for k in range(stage):
            self.r[stage, k] = column(cost=self._costs.op[k], upper=float(problem.recomputable[k]))
        # What computing every op once costs is the constant.
        self.r[stage, stage] = column(lower=1.0)
        for i in range(self.tensor_count):
            if stage >= self.first_stage(i):
                self.s_ram[stage, i] = column()
            if (stage, i) in self.m_in:
                for k in self.readers[i]:
                    if k <= stage:
                        self.in_e[stage, i, k] = column(integer=False)
        for k in range(stage + 1):
            self.u[stage, k] = column(
                upper=(self.budget_bytes - min(0, self.extra_bytes[k])) / self.memory_scale,
                integer=False,
            )
            # After the last op of a stage, S_ram of the next says what is left.
            if k < stage:
                for i in self.may_go_after[k]:
                    self.free_e[stage, i, k] = column()

    def sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i`` is in RAM at some time in ``stage``."""
        made = self.problem.producer[i]
        keys = ((self.r, made), (self.s_ram, i), (self.m_in, i))
        return [table[stage, index] for table, index in keys if (stage, index) in table]
