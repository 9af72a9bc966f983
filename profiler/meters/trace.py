"""Power traces: the energy of a window from samples, or the reason why it is void."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.meters.base import MAX_GAP_PERIODS, MIN_SAMPLES, Reading, Void
from profiler.meters.readings import Readings, Response

_NS_PER_S = 1e9


@dataclass(frozen=True)
class SampledPower:
    """Instantaneous power, linear between samples. All arrays are [samples]; ``saturated`` marks
    samples at the end of the sensor's range. ``response``: what a sample is a mean of; None where
    the description does not say."""

    times_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    period_s: float
    response: Response | None = None

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        window = _samples_around(self.times_ns, start_ns, end_ns, self.period_s)
        if isinstance(window, Void):
            return window
        if self.saturated[window].any():
            return Void("the sensor's range was exceeded")
        times, power = self.times_ns[window], self.power_w[window]
        edges = np.array([start_ns, end_ns])
        inside = (times > start_ns) & (times < end_ns)
        knots = np.concatenate([edges[:1], times[inside], edges[1:]])
        seconds = (knots - start_ns) / _NS_PER_S
        return float(np.trapezoid(np.interp(knots, times, power), seconds))

    def readings(self) -> Readings | Void:
        if len(self.times_ns) == 0:
            return Void("the meter took no sample")
        return Readings(
            origin_ns=int(self.times_ns[0]),
            times_s=(self.times_ns - self.times_ns[0]) / _NS_PER_S,
            power_w=self.power_w,
            sound=~self.saturated,
            response=self.response,
        )


@dataclass(frozen=True)
class EnergyCounter:
    """A counter of joules that restarts at zero after ``range_j``, linear between samples. Both
    arrays are [samples]. ``response``: how long the counter stands still between two changes; None
    where the description does not say."""

    times_ns: NDArray[np.int64]
    counter_j: NDArray[np.float64]
    range_j: float
    period_s: float
    response: Response | None = None

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        window = _samples_around(self.times_ns, start_ns, end_ns, self.period_s)
        if isinstance(window, Void):
            return window
        steps = self._rises_j(window)
        if (steps > self.range_j / 2).any():
            return Void("the counter may have wrapped more than once between two samples")
        risen = np.concatenate([[0.0], np.cumsum(steps)])
        at_edges = np.interp([start_ns, end_ns], self.times_ns[window], risen)
        return float(at_edges[1] - at_edges[0])

    def readings(self) -> Readings | Void:
        """Mean power between two samples, in the middle of them."""
        if len(self.times_ns) < 2:
            return Void("the meter took fewer than two samples")
        lengths_s = np.diff(self.times_ns) / _NS_PER_S
        return Readings(
            origin_ns=int(self.times_ns[0]),
            times_s=(self.times_ns[1:] - self.times_ns[0]) / _NS_PER_S - lengths_s / 2,
            power_w=self._rises_j(slice(None)) / lengths_s,
            sound=lengths_s <= MAX_GAP_PERIODS * self.period_s,
            response=self.response and self.response.between(lengths_s),
        )

    def _rises_j(self, window: slice) -> NDArray[np.float64]:
        rises_j = np.diff(self.counter_j[window])
        return np.where(rises_j < 0, rises_j + self.range_j, rises_j)


def _samples_around(
    times_ns: NDArray[np.int64], start_ns: int, end_ns: int, period_s: float
) -> slice | Void:
    """Samples of a window, and one on either side of it."""
    first = int(np.searchsorted(times_ns, start_ns, side="right")) - 1
    last = int(np.searchsorted(times_ns, end_ns, side="left"))
    if first < 0 or last >= len(times_ns):
        return Void("the samples do not cover the whole window")
    inside = last - first - 1
    if inside < MIN_SAMPLES:
        return Void(f"{inside} samples in the window, {MIN_SAMPLES} are needed")
    gap_s = float(np.diff(times_ns[first : last + 1]).max()) / _NS_PER_S
    if gap_s > MAX_GAP_PERIODS * period_s:
        return Void(f"no sample for {gap_s * 1e3:.0f} ms, one every {period_s * 1e3:.0f} ms is due")
    return slice(first, last + 1)
