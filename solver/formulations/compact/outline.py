"""Presolve of the compact program: tensors that stay in RAM, sizes, and useful stages.

A stage is useful for a tensor or a recomputation if an op can still read the result in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solver.formulations.staged import RESTRICTIONS, StageAccesses, stage_accesses
from solver.problem.footprint import footprint_bytes
from solver.problem.problem import Problem

# Additional restrictions of a simplified program.
_NOT_BEFORE_UPDATES = "nothing is recomputed right before an update"
_SMALL_STAY = (
    "each tensor of at most {small_bytes} bytes has RAM of its own, from the stage that makes it to"
    " the last one that may use or remake it"
)
# Largest share of the budget for one small tensor, and for all of them together.
_SMALL, _SMALL_TOGETHER = 0.001, 0.02


@dataclass(frozen=True)
class Outline:
    """Facts about a problem by stage, op and tensor.

    ``stays_until`` is, for a tensor that is never freed before its last use, the last stage that
    has it in RAM, and -1 for a tensor with columns. ``size`` is the bytes of each tensor with
    columns, 0 for one that stays; ``standing`` the bytes of those that stay, by stage;
    ``footprint`` the bytes of each op without those that stay. ``last_use`` is the last stage that
    may read a tensor, ``last_recompute`` the last stage in which recomputing an op can be useful,
    -1 if none. ``may_recompute`` says for each stage whether it may recompute ops.
    """

    accesses: StageAccesses
    stays_until: Sequence[int]
    size: Sequence[int]
    standing: Sequence[int]
    footprint: Sequence[int]
    last_use: Sequence[int]
    last_recompute: Sequence[int]
    may_recompute: Sequence[bool]
    restrictions: tuple[str, ...]

    @property
    def stage_count(self) -> int:
        """Number of stages: one for each op, and one for the end of the step."""
        return len(self.footprint)


def outline_problem(problem: Problem, *, simplify: bool) -> Outline:
    """Compute the outline. ``simplify`` makes the program smaller by further restrictions."""
    graph = problem.graph
    accesses = stage_accesses(problem)
    may_recompute = [not (simplify and op.phase == "update") for op in graph.ops]
    until = _removable_from(problem)
    small_bytes = _largest_small_bytes(problem, until) if simplify else 0
    stays_until = [
        stage if size <= small_bytes else -1
        for stage, size in zip(until, problem.size, strict=True)
    ]
    size = [
        0 if stage >= 0 else size for stage, size in zip(stays_until, problem.size, strict=True)
    ]
    last_use, last_recompute = _last_useful_stages(problem, accesses, stays_until)
    further = []
    if not all(may_recompute):
        further.append(_NOT_BEFORE_UPDATES)
    if small_bytes:
        further.append(_SMALL_STAY.format(small_bytes=small_bytes))
    return Outline(
        accesses=accesses,
        stays_until=stays_until,
        size=size,
        standing=_standing_bytes(problem, stays_until, last_use, last_recompute),
        footprint=_footprints(problem, accesses, size),
        last_use=last_use,
        last_recompute=last_recompute,
        may_recompute=[*may_recompute, True],
        restrictions=(*RESTRICTIONS, *further),
    )


def _removable_from(problem: Problem) -> list[int]:
    """Stage until which each tensor can stay in RAM, -1 for a tensor that cannot.

    It is the stage in which the tensor is written over, or the end of the step. A tensor that an op
    writes over cannot stay if that op can be recomputed.
    """
    end = len(problem.graph.ops)
    until = [-1 if stored else end for stored in problem.starts_in_storage]
    for k, consumed in enumerate(problem.consumes):
        for i in consumed:
            until[i] = -1 if problem.recomputable[k] else min(until[i], k)
    return until


def _largest_small_bytes(problem: Problem, until: Sequence[int]) -> int:
    """Size up to which a tensor that can stay counts as small; 0 if none is small."""
    budget_bytes = problem.budget.ram_bytes
    counts = Counter(size for size, stage in zip(problem.size, until, strict=True) if stage >= 0)
    largest, together = 0, 0
    for size in sorted(counts):
        together += size * counts[size]
        if size > _SMALL * budget_bytes or together > _SMALL_TOGETHER * budget_bytes:
            break
        largest = size
    return largest


def _last_useful_stages(
    problem: Problem, accesses: StageAccesses, stays_until: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Compute ``last_use`` and ``last_recompute`` of the outline."""
    op_count = len(problem.graph.ops)
    last_use = [-1] * len(problem.graph.tensors)
    last_recompute = [-1] * (op_count + 1)

    def settle(tensors: Iterable[int]) -> None:
        for i in tensors:
            uses = (max(j, last_recompute[j]) for j in accesses.readers[i])
            last_use[i] = max(uses, default=-1)

    for k in reversed(range(op_count)):
        settle(problem.writes[k])
        if problem.recomputable[k]:
            useful = (i for i in problem.writes[k] if last_use[i] > stays_until[i])
            last = max((last_use[i] for i in useful), default=-1)
            last_recompute[k] = last if last > k else -1
    settle(i for i, producer in enumerate(problem.producer) if producer < 0)
    return last_use, last_recompute


def _standing_bytes(
    problem: Problem,
    stays_until: Sequence[int],
    last_use: Sequence[int],
    last_recompute: Sequence[int],
) -> list[int]:
    """Bytes of the tensors that stay, by stage."""
    standing = [0] * (len(problem.graph.ops) + 1)
    for i, until in enumerate(stays_until):
        made, size = problem.producer[i], problem.size[i]
        if until < 0 or not size:
            continue
        again = last_recompute[made] if made >= 0 else -1
        for stage in range(max(made, 0), min(until, max(made, last_use[i], again)) + 1):
            standing[stage] += size
    return standing


def _footprints(problem: Problem, accesses: StageAccesses, size: Sequence[int]) -> list[int]:
    """Bytes that each op and the end of the step take, with tensors of bytes ``size``."""
    size_of = dict(zip(problem.tensor_index, size, strict=True))
    ops = [footprint_bytes(op, size_of) for op in problem.graph.ops]
    return [*ops, sum(size[i] for i in accesses.reads[-1])]
