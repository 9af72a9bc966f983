"""Readings of a board's clock, bracketed by this computer's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from profiler.meters.base import ClockReading


def read_clock(read_ns: Callable[[], int]) -> ClockReading:
    """Read a board's clock, and this computer's before and after it.

    Args:
        read_ns: Asks the board for its clock, in nanoseconds. Its exceptions are passed on.
    """
    asleep_before_s, asked_s = _asleep_s(), time.monotonic()
    board_ns = read_ns()
    answered_s, asleep_after_s = time.monotonic(), _asleep_s()
    return ClockReading(board_ns, asked_s, answered_s, (asleep_before_s, asleep_after_s))


def _asleep_s() -> float:
    """Seconds for which this computer has slept since its boot; 0 where its system does not
    tell."""
    if sys.platform != "linux":
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
