"""An instrument on this computer as a meter of the board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import (
    MAX_GAP_PERIODS,
    MIN_SAMPLES,
    MOST_UNCERTAIN_SHARE,
    BlockRecord,
    MarkerPattern,
    PowerTrace,
    Reading,
    Void,
)
from profiler.meters.capture import Capture, Flaw, Instrument
from profiler.meters.readings import Readings, Response
from profiler.meters.sync.base import ClockMap, Synchroniser, SyncLost

MOST_SETTLING_SHARE = 0.01
"""Largest share of a window's samples that may be taken while the instrument changed its range.
What it reports for them is an estimate, whose error is of the order of the change itself."""


class HostMeter:
    """Starts the instrument before a block, stops it afterwards, and ties its clock to the board's.
    ``energy_source`` is ``emulated`` for an emulated board. ``response``: what a sample of the
    instrument is a mean of; None where the description does not say."""

    sampler: Final = None

    def __init__(
        self,
        instrument: Instrument,
        sync: Synchroniser,
        energy_source: EnergySource,
        response: Response | None = None,
    ) -> None:
        self.energy_source: Final = energy_source
        self._response: Final = response
        self._instrument: Final = instrument
        self._sync: Final = sync
        self._uncertainty_s: float | None = None

    @property
    def marker(self) -> MarkerPattern | None:
        return self._sync.marker

    @property
    def record(self) -> MeterRecord:
        """Record for the profile. ``sync_uncertainty_s`` is the worst of all blocks so far."""
        return MeterRecord(
            kind=self._instrument.kind,
            detail=self._instrument.detail,
            rate_hz=self._instrument.rate_hz,
            sync=self._sync.name,
            sync_uncertainty_s=self._uncertainty_s,
            remembered_s=None if self._response is None else self._response.width_s,
        )

    def begin(self) -> None:
        self._instrument.start()

    def finish(self, block: BlockRecord, /) -> PowerTrace:
        capture = self._instrument.stop()
        if not block.windows_ns:
            return UnknownPower("the block was cut short")
        try:
            clock = self._sync.clock(capture, block)
        except SyncLost as lost:
            return UnknownPower(str(lost))
        self._uncertainty_s = max(self._uncertainty_s or 0.0, clock.uncertainty_s)
        return RecordedPower(
            capture=capture,
            clock=clock,
            guard_s=self._sync.guard_s,
            windows_ns=frozenset(block.windows_ns),
            response=self._response,
        )

    def close(self) -> None:
        self._instrument.close()


@dataclass(frozen=True)
class UnknownPower:
    """Trace of a block that has no energies. The reason holds for all its windows."""

    reason: str
    response: None = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        return self.energy_j(start_ns, end_ns)

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        del start_ns, end_ns
        return Void(self.reason)

    def readings(self) -> Void:
        return Void(self.reason)


@dataclass(frozen=True)
class RecordedPower:
    """A capture on the board's clock.

    With a guard, only the windows in ``windows_ns`` have energies, since power between them is not
    known to be constant.
    """

    capture: Capture
    clock: ClockMap
    guard_s: float
    windows_ns: frozenset[tuple[int, int]]
    response: Response | None = None

    def readings(self) -> Readings | Void:
        capture, clock = self.capture, self.clock
        return Readings(
            origin_ns=int(clock.board_ns[0]),
            times_s=clock.board_s(capture.time_s(np.arange(len(capture)))),
            power_w=np.asarray(capture.power_w, dtype=np.float64),
            sound=capture.flaws == 0,
            response=self.response,
            clock_error_s=clock.uncertainty_s,
        )

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        start_s, end_s = self.clock.at(start_ns), self.clock.at(end_ns)
        oldest_s, youngest_s = 0.0, 0.0
        if self.response is not None:
            oldest_s, youngest_s = self.response.oldest_s, self.response.youngest_s
        first_s, last_s = start_s + self.guard_s + oldest_s, end_s - self.guard_s + youngest_s
        if end_s - start_s <= 2 * self.guard_s:
            return Void(f"shorter than the {self.guard_s:g} s left out at either end")
        if self.response is not None and first_s >= last_s:
            return Void(self.response.too_long_for(end_s - start_s))
        reading = self._uncertain(start_s, end_s) or self._integral_j(first_s, last_s)
        if isinstance(reading, Void):
            return reading
        return reading * (end_s - start_s) / (last_s - first_s)

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        if self.guard_s:
            if (start_ns, end_ns) not in self.windows_ns:
                return Void("the energy of a settling tail needs gpio or marker sync")
            return self.steady_energy_j(start_ns, end_ns)
        age_s = 0.0 if self.response is None else self.response.mean_age_s
        start_s, end_s = self.clock.at(start_ns), self.clock.at(end_ns)
        return self._uncertain(start_s, end_s) or self._integral_j(start_s + age_s, end_s + age_s)

    def _uncertain(self, start_s: float, end_s: float) -> Void | None:
        """Reason why the ends of a window are not known well enough; None if they are, and where
        the guard is larger than the uncertainty."""
        uncertainty_s = self.clock.uncertainty_s
        if self.guard_s or uncertainty_s <= MOST_UNCERTAIN_SHARE * (end_s - start_s):
            return None
        return Void(
            f"its ends are known only to {uncertainty_s * 1e3:.3g} ms, not enough for a window of"
            f" {(end_s - start_s) * 1e3:.3g} ms"
        )

    def _integral_j(self, start_s: float, end_s: float) -> Reading:
        """Energy between two instants, with power linear between samples."""
        capture = self.capture
        if len(capture) == 0 or start_s < capture.start_s or end_s > capture.end_s:
            return Void("the samples do not cover the whole window")
        part = capture.around(start_s, end_s)
        times_s = capture.time_s(np.arange(part.start, part.stop))
        inside = (times_s > start_s) & (times_s < end_s)
        count = int(np.count_nonzero(inside))
        if count < MIN_SAMPLES:
            return Void(f"{count} samples in the window, {MIN_SAMPLES} are needed")
        void = _flaws(capture, part) or _gap(times_s, capture.period_s)
        if void is not None:
            return void
        power_w = capture.power_w[part]
        knots_s = np.concatenate([[start_s], times_s[inside], [end_s]])
        edges_w = np.interp([start_s, end_s], times_s, power_w)
        knots_w = np.concatenate([edges_w[:1], power_w[inside], edges_w[1:]])
        return float(np.trapezoid(knots_w, knots_s - start_s))


def _flaws(capture: Capture, part: slice) -> Void | None:
    lost = int(np.count_nonzero(capture.flawed(Flaw.LOST, part)))
    if lost:
        return Void(f"{lost} samples were lost")
    if capture.flawed(Flaw.SATURATED, part).any():
        return Void("the instrument's range was exceeded")
    settling = float(capture.flawed(Flaw.RANGE_SWITCH, part).mean())
    if settling > MOST_SETTLING_SHARE:
        return Void(f"the instrument was changing its range for {settling:.1%} of the window")
    return None


def _gap(times_s: NDArray[np.float64], period_s: float) -> Void | None:
    gap_s = float(np.diff(times_s).max())
    if gap_s > MAX_GAP_PERIODS * period_s:
        return Void(f"no sample for {gap_s * 1e3:.0f} ms, one every {period_s * 1e3:.0f} ms is due")
    return None
