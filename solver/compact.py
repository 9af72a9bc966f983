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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from solver.graph import PageCost
from solver.liveness import with_frees
from solver.problem import Problem
from solver.program import Program, Sense
from solver.referee import replay
from solver.schedule import Compute, PageIn, PageOut, Step
from solver.stages import stages_of

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

# Costs are scaled so that computing every op once costs this much: engines have absolute
# tolerances, and joules can be 1e-4.
_SCALED_LEAST_COST = 1000.0

# What a fraction, or a violation relative to the budget, must exceed to be acted upon.
_NOTICEABLE = 1e-6

Expression: TypeAlias = list[tuple[int, float]]

# Stage, op, and for each tensor counted: its index, columns to add, columns to subtract, constant.
_Cut: TypeAlias = tuple[int, int, tuple[tuple[int, tuple[int, ...], tuple[int, ...], int], ...]]


class CompactProgram:
    """The program of one problem; ``minimise`` is its objective, ``unit`` what one unit of the
    program's objective is worth in it (joules, seconds or bytes). ``simplify`` makes it much
    smaller by ``restrictions`` that rarely cost anything, but may leave no solution where
    there is one."""

    def __init__(
        self, problem: Problem, minimise: str = "energy", *, simplify: bool = False
    ) -> None:
        self.problem = problem
        self.program = Program()
        self._minimise = minimise
        self._op_count = len(problem.graph.ops)
        # One more stage ends the step: an op of no cost reads what must persist in RAM.
        end = self._op_count
        persistent = [i for i, t in enumerate(problem.graph.tensors) if t.persist == "ram"]
        self._reads = [*problem.reads, persistent]
        self._writes = [*problem.writes, []]
        self._readers = [
            (*readers, end) if t.persist == "ram" else readers
            for readers, t in zip(problem.readers, problem.graph.tensors, strict=True)
        ]
        self._tensor_count = len(problem.graph.tensors)
        self._simplify = simplify
        self._stays_until = self._find_staying()
        # Counted by stage, not by tensor: what stays.
        self._size = [
            0 if until >= 0 else size
            for until, size in zip(self._stays_until, problem.size, strict=True)
        ]
        self._footprint = [self._footprint_of(k) for k in range(end + 1)]
        self.recompute: dict[tuple[int, int], int] = {}
        self.retain: dict[tuple[int, int], int] = {}
        self.page_in: dict[tuple[int, int], int] = {}
        self.page_out: dict[int, int] = {}
        # Continuous columns: each is the sum of an expression, but at least 0.
        self._derived: list[tuple[int, Expression]] = []
        self._cuts: set[_Cut] = set()
        self._memory_rows: list[int] = []

        least = {"energy": problem.least_energy_j, "time": problem.least_time_s}.get(minimise, 0.0)
        self.unit = least / _SCALED_LEAST_COST if least > 0 else 1.0
        self.constant = least
        # Memory rows are in multiples of what all sizes share, scaled so that a unit of violation
        # stands well above the engines' feasibility tolerance of 1e-6.
        self._grain = math.gcd(*self._size, *self._footprint) or 1
        budget = problem.budget.ram_bytes // self._grain
        self._memory_scale = self._grain * max(1.0, budget / 1e4)
        self._budget_column: int | None = None
        if minimise == "memory":
            self.unit = self._memory_scale
            self._budget_column = self.program.column(
                cost=1.0, upper=problem.budget.ram_bytes / self._memory_scale, integer=False
            )

        self._add_columns()
        self._add_availability()
        self._add_consumption()
        for stage in range(self._op_count + 1):
            self._add_stage_memory(stage)
            self._add_throughout_memory(stage)
        if problem.budget.deadline_s is not None and minimise != "time":
            self._add_deadline(problem.budget.deadline_s)

    def _find_staying(self) -> list[int]:
        """For each tensor that is never given up, the last stage that finds it in RAM; -1 for the
        others. It costs nothing to keep what counts nothing; it goes when it is written over."""
        problem, end = self.problem, self._op_count
        until = [-1 if stored else end for stored in problem.starts_in_storage]
        for k, consumed in enumerate(problem.consumes):
            for i in consumed:
                until[i] = -1 if problem.recomputable[k] else min(until[i], k)
        self._small_bytes = self._largest_small(i for i, u in enumerate(until) if u >= 0)
        return [
            u if size <= self._small_bytes else -1
            for u, size in zip(until, problem.size, strict=True)
        ]

    def _largest_small(self, tensors: Iterable[int]) -> int:
        """Bytes up to which a tensor counts as small; 0 where none does."""
        budget = self.problem.budget.ram_bytes
        counts = Counter(self.problem.size[i] for i in tensors)
        largest, together = 0, 0
        for size in sorted(counts):
            together += size * counts[size]
            if not self._simplify or size > _SMALL * budget or together > _SMALL_TOGETHER * budget:
                break
            largest = size
        return largest

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What the bound leaves out."""
        further = []
        if any(not self._recomputes_in(stage) for stage in range(self._op_count)):
            further.append(_NOT_BEFORE_UPDATES)
        if self._small_bytes:
            further.append(_SMALL_STAY.format(small_bytes=self._small_bytes))
        return (*RESTRICTIONS, *further)

    def _footprint_of(self, k: int) -> int:
        """Bytes that op ``k`` needs, without what stays."""
        size, index = self._size, self.problem.tensor_index
        touched = sum(size[i] for i in {*self._reads[k], *self._writes[k]})
        if k == self._op_count:
            return touched
        op = self.problem.graph.ops[k]
        shared = sum(min(size[index[w]], size[index[r]]) for w, r in op.in_place.items())
        return touched - shared + op.workspace_bytes

    def _standing_bytes(self, last_use: Sequence[int], last_recompute: Sequence[int]) -> list[int]:
        """For each stage, the bytes of what stays."""
        standing = [0] * (self._op_count + 1)
        for i, until in enumerate(self._stays_until):
            made, size = self.problem.producer[i], self.problem.size[i]
            if until < 0 or not size:
                continue
            again = last_recompute[made] if made >= 0 else -1
            for stage in range(max(made, 0), min(until, max(made, last_use[i], again)) + 1):
                standing[stage] += size
        return standing

    # --- columns ------------------------------------------------------------------------------

    def _cost(self, energy_j: float, time_s: float) -> float:
        value = {"energy": energy_j, "time": time_s}.get(self._minimise, 0.0)
        return value / self.unit

    def _page_cost(self, cost: PageCost | None) -> float:
        assert cost is not None
        return self._cost(cost.energy_j, cost.time_s)

    def _add_columns(self) -> None:
        problem, program = self.problem, self.program
        last_use, last_recompute = self._last_useful_stages()
        self._standing = self._standing_bytes(last_use, last_recompute)
        for k, op in enumerate(problem.graph.ops):
            for stage in range(k + 1, last_recompute[k] + 1):
                if self._recomputes_in(stage):
                    self.recompute[stage, k] = program.column(
                        cost=self._cost(op.energy_j, op.time_s)
                    )
        for i, tensor in enumerate(problem.graph.tensors):
            made = max(problem.producer[i], self._stays_until[i])
            uses = {stage for stage in self._stages_that_may_read(i) if stage >= made}
            must_page_out = tensor.persist == "storage"
            may_page_out = problem.can_page_out[i] and problem.can_page_in[i]
            # What lives in storage is written by no op: the copy there stays valid.
            if not problem.starts_in_storage[i] and (
                must_page_out or (may_page_out and any(stage > made for stage in uses))
            ):
                self.page_out[i] = program.column(
                    cost=self._page_cost(tensor.page_out), lower=float(must_page_out)
                )
            if problem.can_page_in[i] and (i in self.page_out or problem.starts_in_storage[i]):
                for stage in sorted(uses):
                    if stage > made:
                        self.page_in[stage, i] = program.column(
                            cost=self._page_cost(tensor.page_in)
                        )
            self._add_retention(i, last_use[i], uses)

    def _last_useful_stages(self) -> tuple[list[int], list[int]]:
        """For each tensor the last stage that may read it, for each op the last stage in which
        recomputing it can be of use (-1: none)."""
        problem = self.problem
        last_use = [-1] * self._tensor_count
        last_recompute = [-1] * (self._op_count + 1)

        def settle(i: int) -> None:
            uses = (max(j, last_recompute[j]) for j in self._readers[i])
            last_use[i] = max(uses, default=-1)

        for k in reversed(range(self._op_count)):
            for i in problem.writes[k]:
                settle(i)
            if problem.recomputable[k]:
                useful = (i for i in problem.writes[k] if last_use[i] > self._stays_until[i])
                last = max((last_use[i] for i in useful), default=-1)
                last_recompute[k] = last if last > k else -1
        for i in range(self._tensor_count):
            if problem.producer[i] < 0:
                settle(i)
        return last_use, last_recompute

    def _stages_that_may_read(self, i: int) -> set[int]:
        stages = set(self._readers[i])
        for j in self._readers[i]:
            stages.update(self._recomputing_stages(j))
        return stages

    def _recomputing_stages(self, k: int) -> Iterator[int]:
        stages = range(k + 1, self._op_count + 1)
        return (stage for stage in stages if (stage, k) in self.recompute)

    def _recomputes_in(self, stage: int) -> bool:
        ops = self.problem.graph.ops
        return not (self._simplify and stage < len(ops) and ops[stage].phase == "update")

    def _add_retention(self, i: int, last_use: int, uses: set[int]) -> None:
        made = max(self.problem.producer[i], self._stays_until[i])
        if made < 0 and not self.problem.starts_in_ram[i]:
            if not uses:
                return
            first = min(uses) + 1
        else:
            first = made + 1
        # Between events nothing can read, make or bring the tensor: one column will do.
        events = uses | {made}
        if made >= 0:
            events.update(self._recomputing_stages(made))
        column: int | None = None
        for stage in range(first, last_use + 1):
            if column is None or stage - 1 in events:
                column = self.program.column()
            self.retain[stage, i] = column

    # --- rows ---------------------------------------------------------------------------------

    def _sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i``, made before ``stage``, is at hand in it
        although it does not stay."""
        keys = (
            (self.retain, (stage, i)),
            (self.page_in, (stage, i)),
            (self.recompute, (stage, self.problem.producer[i])),
        )
        return [table[key] for table, key in keys if key in table]

    def _row(self, plus: Sequence[int], minus: Sequence[int], sense: Sense, right: float) -> None:
        terms = [(column, 1.0) for column in plus] + [(column, -1.0) for column in minus]
        self.program.row(terms, sense, right)

    def _add_availability(self) -> None:
        problem = self.problem
        for stage in range(self._op_count + 1):
            for i in self._reads[stage]:
                if stage > self._stays_until[i]:
                    self._row(self._sources(stage, i), [], "=", 1.0)
        for (stage, k), column in self.recompute.items():
            for i in problem.reads[k]:
                if stage > self._stays_until[i]:
                    self._row([column], self._sources(stage, i), "<", 0.0)
            used = self._uses_within(stage, k)
            if used is not None:
                self._row([column], used, "<", 0.0)
        for (stage, i), column in self.page_in.items():
            if i in self.page_out:
                self._row([column], [self.page_out[i]], "<", 0.0)
            if stage not in self._readers[i]:
                self._row([column], self._recomputed_readers(stage, i), "<", 0.0)
        for (stage, i), column in self.retain.items():
            if stage > max(problem.producer[i], self._stays_until[i], -1) + 1:
                sources = self._sources(stage - 1, i)
                reads_it = stage - 1 in self._readers[i]  # then it is at hand anyway
                if column not in sources and not reads_it:
                    self._row([column], sources, "<", 0.0)
        for stage in range(self._op_count + 1):
            for i in range(self._tensor_count):
                # Having it from two sources is dominated by having it from one.
                sources = self._sources(stage, i)
                if (
                    len(sources) > 1
                    and stage not in self._readers[i]
                    and stage > self._stays_until[i]
                ):
                    self._row(sources, [], "<", 1.0)

    def _recomputed_readers(self, stage: int, i: int) -> list[int]:
        return [self.recompute[stage, j] for j in self._readers[i] if (stage, j) in self.recompute]

    def _uses_within(self, stage: int, k: int) -> list[int] | None:
        """Columns of what makes recomputing ``k`` in ``stage`` worth it, None if it always is."""
        used = []
        for i in self.problem.writes[k]:
            if stage <= self._stays_until[i]:
                continue
            if stage in self._readers[i]:
                return None
            used += self._recomputed_readers(stage, i)
            if (stage + 1, i) in self.retain:
                used.append(self.retain[stage + 1, i])
        return used

    def _add_consumption(self) -> None:
        """What an op writes over is gone: not retained, and not read later in the same stage."""
        for k in range(self._op_count):
            for i in self.problem.consumes[k]:
                if (k + 1, i) in self.retain:
                    self.program.upper[self.retain[k + 1, i]] = 0.0
                for stage in self._recomputing_stages(k):
                    column = self.recompute[stage, k]
                    after = [
                        self.recompute[stage, j]
                        for j in self._readers[i]
                        if j > k and (stage, j) in self.recompute
                    ]
                    if (stage + 1, i) in self.retain:
                        after.append(self.retain[stage + 1, i])
                    if stage in self._readers[i]:
                        self.program.upper[column] = 0.0
                    for other in after:
                        self._row([column, other], [], "<", 1.0)

    def _add_stage_memory(self, stage: int) -> None:
        touched = {*self._reads[stage], *self._writes[stage]}
        terms = [
            (self.retain[stage + 1, i], self._size[i] / self._memory_scale)
            for i in range(self._tensor_count)
            if i not in touched and self._size[i] and (stage + 1, i) in self.retain
        ]
        self._memory_row(terms, self._footprint[stage], stage)

    def _add_throughout_memory(self, stage: int) -> None:
        """At each recomputation in a stage, RAM holds what that op touches and at least what is
        there from the stage's beginning to its end, which one column sums up."""
        recomputed = [k for k in range(stage) if (stage, k) in self.recompute]
        if not recomputed:
            return
        throughout: dict[int, Expression] = {}
        for i in range(self._tensor_count):
            if (stage, i) not in self.retain or not self._size[i]:
                continue
            retained = self.retain[stage, i]
            after = self.retain.get((stage + 1, i))
            if stage in self._readers[i] or after == retained:
                throughout[i] = [(retained, 1.0)]
            elif after is not None:
                others = [c for c in self._sources(stage, i) if c != retained]
                if others:
                    column = self.program.column(integer=False)
                    self._row([column, *others], [after], ">", 0.0)
                    self._derived.append((column, [(after, 1.0), *((c, -1.0) for c in others)]))
                    throughout[i] = [(column, 1.0)]
                else:
                    throughout[i] = [(after, 1.0)]
        if not throughout:
            return
        size = {i: self._size[i] / self._memory_scale for i in throughout}
        total = self.program.column(upper=sum(size.values()), integer=False)
        parts = [(c, v * size[i]) for i, terms in throughout.items() for c, v in terms]
        self.program.row([(total, 1.0), *((c, -v) for c, v in parts)], "=", 0.0)
        self._derived.append((total, parts))
        for k in recomputed:
            terms: Expression = [
                (total, 1.0),
                (self.recompute[stage, k], self._footprint[k] / self._memory_scale),
            ]
            for i in {*self._reads[k], *self._writes[k]}:
                terms += [(c, -v * size[i]) for c, v in throughout.get(i, [])]
            self._memory_row(terms, 0, stage)

    def _memory_row(self, terms: Expression, constant_bytes: int, stage: int) -> None:
        """In ``stage``: the terms, the constant and what stays are within the budget."""
        self._memory_rows.append(len(self.program.rows))
        if self._budget_column is not None:
            terms = [*terms, (self._budget_column, -1.0)]
            constant_bytes += self._standing[stage]
            self.program.row(terms, "<", -constant_bytes / self._memory_scale)
        else:
            budget = self.problem.budget.ram_bytes - self._standing[stage]
            budget = budget // self._grain * self._grain
            self.program.row(terms, "<", (budget - constant_bytes) / self._memory_scale)

    def _add_deadline(self, deadline_s: float) -> None:
        graph = self.problem.graph
        scale = deadline_s or 1.0
        terms: Expression = []
        self._deadline_row = len(self.program.rows)
        for (_, k), column in self.recompute.items():
            terms.append((column, graph.ops[k].time_s / scale))
        for (_, i), column in self.page_in.items():
            cost = graph.tensors[i].page_in
            assert cost is not None
            terms.append((column, cost.time_s / scale))
        for i, column in self.page_out.items():
            cost = graph.tensors[i].page_out
            assert cost is not None
            terms.append((column, cost.time_s / scale))
        self.program.row(terms, "<", (deadline_s - self.problem.least_time_s) / scale)

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
        for stage in range(1, self._op_count + 1):
            present = self._present(stage, values)
            violated = []
            for k in range(stage):
                column = self.recompute.get((stage, k))
                if column is None or values[column] < _NOTICEABLE:
                    continue
                cut, bytes_during = self._residency(stage, k, present, values)
                excess = bytes_during + self._standing[stage] - ram_bytes
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
            for i in range(self._tensor_count)
            if self._size[i]
            and any(values[column] > _NOTICEABLE for column in self._sources(stage, i))
        ]

    def _residency(
        self, stage: int, k: int, present: list[int], values: Sequence[float]
    ) -> tuple[_Cut, float]:
        """The strongest row for op ``k`` of ``stage`` at a solution, and the bytes it finds."""
        touched = {*self._reads[k], *self._writes[k]}
        total = self._footprint[k] * values[self.recompute[stage, k]]
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
                total += self._size[i] * best_value
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
        readers = [j for j in self._readers[i] if j == stage or (stage, j) in self.recompute]
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
        terms: Expression = [(self.recompute[stage, k], self._footprint[k] / self._memory_scale)]
        constant_bytes = 0
        for i, plus, minus, constant in cut[2]:
            size = self._size[i] / self._memory_scale
            terms += [(column, size) for column in plus]
            terms += [(column, -size) for column in minus]
            constant_bytes += constant * self._size[i]
        self._memory_row(terms, constant_bytes, stage)

    # An engine may violate a row within its tolerance. Lowering the row's right side by what a
    # solution exceeded it by rules that out; the bound of what follows is no longer exact.

    def tighten_memory(self, excess_bytes: int) -> None:
        for row in self._memory_rows:
            self._tighten(row, (excess_bytes + self._grain) / self._memory_scale)

    def tighten_deadline(self, excess_s: float) -> None:
        assert self.problem.budget.deadline_s is not None
        self._tighten(self._deadline_row, 2 * excess_s / self.problem.budget.deadline_s)

    def _tighten(self, index: int, amount: float) -> None:
        row = self.program.rows[index]
        lowered = row.right_side - amount
        self.program.row(zip(row.columns, row.coefficients, strict=True), row.sense, lowered)

    # --- from a solution to a schedule --------------------------------------------------------

    def value(self, objective: float) -> float:
        """Of the program's objective, in joules, seconds or bytes."""
        return self.constant + objective * self.unit

    def steps(self, values: Sequence[float]) -> tuple[Step, ...]:
        """The schedule of a solution."""
        graph, problem = self.problem.graph, self.problem

        def chosen(table: dict[tuple[int, int], int], key: tuple[int, int]) -> bool:
            return key in table and values[table[key]] > 0.5

        def paged_out(i: int) -> bool:
            return i in self.page_out and values[self.page_out[i]] > 0.5

        actions: list[Step] = [
            PageOut(tensor=graph.tensors[i].name)
            for i in range(self._tensor_count)
            if problem.starts_in_ram[i] and paged_out(i)
        ]
        for stage in range(self._op_count + 1):
            paged_in: set[int] = set()
            recomputed = (k for k in range(stage) if chosen(self.recompute, (stage, k)))
            for k in (*recomputed, stage):
                for i in self._reads[k]:
                    if i not in paged_in and chosen(self.page_in, (stage, i)):
                        paged_in.add(i)
                        actions.append(PageIn(tensor=graph.tensors[i].name))
                if k < self._op_count:
                    actions.append(Compute(op=graph.ops[k].name))
            actions += [
                PageOut(tensor=graph.tensors[i].name) for i in self._writes[stage] if paged_out(i)
            ]
        return with_frees(graph, actions)

    # --- and back -----------------------------------------------------------------------------

    def values_of(self, steps: Sequence[Step]) -> list[float] | None:
        """The solution that does what ``steps`` do, None if the program has none: its stages keep
        the graph's order."""
        values = [0.0] * len(self.program.cost)
        for i in self.page_out:
            name = self.problem.graph.tensors[i].name
            values[self.page_out[i]] = float(PageOut(tensor=name) in steps)
        for stage, done in enumerate(stages_of(self.problem, steps)):
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
        if self._budget_column is not None:
            peak_bytes = replay(self.problem.graph, steps, self.problem.budget.covers).peak_bytes
            values[self._budget_column] = peak_bytes / self._memory_scale
        for column, expression in self._derived:
            values[column] = max(0.0, math.fsum(values[c] * v for c, v in expression))
        return values if self.program.satisfied_by(values) else None
