"""Binomial checkpointing (Griewank and Walther, ACM TOMS 2000, algorithm 799 *revolve*)."""

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
from solver.problem.schedule import Action

# Most numbers of checkpoints that are tried.
_MOST_TRIED = 40


def griewank(problem: Problem, time_limit_s: float, _threads: int) -> BaselineResult:
    """Reverse a chain of segments with a number of checkpoints and the fewest recomputed segments.

    The number of recomputed segments is minimal if all segments cost the same. Segments lie between
    articulation points of the forward graph or, as in Checkmate, are the ops of its linearization.
    The number of checkpoints is chosen for the least cost within the budget.
    """
    if not forward_end(problem):
        return BaselineResult(None, "the graph has no backward pass to recompute for")
    nothing = "a tensor that must be recomputed cannot be"
    return cheapest(problem, _candidates(problem), time_limit_s, nothing)


def reversed_with(
    problem: Problem, cuts: Sequence[int], checkpoints: int
) -> tuple[Action, ...] | None:
    """Schedule with at most ``checkpoints`` states in RAM, including the initial state.

    Returns None if a needed tensor cannot be recomputed.
    """
    chain = CheckpointedPass(problem, cuts)
    kept: list[int] = []
    # Chains still to be reversed, innermost last: (first segment, end, checkpoints to use).
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
            middle = first + segments_before_checkpoint(end - first, free)
            for segment in range(first, middle):
                chain.advance(segment)
            if free > 1:
                chain.keep(middle - 1)
                kept.append(middle - 1)
                pending += [(first, middle, free), (middle, end, free - 1)]
            else:
                chain.turn(middle)
                pending.append((first, middle, free))
        return chain.actions()
    except Unavailable:
        return None


def repetitions(segments: int, checkpoints: int) -> int:
    """Least number of recomputed segments for reversing a chain.

    For l segments and c checkpoints it is r · l - β(c + 1, r - 1), where β(c, r) = C(c + r, c) and
    r is the least number with β(c, r) ≥ l.
    """
    r = _most_repeated(segments, checkpoints)
    return r * segments - _beta(checkpoints + 1, r - 1)


def segments_before_checkpoint(segments: int, checkpoints: int) -> int:
    """Number of segments to advance before the next checkpoint for the fewest recomputations.

    With one checkpoint left, which is the initial state, advance to the last segment.
    """
    if checkpoints == 1:
        return segments - 1
    r = _most_repeated(segments, checkpoints)
    return max(1, _beta(checkpoints, r - 2), segments - _beta(checkpoints - 1, r))


def _most_repeated(segments: int, checkpoints: int) -> int:
    r = 0
    while _beta(checkpoints, r) < segments:
        r += 1
    return r


def _beta(checkpoints: int, repeated: int) -> int:
    return math.comb(checkpoints + repeated, checkpoints) if repeated >= 0 else 0


def _candidates(problem: Problem) -> Iterator[tuple[str, tuple[Action, ...]]]:
    for name, cuts in (
        ("articulation points", articulation_points(problem)),
        ("linearized", list(range(forward_end(problem) - 1))),
    ):
        if not cuts:
            continue
        for checkpoints in ladder(len(cuts) + 1, _MOST_TRIED):
            actions = reversed_with(problem, cuts, checkpoints)
            if actions is not None:
                yield f"{name}: {checkpoints} checkpoints", actions
