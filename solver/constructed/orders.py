"""Orders of ops that need little RAM when everything is kept, by beam search."""

from __future__ import annotations

from dataclasses import dataclass

from solver.problem.problem import Problem
from solver.time_limit import check_time

# Most partial orders kept at each length, and about the most that are looked at in all.
_WIDTH, _MOST_LOOKED_AT = 48, 200_000
# Larger graphs take too long.
_MOST_OPS = 1500


@dataclass(frozen=True)
class _Partial:
    """The first ops of an order: what they leave in RAM, and the most bytes until then."""

    peak_bytes: int
    held_bytes: int
    done: frozenset[int]
    order: tuple[int, ...]


def low_memory_orders(problem: Problem, number: int = 3) -> tuple[tuple[str, ...], ...]:
    """Find orders in which the step needs little RAM with nothing recomputed or paged.

    Partial orders of equal length that did the same ops differ in their peak alone, and only the
    best is kept. No order is returned in which an op overwrites a tensor before another reads it.

    Args:
        problem: The problem; its budget is not used beyond which tensors count.
        number: How many orders to return at most.

    Returns:
        Names of the ops in each order, least peak first; none for a graph of thousands of ops.
    """
    ops = len(problem.graph.ops)
    if ops > _MOST_OPS:
        return ()
    must_precede = _predecessors(problem)
    start = sum(
        size for size, here in zip(problem.size, problem.starts_in_ram, strict=True) if here
    )
    beam = [_Partial(start, start, frozenset(), ())]
    width = min(_WIDTH, max(1, _MOST_LOOKED_AT // ops**2))
    for _ in range(ops):
        longer: dict[frozenset[int], _Partial] = {}
        check_time()
        for partial in beam:
            for k in range(ops):
                if k in partial.done or not must_precede[k] <= partial.done:
                    continue
                candidate = _with(problem, partial, k)
                known = longer.get(candidate.done)
                if known is None or _rank(candidate) < _rank(known):
                    longer[candidate.done] = candidate
        beam = sorted(longer.values(), key=_rank)[:width]
    names = [op.name for op in problem.graph.ops]
    return tuple(tuple(names[k] for k in partial.order) for partial in beam[:number])


def _rank(partial: _Partial) -> tuple[int, int]:
    return partial.peak_bytes, partial.held_bytes


def _predecessors(problem: Problem) -> list[set[int]]:
    """Ops that must come before each op: those that write what it reads, and the other readers of
    what it overwrites."""
    before: list[set[int]] = []
    for k in range(len(problem.graph.ops)):
        writers = {problem.producer[i] for i in problem.reads[k]} - {-1}
        readers = {r for i in problem.consumes[k] for r in problem.readers[i]} - {k}
        before.append(writers | readers)
    return before


def _with(problem: Problem, partial: _Partial, k: int) -> _Partial:
    done = partial.done | {k}
    written = sum(problem.size[i] for i in problem.writes[k])
    during = partial.held_bytes + written + problem.extra_bytes[k]
    freed = sum(
        problem.size[i]
        for i in {*problem.reads[k], *problem.writes[k]}
        if i in problem.consumes[k]
        or (problem.graph.tensors[i].persist != "ram" and done.issuperset(problem.readers[i]))
    )
    return _Partial(
        max(partial.peak_bytes, during),
        partial.held_bytes + written - freed,
        done,
        (*partial.order, k),
    )
