"""How the samples of an instrument are placed on the board's clock.

Instrument, board and this computer each have a crystal of their own; they are some 10 to 100 parts
in a million apart, so that one offset for a whole block is not enough. Every way of synchronising
ends in a :class:`ClockMap`, which goes through pairs of instants that were seen on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from profiler.meters.base import BlockRecord, MarkerPattern
from profiler.meters.capture import Capture

_NS_PER_S = 1e9


class SyncLost(Exception):
    """The clocks of a block cannot be tied together; the message says why, and what would help."""


@dataclass(frozen=True)
class ClockMap:
    """Instants of the board (int64 [pairs], ns) and of the instrument (float64 [pairs], s), both
    rising, two at least. ``uncertainty_s`` is by how much an instant can be wrong: half of a 95 %
    interval."""

    board_ns: NDArray[np.int64]
    meter_s: NDArray[np.float64]
    uncertainty_s: float

    def at(self, board_ns: int) -> float:
        """On the instrument's time base: linear between pairs, at the mean rate outside."""
        first, last = int(self.board_ns[0]), int(self.board_ns[-1])
        # Against the nearest end: as seconds since some epoch, nanoseconds would be lost.
        if first <= board_ns <= last:
            since_ns = (self.board_ns - first).astype(np.float64)
            return float(np.interp(board_ns - first, since_ns, self.meter_s))
        rate = float(self.meter_s[-1] - self.meter_s[0]) / (last - first)
        edge = 0 if board_ns < first else -1
        return float(self.meter_s[edge]) + rate * (board_ns - int(self.board_ns[edge]))


class Synchroniser(Protocol):
    @property
    def name(self) -> str:
        """For the profile."""
        ...

    @property
    def marker(self) -> MarkerPattern | None:
        """What the board has to play."""
        ...

    @property
    def guard_s(self) -> float:
        """What is left out at either end of a window; the power between is taken for all of it. 0
        where windows are known well enough to be integrated as they are."""
        ...

    def clock(self, capture: Capture, block: BlockRecord) -> ClockMap:
        """Raises :class:`SyncLost`; :class:`~devices.errors.MeasurementInvalid` where no block
        would ever be different."""
        ...
