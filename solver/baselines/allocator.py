"""A memory pool that allocates and frees tensors in one arena.

It is the free list of a caching allocator as in deep-learning frameworks: blocks are split to the
requested number of bytes, free neighbours coalesce, and a block never moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Fit: TypeAlias = Literal["first", "best"]


@dataclass
class ArenaBlock:
    """A range of addresses; ``owner`` is None if it is free."""

    address: int
    size_bytes: int
    owner: int | None

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class Arena:
    """An arena of ``capacity_bytes`` at addresses from 0.

    ``fit`` chooses the first or the smallest of the free blocks that are large enough.
    ``unusable_bytes`` is the most that was free when an allocation of at most that size failed.
    """

    def __init__(self, capacity_bytes: int, fit: Fit = "best") -> None:
        self.capacity_bytes = capacity_bytes
        self.free_bytes = capacity_bytes
        self.unusable_bytes = 0
        self._fit = fit
        self._blocks = [ArenaBlock(0, capacity_bytes, None)]
        self._lowest, self._highest = capacity_bytes, 0

    @property
    def arena_bytes(self) -> int:
        """Bytes from the lowest to the highest address ever in use."""
        return max(self._highest - self._lowest, 0)

    @property
    def fragmentation(self) -> float:
        """``unusable_bytes`` as a share of the arena."""
        return self.unusable_bytes / self.capacity_bytes if self.capacity_bytes else 0.0

    @property
    def largest_hole_bytes(self) -> int:
        return max((b.size_bytes for b in self._blocks if b.owner is None), default=0)

    def blocks(self) -> Iterator[ArenaBlock]:
        """All blocks, by ascending address."""
        return iter(self._blocks)

    def allocate(self, owner: int, size_bytes: int, *, from_top: bool = False) -> int | None:
        """Allocate ``size_bytes`` and return the address, None if no free block is large enough.

        With ``from_top`` the free blocks are searched from the highest address down, and the upper
        end of one is taken.
        """
        positions = range(len(self._blocks))
        fitting = [
            position
            for position in (reversed(positions) if from_top else positions)
            if self._blocks[position].owner is None
            and self._blocks[position].size_bytes >= size_bytes
        ]
        if not fitting:
            if self.free_bytes >= size_bytes:
                self.unusable_bytes = max(self.unusable_bytes, self.free_bytes)
            return None
        position = fitting[0]
        if self._fit == "best":
            position = min(fitting, key=lambda p: self._blocks[p].size_bytes)
        return self._take(position, owner, size_bytes, from_top=from_top)

    def release(self, owner: int) -> None:
        position = self._position(owner)
        self.free_bytes += self._blocks[position].size_bytes
        self._blocks[position].owner = None
        self._coalesce(position)

    def hand_over(self, owner: int, heir: int, size_bytes: int) -> None:
        """Give ``heir`` the first ``size_bytes`` of the block of ``owner``, and free the rest."""
        position = self._position(owner)
        block = self._blocks[position]
        rest = block.size_bytes - size_bytes
        assert rest >= 0
        block.owner, block.size_bytes = heir, size_bytes
        if rest:
            self.free_bytes += rest
            self._blocks.insert(position + 1, ArenaBlock(block.end, rest, None))
            self._coalesce(position + 1)

    def _take(self, position: int, owner: int, size_bytes: int, *, from_top: bool) -> int:
        hole = self._blocks[position]
        rest = hole.size_bytes - size_bytes
        address = hole.end - size_bytes if from_top else hole.address
        taken = ArenaBlock(address, size_bytes, owner)
        if not rest:
            self._blocks[position] = taken
        elif from_top:
            hole.size_bytes = rest
            self._blocks.insert(position + 1, taken)
        else:
            hole.address, hole.size_bytes = taken.end, rest
            self._blocks.insert(position, taken)
        self.free_bytes -= size_bytes
        self._lowest = min(self._lowest, address)
        self._highest = max(self._highest, taken.end)
        return address

    def _position(self, owner: int) -> int:
        return next(p for p, block in enumerate(self._blocks) if block.owner == owner)

    def _coalesce(self, position: int) -> None:
        for left in (position, position - 1):
            if left < 0 or left + 1 >= len(self._blocks):
                continue
            low, high = self._blocks[left], self._blocks[left + 1]
            if low.owner is None and high.owner is None:
                low.size_bytes += high.size_bytes
                del self._blocks[left + 1]
