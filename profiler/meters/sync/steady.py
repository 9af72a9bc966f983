"""Synchronisation by this computer's clock.

The board's clock is read before and after a block; the instrument's samples carry this computer's
time. A reading proves only that the board's clock had its value at some instant between request and
answer (Cristian 1989), which over SSH or a serial line is some milliseconds. Windows are therefore
long, and ``guard_s`` at either end is left out.

This computer's clock stands still while it sleeps, and the board's does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler.meters.base import BlockRecord, ClockReading
from profiler.meters.capture import Capture
from profiler.meters.sync.base import MOST_RATE_ERROR, ClockMap, SyncLost

_LEAST_SLEEP_S = 0.1
"""No computer sleeps for less; its two clocks are not read at the same instant."""


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
        _require_awake(block.clock)
        _require_equal_rates(before, after)
        uncertainty_s = max(_half_s(before), _half_s(after)) + capture.time_error_s
        if uncertainty_s > self.guard_s:
            raise SyncLost(
                f"the board's clock is known only to {uncertainty_s * 1e3:.0f} ms, more than the"
                f" {self.guard_s * 1e3:.0f} ms left out at the ends of a window: raise sync.guard_s"
            )
        pair = (before, after)
        return ClockMap(
            board_ns=np.array([reading.board_ns for reading in pair]),
            meter_s=np.array([_middle_s(reading) for reading in pair]),
            uncertainty_s=uncertainty_s,
        )


def _require_awake(readings: tuple[ClockReading, ...]) -> None:
    """Raise :class:`SyncLost` if this computer slept between the first reading and the last."""
    slept_s = readings[-1].asleep_s[1] - readings[0].asleep_s[0]
    if slept_s > _LEAST_SLEEP_S:
        raise SyncLost(
            f"this computer slept for {slept_s:.3g} s during the block, and its clock stood still:"
            " keep it awake"
        )


def _require_equal_rates(before: ClockReading, after: ClockReading) -> None:
    """Raise :class:`SyncLost` if more time passed on one clock than their rates explain."""
    board_s = (after.board_ns - before.board_ns) / 1e9
    here_s = _middle_s(after) - _middle_s(before)
    leeway_s = MOST_RATE_ERROR * abs(board_s) + _half_s(before) + _half_s(after)
    if abs(here_s - board_s) > leeway_s:
        raise SyncLost(
            f"between two readings, {board_s:.3f} s passed on the board's clock and {here_s:.3f} s"
            " on this computer's: one of them stood still, as in sleep"
        )


def _middle_s(reading: ClockReading) -> float:
    return (reading.asked_s + reading.answered_s) / 2


def _half_s(reading: ClockReading) -> float:
    return (reading.answered_s - reading.asked_s) / 2


def _narrowest(readings: tuple[ClockReading, ...]) -> ClockReading:
    return min(readings, key=_half_s)
