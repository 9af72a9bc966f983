"""Protocol of a power meter, on the board or on this computer.

A meter on the board (a sensor in sysfs) names files that the harness reads while it measures. A
meter on this computer records by itself between ``begin`` and ``finish``, and synchronises its
clock with the board's afterwards. Both return a :class:`PowerTrace` on the board's clock, from
which the energy of every window is computed::

    begin │ harness runs a block: window … window … window │ finish → trace
                                  └ trace.steady_energy_j(start, end)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from devices.profile import EnergySource, MeterRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from profiler.meters.readings import Readings, Response

MIN_SAMPLES = 10
"""Least number of samples that a window needs for its energy."""

NEGATIVE_POWER = (
    "the meter reads negative power: the inputs of its sensor are exchanged, or its zero is off"
)
"""Why the energy of a window, or of a whole run, is unknown."""

MOST_UNCERTAIN_SHARE = 0.01
"""Largest error of either end of a window, as a share of its length."""

MAX_GAP_PERIODS = 3.0
"""Samples further apart than this many periods mean that samples were lost."""


@dataclass(frozen=True)
class SamplerSpec:
    """Whole numbers that the harness reads on the board ``rate_hz`` times a second. ``sources`` are
    written as in ``harness/linux/linux_source.h``; ``setup`` lists the registers to write first."""

    sources: tuple[str, ...]
    rate_hz: float
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardSamples:
    """Samples that the harness took during a block. ``times_ns``: [samples], on the board's
    monotonic clock; ``values``: [samples, sources], as they were read."""

    times_ns: NDArray[np.int64]
    values: NDArray[np.int64]


@dataclass(frozen=True)
class ClockReading:
    """A reading of the board's clock between two instants of this computer's ``time.monotonic()``:
    when it was requested, and when the answer had arrived.

    That clock stands still while this computer sleeps. ``asleep_s`` says for how long it had slept
    since its boot, at both instants.
    """

    board_ns: int
    asked_s: float
    answered_s: float
    asleep_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class BlockRecord:
    """Record of a finished block, on the board's clock.

    Attributes:
        windows_ns: Start and end of each window in order of time, markers included.
        markers_ns: Starts of the markers.
        samples: Samples that the harness took.
        clock: Readings before and after the block, for a meter that only this computer's clock ties
            to the board.
    """

    windows_ns: tuple[tuple[int, int], ...]
    markers_ns: tuple[int, ...]
    samples: BoardSamples
    clock: tuple[ClockReading, ...] = ()


@dataclass(frozen=True)
class MarkerPattern:
    """Pattern of busy (True) and idle stretches that the board plays before and after a block. Each
    lasts ``bit_s``."""

    bits: tuple[bool, ...]
    bit_s: float


@dataclass(frozen=True)
class Void:
    """Reason why a window has no trustworthy energy."""

    reason: str


Reading: TypeAlias = float | Void


class PowerTrace(Protocol):
    """Power over one block, on the board's clock."""

    @property
    def response(self) -> Response | None:
        """What a reading is a mean of; None where that is not known."""
        ...

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        """Energy of a window whose power is taken as constant, in joules, or the reason why it is
        not known.

        Readings that contain power from before or after the window are left out, as far as the
        response is known; the mean of the others counts for the whole window.
        """
        ...

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        """Energy between two instants in joules, or the reason why it is not known.

        A reading stands for the power at the mean age of what it contains. At either end, power
        from both sides is mixed over ``response.spread_s``.
        """
        ...

    def readings(self) -> Readings | Void:
        """The readings that the energies are made of, or the reason why there are none."""
        ...


class Meter(Protocol):
    """One meter, opened for one profile.

    ``begin`` and ``finish`` raise :class:`~devices.errors.JoulewrightError` when the instrument
    does not answer; a meter on the board does nothing in ``begin``.
    """

    @property
    def energy_source(self) -> EnergySource: ...

    @property
    def record(self) -> MeterRecord:
        """Origin of the energies and of the clock synchronisation, for the profile; final after the
        last block."""
        ...

    @property
    def sampler(self) -> SamplerSpec | None:
        """Samples that the harness must take for this meter."""
        ...

    @property
    def marker(self) -> MarkerPattern | None:
        """Pattern that the board must play for this meter."""
        ...

    def begin(self) -> None:
        """Prepare for a block that is about to start on the board."""
        ...

    def finish(self, block: BlockRecord, /) -> PowerTrace:
        """Finish a block and return its power."""
        ...

    def close(self) -> None: ...
