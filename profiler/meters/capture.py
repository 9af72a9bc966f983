"""Protocol of an instrument on this computer, and what it records.

An instrument keeps its own time base. Its samples are tied to the board's clock afterwards
(:mod:`profiler.meters.sync.base`), so nothing here depends on a board.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Flaw(IntFlag):
    """Reasons why a sample cannot be trusted; several can hold at once."""

    LOST = 1
    """The sample never arrived. It has a place in the capture, so that later samples keep theirs;
    its power is NaN."""
    SATURATED = 2
    """At the end of the instrument's range: the power was at least that."""
    RANGE_SWITCH = 4
    """Taken while the instrument settled in another range."""


@dataclass(frozen=True)
class Capture:
    """All samples between start and stop.

    ``start_s`` is the time of the first sample and ``period_s`` the distance between samples.
    Instruments that are polled give every instant in ``times_s`` (float64 [samples], rising);
    ``period_s`` is then the intended distance. All times are on this computer's
    ``time.monotonic()``, as well as the instrument could estimate it. ``time_error_s`` is the error
    of that estimate (half of a 95 % interval), which matters only where nothing ties the instrument
    to the board directly.

    ``power_w``: float32 or float64 [samples]. ``flaws``: uint8 [samples], of :class:`Flaw`.
    ``inputs``: uint8 [samples], bit *k* the level of logic input *k*, for a lost sample that of the
    one before; None without logic inputs.
    """

    start_s: float
    period_s: float
    power_w: NDArray[np.floating]
    flaws: NDArray[np.uint8]
    inputs: NDArray[np.uint8] | None = None
    times_s: NDArray[np.float64] | None = None
    time_error_s: float = 0.0

    def __len__(self) -> int:
        return len(self.power_w)

    @property
    def end_s(self) -> float:
        """Time of the last sample."""
        return float(self.time_s(len(self) - 1))

    def time_s(self, index: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """Times of these samples."""
        if self.times_s is not None:
            return np.asarray(self.times_s[index])
        return np.asarray(self.start_s + self.period_s * np.asarray(index, dtype=np.float64))

    def around(self, start_s: float, end_s: float) -> slice:
        """Samples that cover an interval, as far as they exist: from the last one at or before
        ``start_s`` to the first one at or after ``end_s``."""
        if self.times_s is not None:
            first = int(np.searchsorted(self.times_s, start_s, side="right")) - 1
            last = int(np.searchsorted(self.times_s, end_s, side="left"))
        else:
            first = int(np.floor((start_s - self.start_s) / self.period_s))
            last = int(np.ceil((end_s - self.start_s) / self.period_s))
        first = min(max(first, 0), len(self))
        return slice(first, max(first, min(last + 1, len(self))))

    def flawed(self, flaw: Flaw, part: slice) -> NDArray[np.bool_]:
        """Which of these samples have the flaw."""
        # As a byte: an enumeration would make eight bytes of every sample.
        flawed: NDArray[np.bool_] = (self.flaws[part] & np.uint8(flaw)) != 0
        return flawed


class Instrument(Protocol):
    """A power meter that records by itself.

    All methods raise :class:`~devices.errors.JoulewrightError` with the remedy when it does not
    answer.
    """

    @property
    def kind(self) -> str:
        """Name of its kind in the device description."""
        ...

    @property
    def detail(self) -> str:
        """Its identity, mode and range, for the profile."""
        ...

    @property
    def rate_hz(self) -> float: ...

    def start(self) -> None:
        """Start to record. Drops what an earlier start recorded."""
        ...

    def stop(self) -> Capture:
        """Stop recording and return the samples."""
        ...

    def close(self) -> None:
        """Leave the instrument in the state that its class documents. Does not raise if it is
        gone."""
        ...
