"""Dynamic storage allocation: offsets in one arena for shapes that are fixed in time.

Every offset from first fit is a sum of sizes, so offsets are multiples of the greatest common
divisor of the sizes. :mod:`solver.addresses.alignment` places them at the beginnings of cache lines
afterwards.
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

    ``size`` is the most bytes that a block takes, and ``unit`` the greatest common divisor of all
    bytes.
    """

    def __init__(self, shapes: Sequence[tuple[Span, ...]]) -> None:
        self.shapes = tuple(shapes)
        self.size = [max(span.bytes for span in shape) for shape in shapes]
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
        for i, shape in enumerate(self.shapes):
            if len(shape) == 1:
                continue
            check_time()
            for j, other in enumerate(self.shapes):
                if j == i or not _is_beside(shape, other):
                    continue
                below = max(self.size[i], _height_beside(shape, other) + self.size[j])
                above = max(self.size[j], _height_beside(other, shape) + self.size[i])
                best = max(best, min(below, above))
        return best

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


def _is_beside(shape: tuple[Span, ...], other: tuple[Span, ...]) -> bool:
    return shape[0].start < other[-1].end and other[0].start < shape[-1].end


def _height_beside(shape: tuple[Span, ...], other: tuple[Span, ...]) -> int:
    start, end = other[0].start, other[-1].end
    return max(span.bytes for span in shape if span.start < end and start < span.end)
