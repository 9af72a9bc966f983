"""Dynamic storage allocation: offsets in one arena for shapes that are fixed in time.

Every offset from first fit is a sum of sizes, so offsets are multiples of the greatest common
divisor of the sizes. No further alignment is imposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from solver.addresses.residencies import Span
from solver.time_limit import check_time


class Packing:
    """A packing problem: ``shapes`` are blocks over time, each of which needs one offset.

    ``size`` is the most bytes that a block takes; ``neighbours`` are the blocks that overlap it in
    time; ``heights`` gives, only for blocks whose bytes change over time, the most bytes that they
    take during each neighbour.

    Making one and :meth:`first_fit` take time that grows with the number of pairs of neighbours.
    They raise :class:`~solver.time_limit.OutOfTime` after the enforced limit.
    """

    def __init__(self, shapes: Sequence[tuple[Span, ...]]) -> None:
        self.shapes = tuple(shapes)
        self.size = [max(span.bytes for span in shape) for shape in shapes]
        self.neighbours = _neighbours(shapes)
        self.heights: dict[int, list[int]] = {}
        for i, shape in enumerate(shapes):
            if len(shape) > 1:
                check_time()
                self.heights[i] = [_height_beside(shape, shapes[j]) for j in self.neighbours[i]]
        self.unit = math.gcd(*(span.bytes for shape in shapes for span in shape))

    @cached_property
    def load(self) -> list[int]:
        """Sum of bytes at every moment."""
        return load_of(self.shapes)

    @cached_property
    def bound(self) -> int:
        """Lower bound on the arena in bytes.

        It is the most bytes at any moment or, for a block whose bytes change, what it takes
        together with one other block, whichever of the two is higher in the arena.
        """
        best = max(self.load)
        for i, heights in self.heights.items():
            check_time()
            for j, height in zip(self.neighbours[i], heights, strict=True):
                other = self.height(j, i)
                below = max(self.size[i], height + self.size[j])
                above = max(self.size[j], other + self.size[i])
                best = max(best, min(below, above))
        return best

    def height(self, i: int, j: int) -> int:
        """Most bytes that ``i`` takes during its neighbour ``j``."""
        if i not in self.heights:
            return self.size[i]
        return _height_beside(self.shapes[i], self.shapes[j])

    def first_fit(self, order: Sequence[int]) -> list[int]:
        """Offsets from placing blocks in this order, each as low as it fits."""
        size, neighbours, all_heights = self.size, self.neighbours, self.heights
        offsets = [-1] * len(size)
        taken: list[list[tuple[int, int]]] = [[] for _ in size]
        for i in order:
            check_time()
            if i in all_heights:
                offset = self._fit_changing(i, offsets)
                offsets[i] = offset
                for j, height in zip(neighbours[i], all_heights[i], strict=True):
                    if offsets[j] < 0:
                        taken[j].append((offset, offset + height))
                continue
            offset, needed = 0, size[i]
            occupied = taken[i]
            occupied.sort()
            for low, high in occupied:
                if low - offset >= needed:
                    break
                if high > offset:
                    offset = high
            offsets[i] = offset
            place = (offset, offset + needed)
            for j in neighbours[i]:
                taken[j].append(place)
        return offsets

    def _fit_changing(self, i: int, offsets: Sequence[int]) -> int:
        """Lowest offset of a block that has a different height for each neighbour."""
        placed = [
            (offsets[j], offsets[j] + self.height(j, i), height)
            for j, height in zip(self.neighbours[i], self.heights[i], strict=True)
            if offsets[j] >= 0
        ]
        offset = 0
        while True:
            # Move up to the lowest end of the blocks that overlap, then check again.
            ends = [high for low, high, height in placed if offset < high and low < offset + height]
            if not ends:
                return offset
            offset = min(ends)

    def arena(self, offsets: Sequence[int]) -> int:
        """Bytes up to the end of the highest block."""
        return max((o + s for o, s in zip(offsets, self.size, strict=True)), default=0)


def load_of(shapes: Sequence[tuple[Span, ...]]) -> list[int]:
    """Sum of the bytes of blocks at every moment."""
    change = [0] * (1 + max((shape[-1].end for shape in shapes), default=0))
    for shape in shapes:
        for span in shape:
            change[span.start] += span.bytes
            change[span.end] -= span.bytes
    return list(accumulate(change))


def count_pairs(shapes: Sequence[tuple[Span, ...]]) -> int:
    """Number of pairs of blocks that overlap in time."""
    change = [0] * (1 + max((shape[-1].end for shape in shapes), default=0))
    begun = [0] * len(change)
    for shape in shapes:
        begun[shape[0].start] += 1
        change[shape[0].start] += 1
        change[shape[-1].end] -= 1
    # Blocks that begin at the same moment overlap each other and all that began earlier.
    active = accumulate(change)
    return sum(n * (total - n) + n * (n - 1) // 2 for n, total in zip(begun, active, strict=True))


def _neighbours(shapes: Sequence[tuple[Span, ...]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in shapes]
    active: list[int] = []
    for i in sorted(range(len(shapes)), key=lambda i: shapes[i][0].start):
        check_time()
        start = shapes[i][0].start
        active = [j for j in active if shapes[j][-1].end > start]
        for j in active:
            found[j].append(i)
        found[i] += active
        active.append(i)
    return found


def _height_beside(shape: tuple[Span, ...], other: tuple[Span, ...]) -> int:
    start, end = other[0].start, other[-1].end
    return max(span.bytes for span in shape if span.start < end and start < span.end)
