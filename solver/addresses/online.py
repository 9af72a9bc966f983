"""Offsets by first fit in the order of time, as an allocator that runs beside the step finds them.

It needs no list of the blocks that overlap each other, which grows with the square of their number,
and so it answers at once for graphs of any size.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from solver.addresses.residencies import Span


def first_fit_in_time(shapes: Sequence[tuple[Span, ...]]) -> list[int]:
    """Offset of each block, which has its largest size from its beginning to its end."""
    offsets = [0] * len(shapes)
    holes = _Holes()
    ends: list[tuple[int, int, int]] = []  # moment, offset and size of the blocks in the arena
    for i in sorted(range(len(shapes)), key=lambda i: shapes[i][0].start):
        shape = shapes[i]
        while ends and ends[0][0] <= shape[0].start:
            _, offset, size = heapq.heappop(ends)
            holes.release(offset, size)
        size = max(span.bytes for span in shape)
        offsets[i] = holes.take(size)
        heapq.heappush(ends, (shape[-1].end, offsets[i], size))
    return offsets


class _Holes:
    """Free ranges of an arena without end, as ascending and separate pairs of low and high."""

    def __init__(self) -> None:
        self._holes: list[tuple[float, float]] = [(0, inf)]

    def take(self, size: int) -> int:
        position, (low, high) = next(
            (position, hole)
            for position, hole in enumerate(self._holes)
            if hole[1] - hole[0] >= size
        )
        self._holes[position : position + 1] = [(low + size, high)] if low + size < high else []
        return int(low)

    def release(self, offset: int, size: int) -> None:
        low: float = offset
        high: float = offset + size
        position = bisect_left(self._holes, (low, high))
        first, last = position, position
        if position < len(self._holes) and self._holes[position][0] == high:
            high = self._holes[position][1]
            last += 1
        if position and self._holes[position - 1][1] == low:
            low = self._holes[position - 1][0]
            first -= 1
        self._holes[first:last] = [(low, high)]
