"""The *compact* formulation: recomputation and paging as a mixed-integer program.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Paging follows POET (Patil et al., ICML 2022). Binary columns:

- ``recompute[t, k]``: op ``k`` is computed again in stage ``t > k``;
- ``retain[t, i]``: tensor ``i`` is in RAM when stage ``t`` begins, having been there before.
  Stages between which ``i`` can be neither used nor made share one column;
- ``page_in[t, i]``: exists only where an op that reads ``i`` can run in stage ``t``, and is used only
  if one does: paging in for later is dominated by doing it later;
- ``page_out[i]``: one per tensor, right after it was first made (for a tensor that is there from the
  start, before the first op): nothing is gained by doing it later.

What is free and when follows from these, so that memory needs no columns of its own: at the last op
of a stage, RAM holds what the op reads and writes and what is retained into the next stage, one row
per stage. Memory during a recomputation inside a stage takes auxiliary columns; such rows are added
only where a solution was found over budget (:meth:`CompactProgram.limit_memory_at`). With all of them
the program is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from solver.graph import PageCost
from solver.liveness import with_frees
from solver.problem import Problem
from solver.program import Program, Sense
from solver.schedule import Compute, PageIn, PageOut, Step

# What the bound of this formulation is a bound on.
COVERS = "every schedule that keeps to the restrictions"
RESTRICTIONS = (
    "first executions keep the graph's order",
    "between two first executions each op is recomputed at most once, in the graph's order",
    "between two first executions a tensor that was in RAM and was freed is not paged in again",
)

# Costs are scaled so that computing every op once costs this much: engines have absolute tolerances,
# and joules can be 1e-4.
_SCALED_LEAST_COST = 1000.0

Expression = list[tuple[int, float]]


class CompactProgram:
    """The program of one problem; ``minimise`` is its objective, ``unit`` what one unit of the
    program's objective is worth in it (joules, seconds or bytes)."""

    def __init__(self, problem: Problem, minimise: str = "energy") -> None:
        self.problem = problem
        self.program = Program()
        self._minimise = minimise
        self._op_count = len(problem.graph.ops)
        self._tensor_count = len(problem.graph.tensors)
        self.recompute: dict[tuple[int, int], int] = {}
        self.retain: dict[tuple[int, int], int] = {}
        self.page_in: dict[tuple[int, int], int] = {}
        self.page_out: dict[int, int] = {}
        self._limited: set[tuple[int, int]] = set()
        self._stage_rows: dict[int, int] = {}

        least = {"energy": problem.least_energy_j, "time": problem.least_time_s}.get(minimise, 0.0)
        self.unit = least / _SCALED_LEAST_COST if least > 0 else 1.0
        self.constant = least
        # Memory rows are in multiples of what all sizes share, scaled so that a unit of violation
        # stands well above the engines' feasibility tolerance of 1e-6.
        self._grain = math.gcd(*problem.size, *problem.footprint) or 1
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
        for stage in range(self._op_count):
            self._add_stage_memory(stage)
        if problem.budget.deadline_s is not None and minimise != "time":
            self._add_deadline(problem.budget.deadline_s)

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
        for k, op in enumerate(problem.graph.ops):
            for stage in range(k + 1, last_recompute[k] + 1):
                self.recompute[stage, k] = program.column(cost=self._cost(op.energy_j, op.time_s))
        for i, tensor in enumerate(problem.graph.tensors):
            made = problem.producer[i]
            uses = self._stages_that_may_read(i)
            must_page_out = tensor.persist == "storage" and not problem.starts_in_storage[i]
            if must_page_out or (
                problem.can_page_out[i] and problem.can_page_in[i] and any(t > made for t in uses)
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
        """For each tensor the last stage that may read it (the number of ops where it must persist
        in RAM), for each op the last stage in which recomputing it can be of use (-1: none)."""
        problem = self.problem
        last_use = [-1] * self._tensor_count
        last_recompute = [-1] * self._op_count

        def settle(i: int) -> None:
            uses = (max(j, last_recompute[j]) for j in problem.readers[i])
            last_use[i] = max(uses, default=-1)
            if problem.graph.tensors[i].persist == "ram":
                last_use[i] = self._op_count

        for k in reversed(range(self._op_count)):
            for i in problem.writes[k]:
                settle(i)
            if problem.recomputable[k]:
                last = min(max(last_use[i] for i in problem.writes[k]), self._op_count - 1)
                last_recompute[k] = last if last > k else -1
        for i in range(self._tensor_count):
            if problem.producer[i] < 0:
                settle(i)
        return last_use, last_recompute

    def _stages_that_may_read(self, i: int) -> set[int]:
        stages = set(self.problem.readers[i])
        for j in self.problem.readers[i]:
            stages.update(self._recomputing_stages(j))
        return stages

    def _recomputing_stages(self, k: int) -> Iterator[int]:
        stage = k + 1
        while (stage, k) in self.recompute:
            yield stage
            stage += 1

    def _add_retention(self, i: int, last_use: int, uses: set[int]) -> None:
        made = self.problem.producer[i]
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
            if stage == 0:
                column = self.program.column(lower=1.0)
            elif column is None or stage - 1 in events:
                column = self.program.column()
            self.retain[stage, i] = column
        if self.problem.graph.tensors[i].persist == "ram" and column is not None:
            self.program.lower[self.retain[self._op_count, i]] = 1.0

    # --- rows ---------------------------------------------------------------------------------

    def _sources(self, stage: int, i: int) -> list[int]:
        """Columns of which one is 1 if tensor ``i``, made before ``stage``, is at hand in it."""
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
        for stage in range(self._op_count):
            for i in problem.reads[stage]:
                self._row(self._sources(stage, i), [], "=", 1.0)
        for (stage, k), column in self.recompute.items():
            for i in problem.reads[k]:
                self._row([column], self._sources(stage, i), "<", 0.0)
            used = self._uses_within(stage, k)
            if used is not None:
                self._row([column], used, "<", 0.0)
        for (stage, i), column in self.page_in.items():
            if i in self.page_out:
                self._row([column], [self.page_out[i]], "<", 0.0)
            if stage not in problem.readers[i]:
                self._row([column], self._recomputed_readers(stage, i), "<", 0.0)
        for (stage, i), column in self.retain.items():
            if stage > max(problem.producer[i] + 1, 0):
                sources = self._sources(stage - 1, i)
                reads_it = stage - 1 in problem.readers[i]  # then it is at hand anyway
                if column not in sources and not reads_it:
                    self._row([column], sources, "<", 0.0)
        for stage in range(self._op_count):
            for i in range(self._tensor_count):
                # Having it from two sources is dominated by having it from one.
                sources = self._sources(stage, i)
                if len(sources) > 1 and stage not in problem.readers[i]:
                    self._row(sources, [], "<", 1.0)

    def _recomputed_readers(self, stage: int, i: int) -> list[int]:
        return [
            self.recompute[stage, j]
            for j in self.problem.readers[i]
            if (stage, j) in self.recompute
        ]

    def _uses_within(self, stage: int, k: int) -> list[int] | None:
        """Columns of what makes recomputing ``k`` in ``stage`` worth while, None if it always is."""
        used = []
        for i in self.problem.writes[k]:
            if stage in self.problem.readers[i]:
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
                        for j in self.problem.readers[i]
                        if j > k and (stage, j) in self.recompute
                    ]
                    if (stage + 1, i) in self.retain:
                        after.append(self.retain[stage + 1, i])
                    if stage in self.problem.readers[i]:
                        self.program.upper[column] = 0.0
                    for other in after:
                        self._row([column, other], [], "<", 1.0)

    def _add_stage_memory(self, stage: int) -> None:
        touched = {*self.problem.reads[stage], *self.problem.writes[stage]}
        terms = [
            (self.retain[stage + 1, i], self.problem.size[i] / self._memory_scale)
            for i in range(self._tensor_count)
            if i not in touched and (stage + 1, i) in self.retain
        ]
        self._stage_rows[stage] = len(self.program.rows)
        self._memory_row(terms, self.problem.footprint[stage])

    def _memory_row(self, terms: Expression, constant_bytes: int) -> None:
        if self._budget_column is not None:
            terms = [*terms, (self._budget_column, -1.0)]
            self.program.row(terms, "<", -constant_bytes / self._memory_scale)
        else:
            budget = self.problem.budget.ram_bytes // self._grain * self._grain
            self.program.row(terms, "<", (budget - constant_bytes) / self._memory_scale)

    def _add_deadline(self, deadline_s: float) -> None:
        graph = self.problem.graph
        scale = deadline_s or 1.0
        terms: Expression = []
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

    def limit_memory_at(self, stage: int, k: int) -> bool:
        """Make RAM during op ``k`` of ``stage`` count. False if it already does."""
        if k == stage or (stage, k) in self._limited:
            return False
        self._limited.add((stage, k))
        touched = {*self.problem.reads[k], *self.problem.writes[k]}
        footprint = self.problem.footprint[k] / self._memory_scale
        terms: Expression = [(self.recompute[stage, k], footprint)]
        for i in range(self._tensor_count):
            if i not in touched and self.problem.size[i]:
                resident = self._resident_around(stage, k, i)
                if resident is not None:
                    terms.append((resident, self.problem.size[i] / self._memory_scale))
        self._memory_row(terms, 0)
        return True

    def _resident_around(self, stage: int, k: int, i: int) -> int | None:
        """A column that is 1 if tensor ``i`` is in RAM while op ``k`` runs in ``stage``: it came
        before and something needs it after. None where that cannot be."""
        readers = self.problem.readers[i]
        needs = [
            self.recompute[stage, j] for j in readers if j > k and (stage, j) in self.recompute
        ]
        kept = self.retain.get((stage + 1, i))
        if kept is not None:
            needs.append(kept)
        always_needed = stage in readers
        came = [self.retain[stage, i]] if (stage, i) in self.retain else []
        made = self.problem.producer[i]
        if made < k and (stage, made) in self.recompute:
            came.append(self.recompute[stage, made])
        # A page-in happens right before its first reader: it came before if one has run before.
        earlier = (
            [self.recompute[stage, j] for j in readers if j < k and (stage, j) in self.recompute]
            if (stage, i) in self.page_in
            else []
        )
        if not (came or earlier) or not (needs or always_needed):
            return None
        if came == [kept]:
            return kept
        column = self.program.column(integer=False)
        for need in [None] if always_needed else needs:
            needed = [] if need is None else [need]
            if came:
                self._row([column], [*came, *needed], ">", -float(len(needed)))
            for reader in earlier:
                self._row(
                    [column],
                    [*came, self.page_in[stage, i], reader, *needed],
                    ">",
                    -1.0 - len(needed),
                )
        return column

    def tighten_stage_memory(self, stage: int, excess_bytes: int) -> None:
        """Lower the budget of one stage's row by what a solution exceeded it by: an engine may
        violate a row within its tolerance. The bound of what follows is no longer exact."""
        row = self.program.rows[self._stage_rows[stage]]
        lowered = row.right_side - (excess_bytes + self._grain) / self._memory_scale
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
        for stage in range(self._op_count):
            paged_in: set[int] = set()
            recomputed = (k for k in range(stage) if chosen(self.recompute, (stage, k)))
            for k in (*recomputed, stage):
                for i in problem.reads[k]:
                    if i not in paged_in and chosen(self.page_in, (stage, i)):
                        paged_in.add(i)
                        actions.append(PageIn(tensor=graph.tensors[i].name))
                actions.append(Compute(op=graph.ops[k].name))
            for i in problem.writes[stage]:
                if paged_out(i):
                    actions.append(PageOut(tensor=graph.tensors[i].name))
        return with_frees(graph, actions)
