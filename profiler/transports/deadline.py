"""Deadline on the monotonic clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """A point in time on the monotonic clock. ``Deadline(10.0)`` ends ten seconds after it was
    made."""

    seconds: float
    _started: float = field(default_factory=time.monotonic, init=False)

    @property
    def remaining_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._started + self.seconds - time.monotonic())

    @property
    def expired(self) -> bool:
        return self.remaining_s == 0.0
