"""What the profiler asks of an instrument, wherever it sits.

A meter on the board (a sensor behind sysfs) names files that the harness reads while it measures;
one on this computer records by itself between ``begin`` and ``finish``, and ties its clock to the
board's by what it saw. Both end in a :class:`PowerTrace` on the board's clock, of which every
window takes its share::

    begin │ harness runs a block: window … window … window │ finish → trace
                                  └ trace.energy_j(start, end)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from devices.profile import EnergySource, MeterRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_SAMPLES = 10
"""A window with fewer samples says too little about its energy."""

MAX_GAP_PERIODS = 3.0
"""Samples further apart than this many periods mean that some were lost."""


@dataclass(frozen=True)
class SamplerSpec:
    """Whole numbers to be read on the board ``rate_hz`` times a second. ``sources`` are written as
    in ``harness/linux/linux_source.h``; ``setup`` are the registers to be written before."""

    sources: tuple[str, ...]
    rate_hz: float
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardSamples:
    """What the harness sampled during a block. ``times_ns``: [samples], on the board's monotonic
    clock; ``values``: [samples, sources], as they were read."""

    times_ns: NDArray[np.int64]
    values: NDArray[np.int64]


@dataclass(frozen=True)
class ClockReading:
    """The board's clock, read between two instants of this computer's ``time.monotonic()``: when
    it was asked, and when it had answered."""

    board_ns: int
    asked_s: float
    answered_s: float


@dataclass(frozen=True)
class BlockRecord:
    """What the board tells of a block that is over, all on its own clock: when windows were open,
    in order of time, markers among them; when markers began; what it sampled; and, for
    a meter that is tied to the board by nothing but this computer's clock, what its clock said
    before and behind the block."""

    windows_ns: tuple[tuple[int, int], ...]
    markers_ns: tuple[int, ...]
    samples: BoardSamples
    clock: tuple[ClockReading, ...] = ()


@dataclass(frozen=True)
class MarkerPattern:
    """Of busy (True) and idle stretches of ``bit_s`` each, which the board plays in front of and
    behind a block."""

    bits: tuple[bool, ...]
    bit_s: float


@dataclass(frozen=True)
class Void:
    """Why a window has no energy that could be trusted."""

    reason: str


Reading: TypeAlias = float | Void


class PowerTrace(Protocol):
    """Power over one block, on the board's clock."""

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        """All the energy that went in between two instants, or why it is not known."""
        ...


class Meter(Protocol):
    """One instrument, opened for one profile.

    ``begin`` and ``finish`` raise :class:`~devices.errors.JoulewrightError` when the instrument
    does not answer; a meter on the board does nothing in ``begin``.
    """

    @property
    def energy_source(self) -> EnergySource: ...

    @property
    def record(self) -> MeterRecord:
        """What the profile says about where its joules come from, and how its clock was tied to the
        board's; asked when the last block is over."""
        ...

    @property
    def sampler(self) -> SamplerSpec | None:
        """What the harness has to sample for this meter."""
        ...

    @property
    def marker(self) -> MarkerPattern | None:
        """What the board has to play for this meter."""
        ...

    def begin(self) -> None:
        """A block is about to start on the board."""
        ...

    def finish(self, block: BlockRecord, /) -> PowerTrace:
        """The block is over."""
        ...

    def close(self) -> None: ...
