"""``CompactFormulation``: the compact program, and its conversion to and from schedules."""

from __future__ import annotations

from collections.abc import Sequence

from solver.engines.program import Program, weighted_sum
from solver.formulations.compact.columns import add_columns
from solver.formulations.compact.cuts import Cut, add_cut, violated_cuts
from solver.formulations.compact.outline import outline_problem
from solver.formulations.compact.rows import add_rows
from solver.formulations.deadline import DeadlineRows
from solver.formulations.memory import MemoryRows, scale_memory
from solver.formulations.scaled_costs import Objective, scale_costs
from solver.formulations.staged import is_chosen
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.problem.stages import stages_of
from solver.referee.referee import replay

# Largest number of ops: the program grows with its square and takes gigabytes beyond this.
MOST_OPS = 600


class CompactFormulation:
    """The compact :class:`~solver.formulations.formulation.Formulation` of one problem.

    ``simplify`` makes the program much smaller by further ``restrictions``. They rarely cost
    energy, but may exclude every schedule of a feasible problem.
    """

    def __init__(
        self, problem: Problem, minimise: Objective = "energy", *, simplify: bool = False
    ) -> None:
        self.problem = problem
        self.program = Program()
        outline = outline_problem(problem, simplify=simplify)
        sizes = (*outline.size, *outline.footprint)
        self.memory = MemoryRows(self.program, scale_memory(problem.budget.ram_bytes, sizes))
        self.costs = scale_costs(problem, minimise, self.memory.scale)
        self.columns = add_columns(problem, outline, self.costs, self.memory.scale, self.program)
        self._derived = add_rows(self.columns, self.memory, self.program)
        self.deadline = DeadlineRows(
            problem,
            self.program,
            self.costs,
            recompute=[(k, column) for (_, k), column in self.columns.recompute.items()],
            page_in=[(i, column) for (_, i), column in self.columns.page_in.items()],
            page_out=self.columns.page_out.items(),
        )
        self._cuts: set[Cut] = set()

    @property
    def restrictions(self) -> tuple[str, ...]:
        """Restrictions of the schedules that the bound covers."""
        return self.columns.outline.restrictions

    def add_memory_cuts(self, values: Sequence[float], ram_bytes: int, per_stage: int) -> bool:
        """Add cuts that a solution violates, at most ``per_stage`` for a stage; whether any was."""
        cuts = list(violated_cuts(self.columns, values, ram_bytes, per_stage, self._cuts))
        for cut in cuts:
            add_cut(self.columns, self.memory, cut)
        self._cuts.update(cuts)
        return bool(cuts)

    def decode(self, values: Sequence[float]) -> tuple[Action, ...]:
        """Convert a solution to a schedule."""
        problem, columns = self.problem, self.columns
        ops, tensors = problem.graph.ops, problem.graph.tensors
        reads, writes = columns.outline.accesses.reads, columns.outline.accesses.writes

        def page_outs(made: Sequence[int]) -> list[Action]:
            paged_out = (i for i in made if i in columns.page_out)
            return [
                PageOut(tensor=tensors[i].name)
                for i in paged_out
                if values[columns.page_out[i]] > 0.5
            ]

        actions = page_outs([i for i, starts in enumerate(problem.starts_in_ram) if starts])
        for stage in range(columns.outline.stage_count):
            paged_in: set[int] = set()
            recomputed = (k for k in range(stage) if is_chosen(values, columns.recompute, stage, k))
            for k in (*recomputed, stage):
                for i in reads[k]:
                    if i not in paged_in and is_chosen(values, columns.page_in, stage, i):
                        paged_in.add(i)
                        actions.append(PageIn(tensor=tensors[i].name))
                if k < len(ops):
                    actions.append(Compute(op=ops[k].name))
            actions += page_outs(writes[stage])
        return with_frees(problem.graph, actions)

    def encode(self, actions: Sequence[Action]) -> list[float] | None:
        """Convert a schedule to a solution; None if the program excludes it.

        First executions must keep the graph's order.
        """
        problem, columns = self.problem, self.columns
        values = [0.0] * len(self.program.cost)
        for i, column in columns.page_out.items():
            values[column] = float(PageOut(tensor=problem.graph.tensors[i].name) in actions)
        for stage, done in enumerate(stages_of(problem, actions)):
            for k in done.recomputed:
                if (stage, k) not in columns.recompute:
                    return None
                values[columns.recompute[stage, k]] = 1.0
            for i in done.retained:
                if problem.producer[i] not in done.recomputed and (stage, i) in columns.retain:
                    values[columns.retain[stage, i]] = 1.0
            for i in done.paged_in - done.retained:
                if (stage, i) not in columns.page_in:
                    return None
                values[columns.page_in[stage, i]] = 1.0
        if columns.budget is not None:
            peak_bytes = replay(problem.graph, actions, problem.budget.covers).peak_bytes
            values[columns.budget] = peak_bytes / self.memory.scale.unit_bytes
        for derived in self._derived:
            values[derived.column] = max(0.0, weighted_sum(derived.terms, values))
        self.deadline.complete(values)
        return values if self.program.satisfied_by(values) else None
