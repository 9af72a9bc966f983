"""Solutions that better ones have replaced, for when the best one turns out to be of no use."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_Solution = TypeVar("_Solution")

# Most solutions that are kept.
_MOST = 64


class Replaced(Generic[_Solution]):
    """The last solutions that better ones have replaced."""

    def __init__(self) -> None:
        self._solutions: deque[_Solution] = deque(maxlen=_MOST)

    def append(self, solution: _Solution) -> None:
        self._solutions.append(solution)

    @property
    def some(self) -> list[_Solution]:
        """The last, second, fourth, eighth, … one before the best, latest first.

        Those that follow each other are alike.
        """
        distances = (1 << power for power in range(len(self._solutions).bit_length()))
        return [self._solutions[-distance] for distance in distances]
