"""The *compact* formulation: recomputation and paging as a mixed-integer program.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Paging follows POET (Patil et al., ICML 2022). Binary columns:

- ``recompute[t, k]``: op ``k`` is computed again in stage ``t > k``;
- ``retain[t, i]``: tensor ``i`` is in RAM when stage ``t`` begins, having been there before.
  Stages between which ``i`` can be neither used nor made share one column;
- ``page_in[t, i]``: exists only where an op that reads ``i`` can run in stage ``t``, and is used
  only if one does: paging in for later is dominated by doing it later;
- ``page_out[i]``: one per tensor, right after it was first made (for a tensor that is there from
  the start, before the first op): nothing is gained by doing it later.

What is free and when follows from these, so that memory needs no columns of its own: at the last
op of a stage, RAM holds what the op reads and writes and what is retained into the next stage, one
row per stage. Memory during a recomputation inside a stage has many more rows, which are added only
where a solution was found over budget (:meth:`CompactProgram.memory_cuts`). With all of them the
program is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from solver.formulations.compact.rows import CompactRows
from solver.formulations.deadline import Expression
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.problem.stages import stages_of
from solver.referee.referee import replay

# The program grows with the square of the number of ops: beyond this many it takes gigabytes.
MOST_OPS = 600

# What a fraction, or a violation relative to the budget, must exceed to be acted upon.
_NOTICEABLE = 1e-6

# Stage, op, and for each tensor counted: its index, columns to add, columns to subtract, constant.
_Cut: TypeAlias = tuple[int, int, tuple[tuple[int, tuple[int, ...], tuple[int, ...], int], ...]]


class CompactProgram(CompactRows):
    """The whole program of one problem, the cuts that make it exact, and the way from a solution to
    a schedule and back. ``minimise`` is its objective, ``unit`` what one unit of the program's
    objective is worth in it (joules, seconds or bytes). ``simplify`` makes it much smaller by
    ``restrictions`` that rarely cost anything, but may leave no solution where there is one."""

    def __init__(
        self, problem: Problem, minimise: str = "energy", *, simplify: bool = False
    ) -> None:
        super().__init__(problem, minimise, simplify=simplify)
        self._cuts: set[_Cut] = set()

    # --- memory inside a stage ----------------------------------------------------------------

    def memory_cuts(self, values: Sequence[float], ram_bytes: int, per_stage: int) -> bool:
        """Add rows, at most ``per_stage`` for a stage, that a solution (fractional ones too)
        violates because RAM is over ``ram_bytes`` during a recomputation. True if a new one was
        found.

        While op ``k`` runs in stage ``t``, RAM holds what ``k`` reads and writes, and every other
        tensor that came before and is needed after. The number of those is bounded from below
        without further columns: a tensor is needed if it is retained into the next stage, or if a
        later op of the stage reads it; whatever is needed came before unless it comes late (is
        made, or paged in, after ``k``), and surely came before if an op before ``k`` has read it.
        """
        found = False
        for stage in range(1, self.op_count + 1):
            present = self._present(stage, values)
            violated = []
            for k in range(stage):
                column = self.recompute.get((stage, k))
                if column is None or values[column] < _NOTICEABLE:
                    continue
                cut, bytes_during = self._residency(stage, k, present, values)
                excess = bytes_during + self.standing[stage] - ram_bytes
                if excess > _NOTICEABLE * ram_bytes and cut not in self._cuts:
                    violated.append((excess, cut, k))
            violated.sort(key=lambda candidate: -candidate[0])
            for _, cut, k in violated[:per_stage]:
                self._cuts.add(cut)
                self._add_cut(stage, k, cut)
                found = True
        return found

    def _present(self, stage: int, values: Sequence[float]) -> list[int]:
        """Tensors that are in RAM at some time in the stage, as far as a solution has it so."""
        return [
            i
            for i in range(self.tensor_count)
            if self.size[i]
            and any(values[column] > _NOTICEABLE for column in self.sources(stage, i))
        ]

    def _residency(
        self, stage: int, k: int, present: list[int], values: Sequence[float]
    ) -> tuple[_Cut, float]:
        """The strongest row for op ``k`` of ``stage`` at a solution, and the bytes it finds."""
        touched = {*self.reads[k], *self.writes[k]}
        total = self.footprint[k] * values[self.recompute[stage, k]]
        chosen: list[tuple[int, tuple[int, ...], tuple[int, ...], int]] = []
        for i in present:
            if i in touched:
                continue
            best, best_value = None, _NOTICEABLE
            for plus, minus, constant in self._lower_bounds(stage, k, i):
                value = constant + sum(values[c] for c in plus) - sum(values[c] for c in minus)
                if value > best_value:
                    best, best_value = (i, plus, minus, constant), value
            if best is not None:
                chosen.append(best)
                total += self.size[i] * best_value
        return (stage, k, tuple(chosen)), total

    def _lower_bounds(
        self, stage: int, k: int, i: int
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """Expressions (columns to add, columns to subtract, constant) that are at most 1 if tensor
        ``i`` is in RAM while op ``k`` runs in ``stage``, and at most 0 if it is not."""
        made = self.problem.producer[i]
        if made >= stage:
            return
        late = []
        if made > k and (stage, made) in self.recompute:
            late.append(self.recompute[stage, made])
        if (stage, i) in self.page_in:
            late.append(self.page_in[stage, i])
        readers = [j for j in self.readers[i] if j == stage or (stage, j) in self.recompute]
        earlier = [self.recompute[stage, j] for j in readers if j < k]
        needs: list[tuple[tuple[int, ...], int]] = []
        if stage in readers:
            needs.append(((), 1))
        else:
            needs += [((self.recompute[stage, j],), 0) for j in readers if j > k]
            if (stage + 1, i) in self.retain:
                needs.append(((self.retain[stage + 1, i],), 0))
        for plus, constant in needs:
            yield plus, tuple(late), constant
            if (stage, i) in self.page_in:
                for column in earlier:
                    yield (*plus, column), (), constant - 1

    def _add_cut(self, stage: int, k: int, cut: _Cut) -> None:
        terms: Expression = [(self.recompute[stage, k], self.footprint[k] / self.memory_scale)]
        constant_bytes = 0
        for i, plus, minus, constant in cut[2]:
            size = self.size[i] / self.memory_scale
            terms += [(column, size) for column in plus]
            terms += [(column, -size) for column in minus]
            constant_bytes += constant * self.size[i]
        self.memory_row(terms, constant_bytes, stage)

    # --- from a solution to a schedule --------------------------------------------------------

    def value(self, objective: float) -> float:
        """Of the program's objective, in joules, seconds or bytes."""
        return self.constant + objective * self.unit

    def bound(self, objective: float) -> float:
        """What a lower bound on the program's objective proves, in joules, seconds or bytes. No
        schedule takes a fraction of what all sizes share."""
        value = self.value(objective)
        if self.minimise != "memory":
            return value
        tolerance = 1e-5 * self.unit
        return math.ceil((value - tolerance) / self.grain) * self.grain

    def actions(self, values: Sequence[float]) -> tuple[Action, ...]:
        """The schedule of a solution."""
        graph, problem = self.problem.graph, self.problem

        def chosen(table: dict[tuple[int, int], int], key: tuple[int, int]) -> bool:
            return key in table and values[table[key]] > 0.5

        def paged_out(i: int) -> bool:
            return i in self.page_out and values[self.page_out[i]] > 0.5

        actions: list[Action] = [
            PageOut(tensor=graph.tensors[i].name)
            for i in range(self.tensor_count)
            if problem.starts_in_ram[i] and paged_out(i)
        ]
        for stage in range(self.op_count + 1):
            paged_in: set[int] = set()
            recomputed = (k for k in range(stage) if chosen(self.recompute, (stage, k)))
            for k in (*recomputed, stage):
                for i in self.reads[k]:
                    if i not in paged_in and chosen(self.page_in, (stage, i)):
                        paged_in.add(i)
                        actions.append(PageIn(tensor=graph.tensors[i].name))
                if k < self.op_count:
                    actions.append(Compute(op=graph.ops[k].name))
            actions += [
                PageOut(tensor=graph.tensors[i].name) for i in self.writes[stage] if paged_out(i)
            ]
        return with_frees(graph, actions)

    # --- and back -----------------------------------------------------------------------------

    def values_of(self, actions: Sequence[Action]) -> list[float] | None:
        """The solution that does what ``actions`` do, None if the program has none: its stages keep
        the graph's order."""
        values = [0.0] * len(self.program.cost)
        for i in self.page_out:
            name = self.problem.graph.tensors[i].name
            values[self.page_out[i]] = float(PageOut(tensor=name) in actions)
        for stage, done in enumerate(stages_of(self.problem, actions)):
            for k in done.recomputed:
                if (stage, k) not in self.recompute:
                    return None
                values[self.recompute[stage, k]] = 1.0
            for i in done.retained:
                if self.problem.producer[i] not in done.recomputed and (stage, i) in self.retain:
                    values[self.retain[stage, i]] = 1.0
            for i in done.paged_in - done.retained:
                if (stage, i) not in self.page_in:
                    return None
                values[self.page_in[stage, i]] = 1.0
        if self.budget_column is not None:
            peak_bytes = replay(self.problem.graph, actions, self.problem.budget.covers).peak_bytes
            values[self.budget_column] = peak_bytes / self.memory_scale
        for column, expression in self.derived:
            values[column] = max(0.0, math.fsum(values[c] * v for c, v in expression))
        self._timing.complete(values)
        return values if self.program.satisfied_by(values) else None
