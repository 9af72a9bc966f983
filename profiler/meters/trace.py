"""Power traces: the energy of a window from samples, or the reason why it is void."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.meters.base import MAX_GAP_PERIODS, MIN_SAMPLES, Reading, Void
from profiler.meters.readings import Readings, Response

_NS_PER_S = 1e9

_SATURATED = Void("the sensor's range was exceeded")
_WRAPPED = Void("the counter may have wrapped more than once between two samples")


@dataclass(frozen=True)
class SampledPower:
    """Power, linear between samples. All arrays are [samples]; ``saturated`` marks samples at the
    end of the sensor's range. ``response``: what a sample is a mean of; None where that is not
    known, and samples then count as instantaneous."""

    times_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    period_s: float
    response: Response | None = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        if self.response is None:
            return self.energy_j(start_ns, end_ns)
        inside = _samples_within(self.times_ns, start_ns, end_ns, self.period_s, self.response)
        if isinstance(inside, Void):
            return inside
        if self.saturated[inside].any():
            return _SATURATED
        times_s = (self.times_ns[inside] - start_ns) / _NS_PER_S
        span_s = float(times_s[-1] - times_s[0])
        mean_w = float(np.trapezoid(self.power_w[inside], times_s)) / span_s
        return mean_w * (end_ns - start_ns) / _NS_PER_S

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        age_ns = _mean_age_ns(self.response)
        start_ns, end_ns = start_ns + age_ns, end_ns + age_ns
        window = _samples_around(self.times_ns, start_ns, end_ns, self.period_s)
        if isinstance(window, Void):
            return window
        if self.saturated[window].any():
            return _SATURATED
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
            response=_exact(self.response),
        )


@dataclass(frozen=True)
class EnergyCounter:
    """A counter of joules that restarts at zero after ``range_j``, linear between samples. Both
    arrays are [samples]. ``response``: how long the counter stands still between two changes; None
    where that is not known."""

    times_ns: NDArray[np.int64]
    counter_j: NDArray[np.float64]
    range_j: float
    period_s: float
    response: Response | None = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        if self.response is None:
            return self.energy_j(start_ns, end_ns)
        inside = _samples_within(self.times_ns, start_ns, end_ns, self.period_s, self.response)
        if isinstance(inside, Void):
            return inside
        if self._may_have_wrapped(inside):
            return _WRAPPED
        span_ns = float(np.ptp(self.times_ns[inside]))
        return float(self._rises_j(inside).sum()) * (end_ns - start_ns) / span_ns

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        age_ns = _mean_age_ns(self.response)
        start_ns, end_ns = start_ns + age_ns, end_ns + age_ns
        window = _samples_around(self.times_ns, start_ns, end_ns, self.period_s)
        if isinstance(window, Void):
            return window
        if self._may_have_wrapped(window):
            return _WRAPPED
        risen_j = np.concatenate([[0.0], np.cumsum(self._rises_j(window))])
        at_edges_j = np.interp([start_ns, end_ns], self.times_ns[window], risen_j)
        return float(at_edges_j[1] - at_edges_j[0])

    def readings(self) -> Readings | Void:
        """Mean power between two samples, in the middle of them."""
        if len(self.times_ns) < 2:
            return Void("the meter took fewer than two samples")
        lengths_s, response = np.diff(self.times_ns) / _NS_PER_S, _exact(self.response)
        sound = lengths_s <= MAX_GAP_PERIODS * self.period_s
        # A gap is no reading, and must not make all of them seem to remember as much.
        counted_s = np.where(sound, lengths_s, self.period_s)
        return Readings(
            origin_ns=int(self.times_ns[0]),
            times_s=(self.times_ns[1:] - self.times_ns[0]) / _NS_PER_S - lengths_s / 2,
            power_w=self._rises_j(slice(None)) / lengths_s,
            sound=sound,
            response=response and response.between(counted_s),
        )

    def _may_have_wrapped(self, window: slice) -> bool:
        return bool((self._rises_j(window) > self.range_j / 2).any())

    def _rises_j(self, window: slice) -> NDArray[np.float64]:
        rises_j = np.diff(self.counter_j[window])
        return np.where(rises_j < 0, rises_j + self.range_j, rises_j)


def _exact(response: Response | None) -> Response | None:
    return response if response is not None and response.is_exact else None


def _mean_age_ns(response: Response | None) -> int:
    return 0 if response is None else round(response.mean_age_s * _NS_PER_S)


def _samples_within(
    times_ns: NDArray[np.int64], start_ns: int, end_ns: int, period_s: float, response: Response
) -> slice | Void:
    """Samples that contain no power from before or after a window."""
    first_ns = start_ns + round(response.oldest_s * _NS_PER_S)
    last_ns = end_ns + round(response.youngest_s * _NS_PER_S)
    if first_ns >= last_ns:
        return Void(response.too_long_for((end_ns - start_ns) / _NS_PER_S))
    around = _samples_around(times_ns, first_ns, last_ns, period_s)
    return around if isinstance(around, Void) else slice(around.start + 1, around.stop - 1)


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
