"""Power traces: the energy of a window from samples, or the reason why it is void."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.meters.base import MAX_GAP_PERIODS, MIN_SAMPLES, Reading, Void

_NS_PER_S = 1e9


@dataclass(frozen=True)
class SampledPower:
    """Instantaneous power, linear between samples. All arrays are [samples]; ``saturated`` marks
    samples at the end of the sensor's range."""

    times_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    period_s: float

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


@dataclass(frozen=True)
class EnergyCounter:
    """A counter of joules that restarts at zero after ``range_j``, linear between samples. Both
    arrays are [samples]."""

    times_ns: NDArray[np.int64]
    counter_j: NDArray[np.float64]
    range_j: float
    period_s: float

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        window = _samples_around(self.times_ns, start_ns, end_ns, self.period_s)
        if isinstance(window, Void):
            return window
        steps = np.diff(self.counter_j[window])
        steps = np.where(steps < 0, steps + self.range_j, steps)
        if (steps > self.range_j / 2).any():
            return Void("the counter may have wrapped more than once between two samples")
        risen = np.concatenate([[0.0], np.cumsum(steps)])
        at_edges = np.interp([start_ns, end_ns], self.times_ns[window], risen)
        return float(at_edges[1] - at_edges[0])


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
