"""Common parts of the formulations by stages, as in Checkmate (Jain et al., MLSys 2020).

Stage ``t`` ends with the first execution of op ``t``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from solver.problem.claims import GIVEN_ORDER
from solver.problem.problem import Problem

# Columns by stage and op, or by stage and tensor.
StageTable: TypeAlias = Mapping[tuple[int, int], int]

# What the schedules have in common that a formulation by stages can express.
RESTRICTIONS = (
    GIVEN_ORDER,
    "between two first executions each op is recomputed at most once, in the graph's order",
    "between two first executions a tensor that was in RAM and was freed is not paged in again",
)


@dataclass(frozen=True)
class StageAccesses:
    """Tensors that each op reads and writes, and the ops that read each tensor.

    An additional last op represents the end of the step: it costs nothing and reads the tensors
    that must persist in RAM.
    """

    reads: Sequence[Sequence[int]]
    writes: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]

    def touched(self, k: int) -> set[int]:
        """Tensors that op ``k`` reads or writes."""
        return {*self.reads[k], *self.writes[k]}


def stage_accesses(problem: Problem) -> StageAccesses:
    """Collect the reads and writes of the ops of ``problem`` and of the end of the step."""
    tensors = problem.graph.tensors
    persistent = [i for i, tensor in enumerate(tensors) if tensor.persist == "ram"]
    reads = [*problem.reads, persistent]
    readers: list[list[int]] = [[] for _ in tensors]
    for k, read in enumerate(reads):
        for i in read:
            readers[i].append(k)
    return StageAccesses(reads, [*problem.writes, []], readers)


def is_chosen(values: Sequence[float], table: StageTable, stage: int, index: int) -> bool:
    """Whether the column for ``stage`` and ``index`` exists and is 1 in a solution."""
    return (stage, index) in table and values[table[stage, index]] > 0.5
