"""The program of POET (Patil et al., ICML 2022), the reference that other formulations are held
against: small graphs only.

The schedule is cut into stages as in Checkmate (Jain et al., MLSys 2020): stage ``t`` ends with the
first execution of op ``t``; before it, earlier ops may be recomputed, each at most once and in the
graph's order. Columns are those of the paper, by stage ``t`` and by op ``k`` or tensor ``i``:

- ``R[t, k]``: op ``k`` is computed in stage ``t``; lower triangular, 1 on the diagonal;
- ``S_ram[t, i]``, ``S_sd[t, i]``: the tensor is in RAM, has a copy in storage, when ``t`` begins;
- ``M_in[t, i]``, ``M_out[t, i]``: it is paged in, paged out, in stage ``t``;
- ``U[t, k]``: the memory that is taken when op ``k`` was reached in stage ``t``, by recurrence;
- ``Free_E[t, i, k]``: the tensor goes right after op ``k``, which was the last to need it.

What the semantics of ``schedule/2`` ask for beyond the paper:

- Nodes of the paper are both ops and tensors. Here an op may make several tensors, each of which is
  kept, paged and freed by itself; one that was made again but is not wanted goes at once.
- Workspace counts while its op runs, and what an op writes over in place counts once and is gone
  then. What is there from the start may live in storage; what must persist in RAM is read by an op
  that ends the step, in a stage of its own; what must persist in storage is paged out.
- An action moves a whole tensor between two ops. In the paper transfers go on beside a stage: what
  is paged in in a stage takes RAM and is of use from the next one on, and what is made in a stage
  is paged out in the next one at the earliest. Here it is of use, and takes RAM, in the same stage,
  from the op ``k`` on for which it is paged in: ``In_E[t, i, k]``, continuous columns that sum up
  to ``M_in[t, i]``, are 1 for it as soon as the columns of the paper are whole. And what was made
  for the first time can be paged out at once. This allows more than the paper does, and with it the
  optimum is that of :mod:`solver.formulations.compact.formulation`, under the same restrictions.
- Transfers count time against the deadline unless the budget says that they do not (the paper's),
  or run beside ops where the storage has DMA (:mod:`solver.formulations.deadline`).

A tensor that is in RAM from two sources in a stage counts twice: having it from one is as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from solver.formulations.compact.columns import RESTRICTIONS
from solver.formulations.poet.rows import PoetRows
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.problem.stages import stages_of


class PoetProgram(PoetRows):
    """The whole program of one problem, and the way from a solution to a schedule and back.
    ``minimise`` is its objective: energy in joules, or the seconds that count against a deadline;
    ``unit`` is what one unit of the program's objective is worth in it."""

    def __init__(self, problem: Problem, minimise: Literal["energy", "time"] = "energy") -> None:
        super().__init__(problem, minimise)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What the bound leaves out."""
        return RESTRICTIONS

    def value(self, objective: float) -> float:
        """Of the program's objective, in joules or seconds."""
        return self.constant + objective * self.unit

    def bound(self, objective: float) -> float:
        """What a lower bound on the program's objective proves, in joules or seconds."""
        return self.value(objective)

    def memory_cuts(
        self,
        values: Sequence[float],  # noqa: ARG002
        ram_bytes: int,  # noqa: ARG002
        per_stage: int,  # noqa: ARG002
    ) -> bool:
        """There are none: the rows are complete."""
        return False

    def actions(self, values: Sequence[float]) -> tuple[Action, ...]:
        """The schedule of a solution."""
        graph = self.problem.graph

        def chosen(table: dict[tuple[int, int], int], stage: int, index: int) -> bool:
            return (stage, index) in table and values[table[stage, index]] > 0.5

        stored = {i for i in range(self.tensor_count) if self.problem.starts_in_storage[i]}
        actions: list[Action] = []

        def page_out(stage: int, tensors: Sequence[int]) -> None:
            for i in tensors:
                if chosen(self.m_out, stage, i) and i not in stored:
                    stored.add(i)
                    actions.append(PageOut(tensor=graph.tensors[i].name))

        for stage in range(self.stage_count):
            made = set(self.writes[stage])
            page_out(stage, [i for i in range(self.tensor_count) if i not in made])
            paged_in = {
                i
                for i in range(self.tensor_count)
                if chosen(self.m_in, stage, i)
                and not chosen(self.s_ram, stage, i)
                and not chosen(self.r, stage, self.problem.producer[i])
            }
            for k in range(stage + 1):
                if chosen(self.r, stage, k):
                    for i in self.reads[k]:
                        if i in paged_in:
                            paged_in.discard(i)
                            actions.append(PageIn(tensor=graph.tensors[i].name))
                    if k < len(graph.ops):
                        actions.append(Compute(op=graph.ops[k].name))
            page_out(stage, self.writes[stage])
        return with_frees(graph, actions)

    def values_of(self, actions: Sequence[Action]) -> list[float] | None:
        """The solution that does what ``actions`` do, None if the program has none: its stages keep
        the graph's order. What is paged out, is so as soon as it can be."""
        values = [0.0] * len(self.program.cost)
        paged_out = {action.tensor for action in actions if isinstance(action, PageOut)}
        for (stage, i), column in self.m_out.items():
            first = stage == max(self.problem.producer[i], 0)
            values[column] = float(first and self.problem.graph.tensors[i].name in paged_out)
        for (_, i), column in self.s_sd.items():
            name = self.problem.graph.tensors[i].name
            values[column] = self.program.upper[column] * float(
                self.problem.starts_in_storage[i] or name in paged_out
            )
        # Where nothing must persist in RAM, nothing is of use after the last op.
        stages = stages_of(self.problem, actions)[: self.stage_count]
        for stage, done in enumerate(stages):
            if any(k > stage for k in done.recomputed):
                return None
            computed = {stage, *done.recomputed}
            for k in computed:
                values[self.r[stage, k]] = 1.0
            for i in done.retained:
                if self.problem.producer[i] not in done.recomputed and (stage, i) in self.s_ram:
                    values[self.s_ram[stage, i]] = 1.0
            for i in done.paged_in - done.retained:
                first_reader = next((k for k in self.readers[i] if k in computed), None)
                if first_reader is None or (stage, i) not in self.m_in:
                    return None
                values[self.m_in[stage, i]] = 1.0
                values[self.in_e[stage, i, first_reader]] = 1.0
        for (stage, i, k), column in self.free_e.items():
            unneeded = not any(values[c] for c in self.hazards(stage, i, k))
            values[column] = float(unneeded and values[self.r[stage, k]] > 0)
        for column, terms in self.u_terms:
            values[column] = math.fsum(values[c] * v for c, v in terms)
        self._timing.complete(values)
        return values if self.program.satisfied_by(values) else None
