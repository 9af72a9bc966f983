"""Checkmate's approximation: a linear program, rounded (Jain et al., MLSys 2020)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from solver.baselines.baseline import BaselineResult, judged
from solver.engines.engine import Engine
from solver.engines.messages import Finished, Incumbent
from solver.formulations.compact.formulation import MOST_OPS, CompactFormulation
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut

# Shares of the budget reserved for rounding, which takes more memory. The first is the paper's; the
# others are tried if that is too little, and 0 if it is too much.
_ALLOWANCES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.0)
# Values above this are rounded up.
_THRESHOLD = 0.5
# Most rounds of adding memory rows that the relaxation violates.
_MOST_RELAXATIONS = 12


def lp_rounding(problem: Problem, time_limit_s: float, threads: int) -> BaselineResult:
    """Two-phase rounding of the linear relaxation, without paging.

    The relaxation is solved with a tenth of the budget reserved. Retention from stage to stage is
    rounded, and the fewest recomputations that it requires are added. If the result does not fit, a
    larger share of the budget is reserved. Without a result if the graph has so many ops that the
    program takes gigabytes.

    Raises :class:`~devices.errors.EngineFailed`.
    """
    op_count = len(problem.graph.ops)
    if op_count > MOST_OPS:
        return BaselineResult(None, f"the linear program is too large for {op_count} ops")
    deadline = time.monotonic() + time_limit_s
    budget = problem.budget.model_copy(update={"paging": False})
    without_paging = Problem(problem.graph, budget)
    first_failure: BaselineResult | None = None
    infeasible = False
    for allowance in _ALLOWANCES:
        if infeasible and allowance:
            continue  # it is infeasible with less RAM, too
        ram_bytes = int((1 - allowance) * budget.ram_bytes)
        tightened = budget.model_copy(update={"ram_bytes": ram_bytes})
        compact = CompactFormulation(Problem(problem.graph, tightened))
        relaxed = _relaxation(compact, ram_bytes, deadline, threads)
        infeasible = relaxed == "infeasible"
        if isinstance(relaxed, str):
            result = BaselineResult(None, f"ε = {allowance}: the linear program is {relaxed}")
        else:
            actions = rounded(without_paging, compact, relaxed)
            result = (
                BaselineResult(None, "rounding frees a tensor that cannot be recomputed")
                if actions is None
                else judged(problem, actions, f"ε = {allowance}")
            )
        if result.actions is not None:
            return result
        if first_failure is None or (infeasible and not allowance):
            first_failure = result
        if time.monotonic() > deadline:
            break
    assert first_failure is not None
    return first_failure


def _relaxation(
    compact: CompactFormulation, ram_bytes: int, deadline: float, threads: int
) -> list[float] | str:
    """Values of the columns, or the reason why there are none."""
    values: list[float] | None = None
    with Engine("highs") as engine:
        for _ in range(_MOST_RELAXATIONS):
            solved: list[float] | None = None
            for message in engine.minimise(
                compact.program,
                absolute_gap=0.0,
                threads=threads,
                start=None,
                deadline=deadline,
                relax=True,
            ):
                if isinstance(message, Incumbent):
                    solved = message.values
                if isinstance(message, Finished) and message.outcome == "infeasible":
                    return "infeasible"
            if solved is None:
                break
            values = solved
            if not compact.add_memory_cuts(values, ram_bytes, per_stage=1):
                break
    return "not solved within the time limit" if values is None else values


def rounded(
    problem: Problem, compact: CompactFormulation, values: Sequence[float]
) -> tuple[Action, ...] | None:
    """Round a solution to a schedule.

    It retains the tensors whose column is above one half, those that count no bytes and those that
    cannot be recomputed. Returns None if another tensor is needed that cannot be recomputed.
    """
    ops, tensors = problem.graph.ops, problem.graph.tensors
    reads, retain = compact.columns.outline.accesses.reads, compact.columns.retain
    at_hand = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
    stored = {i for i, starts in enumerate(problem.starts_in_storage) if starts}
    actions: list[Action] = []

    def can_be_made(i: int) -> bool:
        return problem.producer[i] >= 0 and problem.recomputable[problem.producer[i]]

    def retained(stage: int, i: int) -> bool:
        if (stage, i) in retain and values[retain[stage, i]] > _THRESHOLD:
            return True
        return not compact.problem.size[i] or (i not in stored and not can_be_made(i))

    def save(made: Sequence[int]) -> None:
        actions.extend(
            PageOut(tensor=tensors[i].name)
            for i in made
            if tensors[i].persist == "storage" and i not in stored
        )

    save(sorted(at_hand))
    for stage in range(len(ops) + 1):
        needed = {
            i
            for i in range(len(tensors))
            if can_be_made(i) and problem.producer[i] < stage and retained(stage + 1, i)
        }
        needed.update(reads[stage])
        again: list[int] = []
        for k in reversed(range(stage)):
            if any(i in needed and i not in at_hand for i in problem.writes[k]):
                if not problem.recomputable[k]:
                    return None
                again.append(k)
                needed.update(problem.reads[k])
        for k in (*reversed(again), stage):
            for i in reads[k]:
                if i not in at_hand and i in stored:
                    actions.append(PageIn(tensor=tensors[i].name))
                    at_hand.add(i)
            if not at_hand.issuperset(reads[k]):
                return None
            if k < len(ops):
                actions.append(Compute(op=ops[k].name))
                at_hand.update(problem.writes[k])
                at_hand.difference_update(problem.consumes[k])
        if stage < len(ops):
            save(problem.writes[stage])
        at_hand = {i for i in at_hand if retained(stage + 1, i)}
    return with_frees(problem.graph, actions)
