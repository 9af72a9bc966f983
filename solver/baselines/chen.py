"""Checkpointing with sublinear memory (Chen et al., 2016)."""

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

# Most numbers of segments, and budgets of the greedy rule, that are tried.
_MOST_TRIED = 40


def chen(problem: Problem, time_limit_s: float, _threads: int) -> BaselineResult:
    """Keep the states between segments of the forward pass; recompute segments one by one.

    The result is the cheapest schedule within the budget among these: √n segments of as many
    candidate points each; other numbers of segments; and the paper's greedy rule (algorithm 3),
    which cuts where the results since the last cut exceed a number of bytes.

    Candidate points are the articulation points of the forward graph or, as in Checkmate, all ops
    of its linearization, keeping either all tensors that cross a cut or only those that the op at
    the cut wrote.
    """
    if not forward_end(problem):
        return BaselineResult(None, "the graph has no backward pass to recompute for")
    nothing = "a tensor that must be recomputed cannot be"
    return cheapest(problem, _candidates(problem), time_limit_s, nothing)


def checkpointed_at(
    problem: Problem, cuts: Sequence[int], *, whole_states: bool = True
) -> tuple[Action, ...] | None:
    """Schedule that keeps the states at ``cuts``; None if a needed tensor cannot be recomputed."""
    chain = CheckpointedPass(problem, cuts, whole_states=whole_states)
    last = chain.segment_count - 1
    try:
        for segment in range(last):
            chain.advance(segment)
            chain.keep(segment)
        for segment in reversed(range(chain.segment_count)):
            chain.turn(segment)
            if segment:
                chain.release(segment - 1, range(segment - 1))
        return chain.actions()
    except Unavailable:
        return None


def _candidates(problem: Problem) -> Iterator[tuple[str, tuple[Action, ...]]]:
    everywhere = list(range(forward_end(problem) - 1))
    for name, points, whole_states in (
        ("articulation points", articulation_points(problem), True),
        ("linearized", everywhere, False),
        ("linearized, whole states", everywhere, True),
    ):
        seen: set[tuple[int, ...]] = set()
        for rule, cuts in _segmentations(problem, points):
            if tuple(cuts) in seen:
                continue
            seen.add(tuple(cuts))
            actions = checkpointed_at(problem, cuts, whole_states=whole_states)
            if actions is not None:
                yield f"{name}, {rule}: {len(cuts)} checkpoints", actions


def _segmentations(problem: Problem, points: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    if not points:
        return
    root = round(math.sqrt(len(points) + 1))
    yield "√n", _evenly(points, root)
    for segments in ladder(len(points) + 1, _MOST_TRIED):
        yield "evenly", _evenly(points, segments)
    made = [sum(problem.size[i] for i in writes) for writes in problem.writes]
    total = sum(made[: forward_end(problem)])
    for n in range(_MOST_TRIED):
        yield "greedy by bytes", _greedily(points, made, total * 0.75**n)


def _evenly(points: Sequence[int], segments: int) -> list[int]:
    """Points that cut into ``segments`` with numbers of points as equal as possible."""
    count = len(points) + 1
    return [points[count * s // segments - 1] for s in range(1, segments)]


def _greedily(points: Sequence[int], made: Sequence[int], most_bytes: float) -> list[int]:
    cuts, since_cut, position = [], 0, 0
    for point in points:
        since_cut += sum(made[position : point + 1])
        position = point + 1
        if since_cut > most_bytes:
            cuts.append(point)
            since_cut = 0
    return cuts
