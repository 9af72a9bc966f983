"""Protocol of synchronisation between an instrument and the board.

Instrument, board and this computer each have their own crystal. The rates differ by some 10 to 100
parts in a million, so that one offset for a whole block is not enough. Every method results in a
:class:`ClockMap` through pairs of instants that are known on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from profiler.meters.base import BlockRecord, MarkerPattern
from profiler.meters.capture import Capture

MOST_RATE_ERROR = 0.05
"""Largest rate error of a board's clock: internal RC oscillators are within a few per cent."""

_NS_PER_S = 1e9


class SyncLost(Exception):
    """The clocks of a block cannot be tied together; the message gives the reason and the
    remedy."""


@dataclass(frozen=True)
class ClockMap:
    """Pairs of instants on the clocks of the board and the instrument, at least two.

    ``board_ns``: int64 [pairs]; ``meter_s``: float64 [pairs]; both rising. ``uncertainty_s`` is the
    error of an instant: half of a 95 % interval.
    """

    board_ns: NDArray[np.int64]
    meter_s: NDArray[np.float64]
    uncertainty_s: float

    def at(self, board_ns: int) -> float:
        """Instant on the instrument's time base: linear between pairs, at the mean rate outside."""
        first, last = int(self.board_ns[0]), int(self.board_ns[-1])
        # Relative to the nearest end: seconds since an epoch would lose nanoseconds.
        if first <= board_ns <= last:
            since_ns = (self.board_ns - first).astype(np.float64)
            return float(np.interp(board_ns - first, since_ns, self.meter_s))
        rate = float(self.meter_s[-1] - self.meter_s[0]) / (last - first)
        edge = 0 if board_ns < first else -1
        return float(self.meter_s[edge]) + rate * (board_ns - int(self.board_ns[edge]))

    def board_s(self, meter_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds on the board's clock since the first pair, of instants on the instrument's time
        base: the inverse of :meth:`at`."""
        since_s = (self.board_ns - self.board_ns[0]) / _NS_PER_S
        rate = since_s[-1] / (self.meter_s[-1] - self.meter_s[0])
        before = np.minimum(meter_s - self.meter_s[0], 0.0) * rate
        after = np.maximum(meter_s - self.meter_s[-1], 0.0) * rate
        return np.asarray(np.interp(meter_s, self.meter_s, since_s) + before + after)


class Synchroniser(Protocol):
    """Method of tying an instrument's time base to the board's clock."""

    @property
    def name(self) -> str:
        """Name of the method, for the profile."""
        ...

    @property
    def marker(self) -> MarkerPattern | None:
        """Pattern that the board must play."""
        ...

    @property
    def guard_s(self) -> float:
        """Guard at either end of a window, which is left out; the mean power between the guards is
        used for the whole window. 0 where windows can be integrated as they are."""
        ...

    def clock(self, capture: Capture, block: BlockRecord) -> ClockMap:
        """Tie the clocks of a block together. Raises :class:`SyncLost`, or
        :class:`~devices.errors.MeasurementInvalid` if every other block would fail too."""
        ...
