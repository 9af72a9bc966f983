"""Synchronisation by this computer's clock.

The board's clock is read before and after a block; the instrument's samples carry this computer's
time. A reading proves only that the board's clock had its value at some instant between request and
answer (Cristian 1989), which over SSH or a serial line is some milliseconds. Windows are therefore
long, and ``guard_s`` at either end is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler.meters.base import BlockRecord, ClockReading
from profiler.meters.capture import Capture
from profiler.meters.sync.base import ClockMap, SyncLost


@dataclass(frozen=True)
class SteadySynchroniser:
    """Implements :class:`~profiler.meters.sync.base.Synchroniser` by this computer's clock."""

    guard_s: float
    marker: None = None

    @property
    def name(self) -> str:
        return f"this computer's clock, {self.guard_s:g} s left out at either end of a window"

    def clock(self, capture: Capture, block: BlockRecord) -> ClockMap:
        middle = len(block.clock) // 2
        if middle == 0:
            raise SyncLost("the board's clock was not read both before and after the block")
        before, after = _narrowest(block.clock[:middle]), _narrowest(block.clock[middle:])
        uncertainty_s = max(_half_s(before), _half_s(after)) + capture.time_error_s
        if uncertainty_s > self.guard_s:
            raise SyncLost(
                f"the board's clock is known only to {uncertainty_s * 1e3:.0f} ms, more than the"
                f" {self.guard_s * 1e3:.0f} ms left out at the ends of a window: raise sync.guard_s"
            )
        pair = (before, after)
        return ClockMap(
            board_ns=np.array([reading.board_ns for reading in pair]),
            meter_s=np.array([(reading.asked_s + reading.answered_s) / 2 for reading in pair]),
            uncertainty_s=uncertainty_s,
        )


def _half_s(reading: ClockReading) -> float:
    return (reading.answered_s - reading.asked_s) / 2


def _narrowest(readings: tuple[ClockReading, ...]) -> ClockReading:
    return min(readings, key=_half_s)
