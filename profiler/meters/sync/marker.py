"""Synchronisation by the board's power: a known pattern of busy and idle stretches before and after
a block.

The pattern is first located by correlation with the whole capture, to a fraction of a bit. Then
each of its edges is timed by the energy on either side of it. The spread of the edges' times gives
the uncertainty of their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from devices.errors import MeasurementInvalid
from profiler.meters.base import BlockRecord, MarkerPattern
from profiler.meters.capture import Capture
from profiler.meters.sync.base import ClockMap, SyncLost

PATTERN = tuple(digit == "1" for digit in "1100011110000101101100101")
"""Six times up and down. Of some ten thousand random patterns of this length, it correlates least
with shifted copies of itself, busy or idle around it: 0.20 at most."""

_LEAST_SAMPLES_PER_BIT = 4
_STEPS_PER_BIT = 8
# Ratios of the two clocks that are tried; between two of them the pattern's ends shift by at most a
# sixteenth of a bit.
_RATES = np.linspace(0.98, 1.02, 9)
_MOST_RATE_ERROR = 0.025
_LEAST_CORRELATION = 0.6
_MOST_SECOND = 0.9
"""Largest sum of correlations of another pair of places, as a share of the best sum."""
_EDGE_REACH = 0.4
_ROUNDS = 4
_OUTLIER = 4.0


@dataclass(frozen=True)
class _Place:
    """Start of the pattern on the instrument's time base, and its correlation (1: identical)."""

    start_s: float
    correlation: float


@dataclass(frozen=True)
class MarkerSynchroniser:
    """Implements :class:`~profiler.meters.sync.base.Synchroniser` by a pattern of bits of
    ``bit_s``."""

    bit_s: float
    guard_s: float = 0.0

    @property
    def name(self) -> str:
        return f"marker: {len(PATTERN)} busy and idle stretches of {self.bit_s * 1e3:g} ms"

    @property
    def marker(self) -> MarkerPattern:
        return MarkerPattern(PATTERN, self.bit_s)

    def clock(self, capture: Capture, block: BlockRecord) -> ClockMap:
        if self.bit_s < _LEAST_SAMPLES_PER_BIT * capture.period_s:
            raise MeasurementInvalid(
                f"stretches of {self.bit_s * 1e3:g} ms are too short for an instrument with a"
                f" sample every {capture.period_s * 1e3:.3g} ms: raise sync.bit_s to"
                f" {_LEAST_SAMPLES_PER_BIT * capture.period_s:.3g} at least"
            )
        if len(block.markers_ns) < 2:
            raise SyncLost("the marker after the block is missing")
        markers_ns = np.array([block.markers_ns[0], block.markers_ns[-1]], dtype=np.int64)
        apart_s = float(markers_ns[1] - markers_ns[0]) / 1e9
        recorded_s = capture.end_s - capture.start_s
        if apart_s * (1 - _MOST_RATE_ERROR) > recorded_s:
            raise SyncLost(
                f"the instrument recorded {recorded_s:.0f} s, and the marker after the block came"
                f" {apart_s:.0f} s after the one before it: measure fewer steps or windows at once"
            )
        front, rear, rate = self._find(capture, apart_s)
        for _ in range(2):  # the second time with the rate from the first
            refined = [_refine(capture, place, self.bit_s * rate) for place in (front, rear)]
            rate = (refined[1].start_s - refined[0].start_s) / apart_s
        return ClockMap(
            board_ns=markers_ns,
            meter_s=np.array([edges.start_s for edges in refined]),
            uncertainty_s=max(edges.error_s for edges in refined),
        )

    def _find(self, capture: Capture, apart_s: float) -> tuple[float, float, float]:
        """Approximate starts of both markers, and the clock ratio with the highest correlation."""
        energy = _Energy.of(capture, slice(0, len(capture)), self.bit_s / _STEPS_PER_BIT)
        best: tuple[_Place, _Place, float] | None = None
        others: list[tuple[_Place, _Place]] = []
        strongest = 0.0
        for rate in map(float, _RATES):
            places = _places(energy, self.bit_s * rate)
            strongest = max([strongest, *(place.correlation for place in places)])
            for front, rear in _pairs(places, apart_s):
                others.append((front, rear))
                if best is None or _sum(front, rear) > _sum(best[0], best[1]):
                    best = (front, rear, rate)
        if best is None:
            raise SyncLost(
                "the marker was not recognised before and after the block (best"
                f" correlation {strongest:.2f}, {_LEAST_CORRELATION} is needed): raise sync.bit_s,"
                " or check that the board draws clearly more when it is busy"
            )
        for front, rear in others:
            apart = (abs(front.start_s - best[0].start_s), abs(rear.start_s - best[1].start_s))
            if max(apart) > self.bit_s and _sum(front, rear) > _MOST_SECOND * _sum(
                best[0], best[1]
            ):
                raise SyncLost("the marker was recognised in more than one place: raise sync.bit_s")
        return best[0].start_s, best[1].start_s, best[2]


def _sum(front: _Place, rear: _Place) -> float:
    return front.correlation + rear.correlation


