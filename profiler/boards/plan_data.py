"""Bytes that a plan's ``load`` lines write to a board."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class PlanData:
    """Parts that follow each other; a network's weights are not copied into one piece.

    The parts must not change.
    """

    parts: tuple[memoryview, ...] = ()

    @cached_property
    def _begins(self) -> list[int]:
        """Where each part begins, and where the last one ends."""
        return list(accumulate((len(part) for part in self.parts), initial=0))

    @property
    def size_bytes(self) -> int:
        return self._begins[-1]

    @cached_property
    def sha256(self) -> str:
        """Hash of all bytes, by which a board's copy is recognised."""
        found = hashlib.sha256()
        for part in self.parts:
            found.update(part)
        return found.hexdigest()

    def read(self, at: int, size_bytes: int) -> bytes:
        """Bytes from ``at`` on; fewer at the end."""
        return b"".join(self._pieces(at, size_bytes))

    def _pieces(self, at: int, size_bytes: int) -> Iterator[memoryview]:
        number = bisect_right(self._begins, at) - 1
        while size_bytes > 0 and number < len(self.parts):
            begin = at - self._begins[number]
            piece = self.parts[number][begin : begin + size_bytes]
            yield piece
            at, size_bytes, number = at + len(piece), size_bytes - len(piece), number + 1


NO_DATA = PlanData()
