"""Binomial checkpointing (Griewank & Walther, ACM TOMS 2000, algorithm 799 *revolve*)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from solver.baselines.baseline import BaselineResult, cheapest, ladder
from solver.baselines.checkpointing import (
    CheckpointedPass,
    Unavailable,
    articulation_points,
    forward_end,
)
from solver.problem.problem import Problem
from solver.problem.schedule import Step

# How many numbers of checkpoints are tried.
_MOST_TRIED = 40


def griewank(problem: Problem, time_limit_s: float) -> BaselineResult:
    """A chain of l steps is reversed with c checkpoints at the least number of steps done again, if
    all cost the same. Steps are the segments between articulation points of the forward graph or,
    as in Checkmate, the ops of its linearization; the number of checkpoints is the one that fits at
    the least cost.
    """
    if not forward_end(problem):
        return BaselineResult(None, "the graph has no backward pass to recompute for")
    nothing = "what would be recomputed cannot be"
    return cheapest(problem, _candidates(problem), time_limit_s, nothing)


def reversed_with(
    problem: Problem, cuts: Sequence[int], checkpoints: int
) -> tuple[Step, ...] | None:
    """The schedule that has at most ``checkpoints`` states in RAM, the one before the first step
    counted; None where something cannot be computed again that would have to be."""
    chain = CheckpointedPass(problem, cuts)
    kept: list[int] = []
    # What is still to be reversed, innermost last: (first step, end, checkpoints to use).
    pending = [(0, chain.segment_count, checkpoints)]
    try:
        while pending:
            first, end, free = pending.pop()
            while kept and kept[-1] >= first:
                state = kept.pop()
                chain.release(state, kept)
            if end - first == 1:
                chain.turn(first)
                continue
            middle = first + steps_before_checkpoint(end - first, free)
            for step in range(first, middle):
                chain.advance(step)
            if free > 1:
                chain.keep(middle - 1)
                kept.append(middle - 1)
                pending += [(first, middle, free), (middle, end, free - 1)]
            else:
                chain.turn(middle)
                pending.append((first, middle, free))
        return chain.steps()
    except Unavailable:
        return None


def repetitions(steps: int, checkpoints: int) -> int:
    """The least number of steps done again to reverse a chain of ``steps``, l, with c checkpoints:
    r · l - β(c + 1, r - 1), where β(c, r) = C(c + r, c) and r is the least with β(c, r) ≥ l."""
    r = _most_repeated(steps, checkpoints)
    return r * steps - _beta(checkpoints + 1, r - 1)


def steps_before_checkpoint(steps: int, checkpoints: int) -> int:
    """How far to go before the next state is kept, so that the number of steps done again is least.
    With one checkpoint left it is the initial state, and the way goes to the last step."""
    if checkpoints == 1:
        return steps - 1
    r = _most_repeated(steps, checkpoints)
    return max(1, _beta(checkpoints, r - 2), steps - _beta(checkpoints - 1, r))


def _most_repeated(steps: int, checkpoints: int) -> int:
    r = 0
    while _beta(checkpoints, r) < steps:
        r += 1
    return r


def _beta(checkpoints: int, repeated: int) -> int:
    return math.comb(checkpoints + repeated, checkpoints) if repeated >= 0 else 0


def _candidates(problem: Problem) -> Iterator[tuple[str, tuple[Step, ...]]]:
    for name, cuts in (
        ("articulation points", articulation_points(problem)),
        ("linearized", list(range(forward_end(problem) - 1))),
    ):
        if not cuts:
            continue
        for checkpoints in ladder(len(cuts) + 1, _MOST_TRIED):
            steps = reversed_with(problem, cuts, checkpoints)
            if steps is not None:
                yield f"{name}: {checkpoints} checkpoints", steps
