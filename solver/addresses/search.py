"""Local search for offsets, over the order in which first fit places blocks."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from solver.addresses.packing import Packing
from solver.time_limit import OutOfTime, check_time

# Least number of orders tried, whatever amount of work is requested.
_LEAST_PLACEMENTS = 40
_PROMOTIONS = 60
_MOVES = 200
# An arena larger by this share of the bound is accepted with probability 1/e.
_TEMPERATURE = 5e-4


class _Enough(Exception):
    """The target is reached, or the time or work is used up."""


class OrderSearch:
    """Local search for the smallest arena; ``offsets`` and ``arena_bytes`` are the best so far.

    It starts with the order ``first``, if given, and orders by size, lifetime, load, area and
    beginning. Then it alternates two neighbourhoods: all blocks beyond the target move forward in
    the order by random amounts (as in squeaky wheel optimisation, Joslin and Clements, JAIR 1999);
    and one block of the pile under a block beyond the target is moved.
    """

    def __init__(
        self, packing: Packing, target_bytes: int, first: Sequence[int] | None = None
    ) -> None:
        self._packing = packing
        self._target_bytes = target_bytes
        self._work_of_one = 100 + 4 * len(packing.size) + sum(map(len, packing.neighbours))
        self._work_left = 0
        self._deadline = 0.0
        self._chance = random.Random(0)  # noqa: S311
        # Arenas and orders, best first: the initial orders, and each best one when it was found.
        self._starts: list[tuple[int, list[int]]] = []
        self._first = list(_orders(packing)) if first is None else [list(first), *_orders(packing)]
        self.offsets = packing.first_fit(self._first[0])
        self.arena_bytes = packing.arena(self.offsets)

    def run(self, work: int, deadline: float) -> None:
        """Search until the target is reached, ``work`` is done, or ``deadline`` has passed.

        ``work`` counts pairs of neighbours examined (ten million take about a second); ``deadline``
        is on ``time.monotonic``. A further call continues the search.
        """
        if self.arena_bytes <= self._target_bytes:
            return
        self._work_left = max(work, _LEAST_PLACEMENTS * self._work_of_one)
        self._deadline = deadline
        with suppress(_Enough, OutOfTime):
            if not self._starts:
                starts = [(self._place(order)[0], order) for order in self._first]
                self._starts = sorted(starts, key=lambda start: start[0])
            while True:
                self._promote()
                self._move()

    def _place(self, order: Sequence[int]) -> tuple[int, list[int]]:
        """Place blocks by first fit; return arena and offsets. Raises :class:`_Enough`."""
        offsets = self._packing.first_fit(order)
        arena = self._packing.arena(offsets)
        if arena < self.arena_bytes:
            self.arena_bytes, self.offsets = arena, offsets
            if self._starts:
                self._starts.insert(0, (arena, list(order)))
        self._work_left -= self._work_of_one
        reached = self.arena_bytes <= self._target_bytes
        if reached or self._work_left < 0 or time.monotonic() > self._deadline:
            raise _Enough
        return arena, offsets

    def _sticking_out(self, arena: int, offsets: Sequence[int]) -> list[int]:
        limit = max(self._target_bytes, arena - 1)
        size = self._packing.size
        return [i for i, offset in enumerate(offsets) if offset + size[i] > limit]

    def _promote(self) -> None:
        chance = self._chance
        count = len(self._packing.size)
        order = (self._starts[0] if chance.random() < 0.5 else chance.choice(self._starts))[1]
        for _ in range(_PROMOTIONS):
            _, offsets = self._place(order)
            place = [0.0] * count
            for rank, i in enumerate(order):
                place[i] = float(rank)
            for i in self._sticking_out(self.arena_bytes, offsets):
                place[i] *= chance.random()
            for _ in range(2):
                place[chance.randrange(count)] += chance.gauss(0, 0.05 * count)
            order = sorted(range(count), key=place.__getitem__)

    def _move(self) -> None:
        packing, chance = self._packing, self._chance
        order = self._starts[0][1]
        arena, offsets = self._place(order)
        for _ in range(_MOVES):
            i = chance.choice(self._sticking_out(arena, offsets))
            if chance.random() < 0.5:
                i = chance.choice(_pile(packing, offsets, i))
            changed = list(order)
            at = changed.index(i)
            kind = chance.random()
            if kind < 0.5:
                changed.insert(chance.randrange(at + 1), changed.pop(at))
            elif kind < 0.6 or not packing.neighbours[i]:
                changed.insert(chance.randrange(at, len(changed)), changed.pop(at))
            else:
                other = changed.index(chance.choice(packing.neighbours[i]))
                changed[at], changed[other] = changed[other], changed[at]
            new_arena, new_offsets = self._place(changed)
            worse = (new_arena - arena) / (_TEMPERATURE * packing.bound)
            if worse <= 0 or chance.random() < math.exp(-worse):
                order, arena, offsets = changed, new_arena, new_offsets


def _orders(packing: Packing) -> Iterator[list[int]]:
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


def _pile(packing: Packing, offsets: Sequence[int], top: int) -> list[int]:
    """Block ``top`` and the blocks under it, down to offset 0."""
    pile = [top]
    while offsets[pile[-1]]:
        i = pile[-1]
        below = (
            j for j in packing.neighbours[i] if offsets[j] + packing.height(j, i) == offsets[i]
        )
        pile.append(next(below))
    return pile
