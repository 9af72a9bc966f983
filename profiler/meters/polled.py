"""Instruments that must be polled for every reading: a thread that polls at a steady pace.

A capture of such an instrument begins with a reading taken inside ``start`` and ends with one taken
inside ``stop``, so that it covers everything between the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler.meters.capture import Capture


@dataclass(frozen=True)
class Reading:
    """One polled value.

    ``time_s`` is the middle of the interval in which the value was true, on ``time.monotonic()``;
    ``time_error_s`` is half of that interval. ``flaws``: of :class:`~profiler.meters.capture.Flaw`.
    """

    time_s: float
    time_error_s: float
    value: float
    flaws: int = 0


class Poller:
    """Calls ``read`` every ``period_s``. Readings that fall due during a slow one are skipped."""

    def __init__(self, read: Callable[[], Reading], period_s: float) -> None:
        self.period_s: Final = period_s
        self._read = read
        self._readings: list[Reading] = []
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start polling. Raises what ``read`` raises."""
        self.close()
        self._ended.clear()
        self._error = None
        self._readings = [self._read()]
        self._thread = threading.Thread(target=self._poll, name="meter poller", daemon=True)
        self._thread.start()

    def stop(self) -> list[Reading]:
        """Stop and return all readings since ``start``. Raises what ``read`` raised, in the thread
        or now."""
        self.close()
        if self._error is not None:
            raise self._error
        self._readings.append(self._read())
        return self._readings

    def close(self) -> None:
        """End the thread, after waiting for a reading that is under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _poll(self) -> None:
        due_s = time.monotonic()
        try:
            while True:
                now_s = time.monotonic()
                due_s += self.period_s * max(1, -int(-(now_s - due_s) // self.period_s))
                if self._ended.wait(max(0.0, due_s - now_s)):
                    return
                self._readings.append(self._read())
        except Exception as error:  # raised again by stop, in the caller's thread
            self._error = error


def polled_capture(readings: list[Reading], period_s: float) -> Capture:
    """Make a capture of readings in watts. Its time error is the largest of all but the worst
    twentieth, in line with half of a 95 % interval."""
    errors_s = [reading.time_error_s for reading in readings]
    return Capture(
        start_s=readings[0].time_s,
        period_s=period_s,
        power_w=np.array([reading.value for reading in readings], dtype=np.float64),
        flaws=np.array([reading.flaws for reading in readings], dtype=np.uint8),
        times_s=np.array([reading.time_s for reading in readings], dtype=np.float64),
        time_error_s=float(np.quantile(errors_s, 0.95)),
    )
