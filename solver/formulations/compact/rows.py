"""The rows of the compact program: availability, consumption, memory at the last op of each stage
and throughout it, the deadline.

See :mod:`solver.formulations.compact.formulation` for what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.engines.program import Sense
from solver.formulations.compact.columns import CompactColumns
from solver.formulations.deadline import Expression, Timing
from solver.problem.problem import Problem


class CompactRows(CompactColumns):
    """Columns and rows; memory inside a stage is limited only by what is there throughout it."""

    def __init__(self, problem: Problem, minimise: str, *, simplify: bool) -> None:
        super().__init__(problem, minimise, simplify=simplify)
        # Continuous columns: each is the sum of an expression, but at least 0.
        self.derived: list[tuple[int, Expression]] = []
        self._memory_rows: list[int] = []
        self._add_availability()
        self._add_consumption()
        for stage in range(self.op_count + 1):
            self._add_stage_memory(stage)
            self._add_throughout_memory(stage)
        second_cost = 1.0 / self.unit if minimise == "time" else 0.0
        self._timing = Timing(
            problem, self.program, self._recomputing_s(), self._paging_s(), second_cost
        )

    def _row(self, plus: Sequence[int], minus: Sequence[int], sense: Sense, right: float) -> None:
        terms = [(column, 1.0) for column in plus] + [(column, -1.0) for column in minus]
        self.program.row(terms, sense, right)

    def _add_availability(self) -> None:
        problem = self.problem
        for stage in range(self.op_count + 1):
            for i in self.reads[stage]:
                if stage > self.stays_until[i]:
                    self._row(self.sources(stage, i), [], "=", 1.0)
        for (stage, k), column in self.recompute.items():
            for i in problem.reads[k]:
                if stage > self.stays_until[i]:
                    self._row([column], self.sources(stage, i), "<", 0.0)
            used = self._uses_within(stage, k)
            if used is not None:
                self._row([column], used, "<", 0.0)
        for (stage, i), column in self.page_in.items():
            if i in self.page_out:
                self._row([column], [self.page_out[i]], "<", 0.0)
            if stage not in self.readers[i]:
                self._row([column], self._recomputed_readers(stage, i), "<", 0.0)
        for (stage, i), column in self.retain.items():
            if stage > max(problem.producer[i], self.stays_until[i], -1) + 1:
                sources = self.sources(stage - 1, i)
                reads_it = stage - 1 in self.readers[i]  # then it is at hand anyway
                if column not in sources and not reads_it:
                    self._row([column], sources, "<", 0.0)
        for stage in range(self.op_count + 1):
            for i in range(self.tensor_count):
                # Having it from two sources is dominated by having it from one.
                sources = self.sources(stage, i)
                if (
                    len(sources) > 1
                    and stage not in self.readers[i]
                    and stage > self.stays_until[i]
                ):
                    self._row(sources, [], "<", 1.0)

    def _recomputed_readers(self, stage: int, i: int) -> list[int]:
        return [self.recompute[stage, j] for j in self.readers[i] if (stage, j) in self.recompute]

    def _uses_within(self, stage: int, k: int) -> list[int] | None:
        """Columns of what makes recomputing ``k`` in ``stage`` worth it, None if it always is."""
        used = []
        for i in self.problem.writes[k]:
            if stage <= self.stays_until[i]:
                continue
            if stage in self.readers[i]:
                return None
            used += self._recomputed_readers(stage, i)
            if (stage + 1, i) in self.retain:
                used.append(self.retain[stage + 1, i])
        return used

    def _add_consumption(self) -> None:
        """What an op writes over is gone: not retained, and not read later in the same stage."""
        for k in range(self.op_count):
            for i in self.problem.consumes[k]:
                if (k + 1, i) in self.retain:
                    self.program.upper[self.retain[k + 1, i]] = 0.0
                for stage in self.recomputing_stages(k):
                    column = self.recompute[stage, k]
                    after = [
                        self.recompute[stage, j]
                        for j in self.readers[i]
                        if j > k and (stage, j) in self.recompute
                    ]
                    if (stage + 1, i) in self.retain:
                        after.append(self.retain[stage + 1, i])
                    if stage in self.readers[i]:
                        self.program.upper[column] = 0.0
                    for other in after:
                        self._row([column, other], [], "<", 1.0)

    def _add_stage_memory(self, stage: int) -> None:
        touched = {*self.reads[stage], *self.writes[stage]}
        terms = [
            (self.retain[stage + 1, i], self.size[i] / self.memory_scale)
            for i in range(self.tensor_count)
            if i not in touched and self.size[i] and (stage + 1, i) in self.retain
        ]
        self.memory_row(terms, self.footprint[stage], stage)

    def _add_throughout_memory(self, stage: int) -> None:
        """At each recomputation in a stage, RAM holds what that op touches and at least what is
        there from the stage's beginning to its end, which one column sums up."""
        recomputed = [k for k in range(stage) if (stage, k) in self.recompute]
        if not recomputed:
            return
        throughout: dict[int, Expression] = {}
        for i in range(self.tensor_count):
            if (stage, i) not in self.retain or not self.size[i]:
                continue
            retained = self.retain[stage, i]
            after = self.retain.get((stage + 1, i))
            if stage in self.readers[i] or after == retained:
                throughout[i] = [(retained, 1.0)]
            elif after is not None:
                others = [c for c in self.sources(stage, i) if c != retained]
                if others:
                    column = self.program.column(integer=False)
                    self._row([column, *others], [after], ">", 0.0)
                    self.derived.append((column, [(after, 1.0), *((c, -1.0) for c in others)]))
                    throughout[i] = [(column, 1.0)]
                else:
                    throughout[i] = [(after, 1.0)]
        if not throughout:
            return
        size = {i: self.size[i] / self.memory_scale for i in throughout}
        total = self.program.column(upper=sum(size.values()), integer=False)
        parts = [(c, v * size[i]) for i, terms in throughout.items() for c, v in terms]
        self.program.row([(total, 1.0), *((c, -v) for c, v in parts)], "=", 0.0)
        self.derived.append((total, parts))
        for k in recomputed:
            terms: Expression = [
                (total, 1.0),
                (self.recompute[stage, k], self.footprint[k] / self.memory_scale),
            ]
            for i in {*self.reads[k], *self.writes[k]}:
                terms += [(c, -v * size[i]) for c, v in throughout.get(i, [])]
            self.memory_row(terms, 0, stage)

    def memory_row(self, terms: Expression, constant_bytes: int, stage: int) -> None:
        """In ``stage``: the terms, the constant and what stays are within the budget."""
        self._memory_rows.append(len(self.program.rows))
        if self.budget_column is not None:
            terms = [*terms, (self.budget_column, -1.0)]
            constant_bytes += self.standing[stage]
            self.program.row(terms, "<", -constant_bytes / self.memory_scale)
        else:
            budget = self.problem.budget.ram_bytes - self.standing[stage]
            budget = budget // self.grain * self.grain
            self.program.row(terms, "<", (budget - constant_bytes) / self.memory_scale)

    def _recomputing_s(self) -> Expression:
        ops = self.problem.graph.ops
        return [(column, ops[k].time_s) for (_, k), column in self.recompute.items()]

    def _paging_s(self) -> Expression:
        problem = self.problem
        return [
            *((column, problem.page_in_due_s[i]) for (_, i), column in self.page_in.items()),
            *((column, problem.page_out_due_s[i]) for i, column in self.page_out.items()),
        ]

    def charge_transfers(self, share: float) -> bool:
        return self._timing.charge(share)

    # An engine may violate a row within its tolerance. Lowering the row's right side by what a
    # solution exceeded it by rules that out; the bound of what follows is no longer exact.

    def tighten_memory(self, excess_bytes: int) -> None:
        for row in self._memory_rows:
            self.program.tighten(row, (excess_bytes + self.grain) / self.memory_scale)

    def tighten_deadline(self, excess_s: float) -> None:
        self._timing.tighten(excess_s)