def _pairs(places: list[_Place], apart_s: float) -> list[tuple[_Place, _Place]]:
    return [
        (front, rear)
        for front in places
        for rear in places
        if abs(rear.start_s - front.start_s - apart_s) <= _MOST_RATE_ERROR * apart_s
    ]


@dataclass(frozen=True)
class _Energy:
    """Joules since the first of ``times_s``, linear between them. Both float64 [points]."""

    times_s: NDArray[np.float64]
    joules: NDArray[np.float64]

    @classmethod
    def of(cls, capture: Capture, part: slice, step_s: float) -> _Energy:
        """Energy at every ``step_s`` or at every sample, whichever is longer. A lost sample repeats
        the one before."""
        samples = max(1, round(step_s / capture.period_s))
        edges = np.arange(part.start, part.stop, samples)
        power = capture.power_w[part]
        if np.isnan(power).any():
            known = np.maximum.accumulate(np.where(np.isnan(power), 0, np.arange(len(power))))
            power = np.nan_to_num(power[known])
        times_s = capture.time_s(edges)
        if samples > 1:
            sums = np.add.reduceat(power, np.arange(0, len(power), samples), dtype=np.float64)
            # A sample stands for half a period on either side of it.
            times_s = times_s - capture.period_s / 2
            steps_j = sums[:-1] / samples * np.diff(times_s)
        else:
            steps_j = (power[1:] + power[:-1]) / 2 * np.diff(times_s)
        return cls(times_s, np.concatenate([[0.0], np.cumsum(steps_j, dtype=np.float64)]))

    def between(self, instants_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """[..., n - 1] joules between neighbours of [..., n]."""
        return np.diff(np.interp(instants_s, self.times_s, self.joules), axis=-1)


def _places(energy: _Energy, bit_s: float) -> list[_Place]:
    """Places with a high correlation with the pattern, highest within a bit on either side. It is
    Pearson's correlation, of the energies of the bits."""
    length_s = len(PATTERN) * bit_s
    lags_s = np.arange(energy.times_s[0], energy.times_s[-1] - length_s, bit_s / _STEPS_PER_BIT)
    if len(lags_s) == 0:
        return []
    pattern = np.array(PATTERN, dtype=np.float64)
    pattern = (pattern - pattern.mean()) / np.linalg.norm(pattern - pattern.mean())
    edges_s = bit_s * np.arange(len(PATTERN) + 1)
    products = np.empty(len(lags_s))
    for first in range(0, len(lags_s), 1 << 14):
        some = slice(first, first + (1 << 14))
        joules = energy.between(lags_s[some, None] + edges_s)
        joules -= joules.mean(axis=1, keepdims=True)
        size = np.linalg.norm(joules, axis=1)
        products[some] = joules @ pattern / np.maximum(size, 1e-300)
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(products, _STEPS_PER_BIT, constant_values=-1.0), 2 * _STEPS_PER_BIT + 1
    )
    peaks = np.flatnonzero((products >= _LEAST_CORRELATION) & (products == around.max(axis=1)))
    return [_Place(float(lags_s[peak]), float(products[peak])) for peak in peaks]


@dataclass(frozen=True)
class _Refined:
    start_s: float
    error_s: float


def _refine(capture: Capture, start_s: float, bit_s: float) -> _Refined:
    """Refine the start of the pattern by timing every edge.

    The energy from 0.4 bits before an edge to 0.4 bits after it is the lower the later the power
    rises.
    """
    from scipy.stats import t as students_t

    bits = np.array(PATTERN)
    length_s = len(bits) * bit_s
    part = capture.around(start_s - bit_s, start_s + length_s + bit_s)
    energy = _Energy.of(capture, part, 0.0)
    edges = np.flatnonzero(np.diff(bits.astype(np.int8))) + 1
    rising = bits[edges]
    reach_s = _EDGE_REACH * bit_s
    late_s = np.zeros(len(edges))
    for _ in range(_ROUNDS):
        starts_s = start_s + bit_s * np.arange(len(bits))
        inner_s = np.stack([starts_s + 0.25 * bit_s, starts_s + 0.75 * bit_s], axis=1)
        power_w = energy.between(inner_s)[:, 0] / (0.5 * bit_s)
        high_w, low_w = power_w[bits].mean(), power_w[~bits].mean()
        if high_w <= low_w:
            raise SyncLost("the marker's busy stretches draw no more than its idle ones")
        edges_s = start_s + bit_s * edges
        around_j = energy.between(np.stack([edges_s - reach_s, edges_s + reach_s], axis=1))[:, 0]
        early_s = (around_j - reach_s * (high_w + low_w)) / (high_w - low_w)
        late_s = np.where(rising, -early_s, early_s)
        deviation = np.abs(late_s - np.median(late_s))
        kept = deviation <= _OUTLIER * 1.4826 * np.median(deviation) + capture.period_s
        late_s = late_s[kept]
        start_s += float(late_s.mean())
    freedom = len(late_s) - 1
    spread_s = float(late_s.std(ddof=1)) / np.sqrt(len(late_s))
    # Edges at the same place between two samples share an error, which the spread does not show.
    error_s = float(students_t.ppf(0.975, freedom)) * spread_s + capture.period_s / 2
    return _Refined(start_s, error_s)
