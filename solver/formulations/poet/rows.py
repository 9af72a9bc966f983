"""The rows of POET's program: what an op needs, RAM and storage from stage to stage, the recurrence
of memory within a stage, the deadline.

See :mod:`solver.formulations.poet.formulation` for what they mean.
"""

from __future__ import annotations

from typing import TypeAlias

from solver.formulations.deadline import Timing
from solver.formulations.poet.columns import PoetColumns
from solver.problem.problem import Problem

Terms: TypeAlias = list[tuple[int, float]]


class PoetRows(PoetColumns):
    """Columns and rows: the whole program."""

    def __init__(self, problem: Problem, minimise: str) -> None:
        super().__init__(problem, minimise)
        # The terms of each column of U, in an order in which they can be summed up.
        self.u_terms: list[tuple[int, Terms]] = []
        self._memory_rows: list[int] = []
        self._add_needs()
        self._add_retention()
        self._add_paging()
        self._add_consumption()
        for key in self.free_e:
            self._add_freeing(*key)
        for stage in range(self.stage_count):
            self._add_memory(stage)
        self._limit_memory([(self.r[0, 0], float(self._bytes_at_start()))])
        second_cost = 1.0 / self.unit if minimise == "time" else 0.0
        self._timing = Timing(
            problem, self.program, self._recomputing_s(), self._paging_s(), second_cost
        )

    def _add_needs(self) -> None:
        for (stage, k), column in self.r.items():
            for i in self.reads[k]:
                needed = [c for c in self.sources(stage, i) if c != self.m_in.get((stage, i))]
                needed += self._paged_in_by(stage, i, k)
                self.program.row([(column, 1.0), *((c, -1.0) for c in needed)], "<", 0.0)

    def _paged_in_by(self, stage: int, i: int, k: int) -> list[int]:
        """Columns that say that ``i`` is paged in in ``stage`` for op ``k`` or one before."""
        return [
            self.in_e[stage, i, j] for j in self.readers[i] if j <= k and (stage, i, j) in self.in_e
        ]

    def _add_retention(self) -> None:
        for (stage, i), column in self.s_ram.items():
            if stage > 0:
                sources = self.sources(stage - 1, i)
                self.program.row([(column, 1.0), *((c, -1.0) for c in sources)], "<", 0.0)

    def _add_paging(self) -> None:
        row = self.program.row
        for (stage, i), column in self.s_sd.items():
            if stage > 0 and not self.problem.starts_in_storage[i]:
                before = [self.m_out[stage - 1, i]]
                if (stage - 1, i) in self.s_sd:
                    before.append(self.s_sd[stage - 1, i])
                row([(column, 1.0), *((c, -1.0) for c in before)], "<", 0.0)
        for (stage, i), column in self.m_in.items():
            row([(column, 1.0), (self.s_sd[stage, i], -1.0)], "<", 0.0)
            moments = self._paged_in_by(stage, i, stage)
            row([(column, -1.0), *((c, 1.0) for c in moments)], "=", 0.0)
        for (stage, _, k), column in self.in_e.items():
            row([(column, 1.0), (self.r[stage, k], -1.0)], "<", 0.0)
        for (stage, i), column in self.m_out.items():
            # In its first stage a tensor is paged out when it was made, or was there already.
            if stage > max(self.problem.producer[i], 0):
                row([(column, 1.0), (self.s_ram[stage, i], -1.0)], "<", 0.0)
        for i, tensor in enumerate(self.problem.graph.tensors):
            if tensor.persist == "storage" and not self.problem.starts_in_storage[i]:
                stages = range(max(self.problem.producer[i], 0), self.stage_count)
                row([(self.m_out[stage, i], 1.0) for stage in stages], ">", 1.0)

    def _add_consumption(self) -> None:
        """What an op writes over is not retained. No op after it in the graph's order reads it."""
        for k, consumed in enumerate(self.problem.consumes):
            for i in consumed:
                for stage in range(k, self.stage_count - 1):
                    after = self.s_ram[stage + 1, i]
                    self.program.row([(self.r[stage, k], 1.0), (after, 1.0)], "<", 1.0)

    # --- memory -------------------------------------------------------------------------------

    def hazards(self, stage: int, i: int, k: int) -> list[int]:
        """Columns that, at 1, forbid that ``i`` goes right after op ``k`` of ``stage``."""
        hazards = [self.r[stage, j] for j in self.readers[i] if k < j <= stage]
        if (stage + 1, i) in self.s_ram:
            hazards.append(self.s_ram[stage + 1, i])
        return hazards

    def _add_freeing(self, stage: int, i: int, k: int) -> None:
        """Free_E is 1 exactly if nothing forbids it: linear in its number of hazards, of which that
        op ``k`` is not computed is one (Checkmate, equations 5a and 5b)."""
        hazards = self.hazards(stage, i, k)
        free, computed = self.free_e[stage, i, k], self.r[stage, k]
        terms = [(computed, -1.0), *((c, 1.0) for c in hazards)]
        most = 1.0 + len(hazards)
        self.program.row([(free, 1.0), *terms], ">", 0.0)
        self.program.row([(free, most), *terms], "<", most - 1.0)

    def _add_memory(self, stage: int) -> None:
        """U is what is in RAM while op ``k`` runs, workspace and in-place sharing left out."""
        size, scale = self.problem.size, self.memory_scale
        resident = [i for i in range(self.tensor_count) if size[i] and (stage, i) in self.s_ram]
        before: Terms = [(self.s_ram[stage, i], size[i] / scale) for i in resident]
        for k in range(stage + 1):
            written_bytes = sum(size[i] for i in self.writes[k])
            terms = [*before, (self.r[stage, k], written_bytes / scale)]
            terms += [
                (self.in_e[stage, i, k], size[i] / scale)
                for i in self.reads[k]
                if size[i] and (stage, i, k) in self.in_e
            ]
            u = self.u[stage, k]
            self.program.row([(u, -1.0), *terms], "=", 0.0)
            self.u_terms.append((u, terms))
            self._limit_memory([(u, scale), (self.r[stage, k], self.extra_bytes[k])])
            before = [
                (u, 1.0),
                *(
                    (self.free_e[stage, i, k], -size[i] / scale)
                    for i in self.may_go_after[k]
                    if k < stage
                ),
            ]

    def _limit_memory(self, bytes_terms: Terms) -> None:
        self._memory_rows.append(len(self.program.rows))
        terms = [(column, value / self.memory_scale) for column, value in bytes_terms]
        self.program.row(terms, "<", self.budget_bytes / self.memory_scale)

    def _bytes_at_start(self) -> int:
        starts = zip(self.problem.size, self.problem.starts_in_ram, strict=True)
        return sum(size for size, in_ram in starts if in_ram)

    # --- time ---------------------------------------------------------------------------------

    def _recomputing_s(self) -> Terms:
        ops = self.problem.graph.ops
        return [(c, ops[k].time_s) for (stage, k), c in self.r.items() if k < stage]

    def _paging_s(self) -> Terms:
        problem = self.problem
        return [
            *((column, problem.page_in_due_s[i]) for (_, i), column in self.m_in.items()),
            *((column, problem.page_out_due_s[i]) for (_, i), column in self.m_out.items()),
        ]

    def charge_transfers(self, share: float) -> bool:
        return self._timing.charge(share)

    # An engine may violate a row within its tolerance; see solver.formulations.compact.rows.

    def tighten_memory(self, excess_bytes: int) -> None:
        for row in self._memory_rows:
            self.program.tighten(row, (excess_bytes + self.grain) / self.memory_scale)

    def tighten_deadline(self, excess_s: float) -> None:
        self._timing.tighten(excess_s)
