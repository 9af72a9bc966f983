"""``PoetFormulation``: POET's program, and its conversion to and from schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from solver.engines.program import Program, weighted_sum
from solver.formulations.deadline import DeadlineRows
from solver.formulations.memory import MemoryRows, scale_memory
from solver.formulations.poet.columns import add_columns
from solver.formulations.poet.rows import add_rows
from solver.formulations.scaled_costs import scale_costs
from solver.formulations.staged import RESTRICTIONS, is_chosen, stage_accesses
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.problem.stages import stages_of


class PoetFormulation:
    """POET's :class:`~solver.formulations.formulation.Formulation` of one problem."""

    restrictions = RESTRICTIONS

    def __init__(self, problem: Problem, minimise: Literal["energy", "time"] = "energy") -> None:
        self.problem = problem
        self.program = Program()
        sizes = (*problem.size, *problem.extra_bytes)
        self.memory = MemoryRows(self.program, scale_memory(problem.budget.ram_bytes, sizes))
        self.costs = scale_costs(problem, minimise, self.memory.scale)
        self.columns = add_columns(
            problem, stage_accesses(problem), self.costs, self.memory.scale, self.program
        )
        self._u_terms = add_rows(self.columns, self.memory, self.program)
        self.deadline = DeadlineRows(
            problem,
            self.program,
            self.costs,
            recompute=[(k, c) for (stage, k), c in self.columns.r.items() if k < stage],
            page_in=[(i, column) for (_, i), column in self.columns.m_in.items()],
            page_out=[(i, column) for (_, i), column in self.columns.m_out.items()],
        )

    def add_memory_cuts(
        self,
        values: Sequence[float],  # noqa: ARG002
        ram_bytes: int,  # noqa: ARG002
        per_stage: int,  # noqa: ARG002
    ) -> bool:
        """Add nothing, since the rows are complete."""
        return False

    def decode(self, values: Sequence[float]) -> tuple[Action, ...]:
        """Convert a solution to a schedule."""
        problem, columns, graph = self.problem, self.columns, self.problem.graph
        reads, writes = columns.accesses.reads, columns.accesses.writes
        tensors = range(len(graph.tensors))
        stored = {i for i in tensors if problem.starts_in_storage[i]}
        actions: list[Action] = []

        def page_out(stage: int, candidates: Sequence[int]) -> None:
            for i in candidates:
                if is_chosen(values, columns.m_out, stage, i) and i not in stored:
                    stored.add(i)
                    actions.append(PageOut(tensor=graph.tensors[i].name))

        for stage in range(columns.stage_count):
            made = set(writes[stage])
            page_out(stage, [i for i in tensors if i not in made])
            paged_in = {
                i
                for i in tensors
                if is_chosen(values, columns.m_in, stage, i)
                and not is_chosen(values, columns.s_ram, stage, i)
                and not is_chosen(values, columns.r, stage, problem.producer[i])
            }
            for k in range(stage + 1):
                if is_chosen(values, columns.r, stage, k):
                    for i in reads[k]:
                        if i in paged_in:
                            paged_in.discard(i)
                            actions.append(PageIn(tensor=graph.tensors[i].name))
                    if k < len(graph.ops):
                        actions.append(Compute(op=graph.ops[k].name))
            page_out(stage, writes[stage])
        return with_frees(graph, actions)

    def encode(self, actions: Sequence[Action]) -> list[float] | None:
        """Convert a schedule to a solution; None if the program excludes it.

        First executions must keep the graph's order. Page-outs are moved to the earliest stage.
        """
        problem, columns = self.problem, self.columns
        values = [0.0] * len(self.program.cost)
        paged_out = {action.tensor for action in actions if isinstance(action, PageOut)}
        for (stage, i), column in columns.m_out.items():
            first = stage == max(problem.producer[i], 0)
            values[column] = float(first and problem.graph.tensors[i].name in paged_out)
        for (_, i), column in columns.s_sd.items():
            name = problem.graph.tensors[i].name
            values[column] = self.program.upper[column] * float(
                problem.starts_in_storage[i] or name in paged_out
            )
        # If no tensor must persist in RAM, nothing is needed after the last op.
        stages = stages_of(problem, actions)[: columns.stage_count]
        for stage, done in enumerate(stages):
            if any(k > stage for k in done.recomputed):
                return None
            computed = {stage, *done.recomputed}
            for k in computed:
                values[columns.r[stage, k]] = 1.0
            for i in done.retained:
                if problem.producer[i] not in done.recomputed and (stage, i) in columns.s_ram:
                    values[columns.s_ram[stage, i]] = 1.0
            for i in done.paged_in - done.retained:
                readers = columns.accesses.readers[i]
                first_reader = next((k for k in readers if k in computed), None)
                if first_reader is None or (stage, i) not in columns.m_in:
                    return None
                values[columns.m_in[stage, i]] = 1.0
                values[columns.in_e[stage, i, first_reader]] = 1.0
        for (stage, i, k), column in columns.free_e.items():
            unneeded = not any(values[c] for c in columns.hazards(stage, i, k))
            values[column] = float(unneeded and values[columns.r[stage, k]] > 0)
        for column, terms in self._u_terms:
            values[column] = weighted_sum(terms, values)
        self.deadline.complete(values)
        return values if self.program.satisfied_by(values) else None
