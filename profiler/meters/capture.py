"""What an instrument on this computer records, and what is asked of such an instrument.

An instrument keeps its own time base. Its samples are tied to the board's clock afterwards
(:mod:`profiler.meters.sync.base`), so nothing here knows of a board.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Flaw(IntFlag):
    """Why a sample cannot be trusted; several can hold at once."""

    LOST = 1
    """Never arrived. It stands in the capture all the same, so that those behind it keep their
    places; its power is NaN."""
    SATURATED = 2
    """At the end of the instrument's range: the power was that or more."""
    RANGE_SWITCH = 4
    """Taken while the instrument settled in another range."""


@dataclass(frozen=True)
class Capture:
    """All samples between start and stop.

    ``start_s`` is when the first was taken and ``period_s`` how far apart they are. Instruments
    that are polled state every instant in ``times_s`` (float64 [samples], rising); ``period_s`` is
    then what they were meant to be apart. All of this counts on ``time.monotonic()`` of this
    computer, as well as the instrument could estimate it: ``time_error_s`` is by how much that can
    be wrong (half of a 95 % interval), which matters only where nothing ties the instrument to the
    board directly.

    ``power_w``: float32 or float64 [samples]. ``flaws``: uint8 [samples], of :class:`Flaw`.
    ``inputs``: uint8 [samples], bit *k* the level of logic input *k*, for a lost sample that of the
    one before; None if there are none.
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
        """When the last sample was taken."""
        return float(self.time_s(len(self) - 1))

    def time_s(self, index: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """When these samples were taken."""
        if self.times_s is not None:
            return np.asarray(self.times_s[index])
        return np.asarray(self.start_s + self.period_s * np.asarray(index, dtype=np.float64))

    def around(self, start_s: float, end_s: float) -> slice:
        """The samples from the last one at or before ``start_s`` to the first one at or behind
        ``end_s``, as far as there are such samples."""
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
    """A power meter that records by itself. All methods raise
    :class:`~devices.errors.JoulewrightError` when it does not answer, with the remedy in its
    sentence.
    """

    @property
    def kind(self) -> str:
        """As the device description calls it."""
        ...

    @property
    def detail(self) -> str:
        """What it says it is, its mode and range: for the profile."""
        ...

    @property
    def rate_hz(self) -> float: ...

    def start(self) -> None:
        """Record from now on. What an earlier start had recorded is dropped."""
        ...

    def stop(self) -> Capture:
        """End recording."""
        ...

    def close(self) -> None:
        """Leave the instrument as its class says. Never raises because it is gone."""
        ...
