"""Local search for offsets, over the order in which first fit places blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from devices.errors import BuildFailed
from solver.addresses.first_fit import FirstFit
from solver.addresses.online import first_fit_in_time
from solver.addresses.packing import Packing
from solver.time_limit import OutOfTime, check_time

# Least number of orders tried, whatever amount of work is requested.
_LEAST_PLACEMENTS = 40
# Longest time for which Ctrl-C has to wait.
_SLICE_S = 0.1


class OrderSearch:
    """Local search for the smallest arena; ``offsets`` and ``arena_bytes`` are the best so far.

    It begins with the order ``first``, if given, and orders by size, lifetime, load, area and
    beginning. From these, two neighbourhoods alternate: all blocks beyond the target move forward
    in the order by random amounts (as in squeaky wheel optimisation, Joslin and Clements, JAIR
    1999); and one block of the pile under a block beyond the target is moved. A round of either
    makes the arena smaller, or the sum of what is beyond the target.

    Without a C compiler there is only first fit in the order of time.
    """

    def __init__(
        self, packing: Packing, target_bytes: int, first: Sequence[int] | None = None
    ) -> None:
        self._packing = packing
        self._target_bytes = target_bytes
        self._orders: FirstFit | None = None
        try:
            self._orders = FirstFit(packing, target_bytes)
        except BuildFailed:
            self.offsets = first_fit_in_time(packing.shapes)
            self.arena_bytes = packing.arena(self.offsets)
            return
        starts = _starts(packing, first)
        self._orders.place(next(starts))
        self.arena_bytes, self.offsets = self._orders.best
        with suppress(OutOfTime):
            while not self._is_over and (order := next(starts, None)) is not None:
                check_time()
                self._orders.place(order)
                self._take(self._orders)

    @property
    def _is_over(self) -> bool:
        return self.arena_bytes <= self._target_bytes

    def run(self, work: int, deadline: float) -> None:
        """Search until the target is reached, ``work`` is done, or ``deadline`` has passed.

        ``work`` counts pairs of blocks (a billion take about half a second); ``deadline`` is on
        ``time.monotonic``. A further call continues the search.
        """
        count = len(self._packing.size)
        placements = max(_LEAST_PLACEMENTS, work // (count * (count + 100)))
        with suppress(OutOfTime):
            while self._orders is not None and not self._is_over and placements > 0:
                check_time()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                placements = self._orders.search(placements, min(left_s, _SLICE_S))
                self._take(self._orders)

    def _take(self, orders: FirstFit) -> None:
        arena_bytes, offsets = orders.best
        if arena_bytes < self.arena_bytes:
            self.arena_bytes, self.offsets = arena_bytes, offsets


def _starts(packing: Packing, first: Sequence[int] | None) -> Iterator[list[int]]:
    """Orders to begin with."""
    if first is not None:
        yield list(first)
    size, load = packing.size, packing.load
    start = [shape[0].start for shape in packing.shapes]
    end = [shape[-1].end for shape in packing.shapes]
    life = [e - s for s, e in zip(start, end, strict=True)]
    most = []
    for s, e in zip(start, end, strict=True):
        check_time()
        most.append(max(load[s:e]))
    blocks = range(len(size))
    yield sorted(blocks, key=lambda i: (-size[i], -life[i]))
    yield sorted(blocks, key=lambda i: (-life[i], -size[i]))
    yield sorted(blocks, key=lambda i: (-most[i], -size[i]))
    yield sorted(blocks, key=lambda i: -size[i] * life[i])
    yield sorted(blocks, key=lambda i: (start[i], -end[i]))
