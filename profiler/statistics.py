"""Medians with intervals: of what was measured, and of what a later sitting will measure.

A sitting is what was measured at one time by one process. Two questions have two answers.
:func:`median_interval` says how well the values that exist determine their median.
:func:`later_intervals` says where one later sitting will find the figure. The second interval is
wider: the later sitting deviates as the earlier ones did. With five sittings, the first interval
spans the smallest to the largest value, which holds the value of a sixth in 4 of 6 cases only.

The later value is predicted on a logarithmic scale, as Student did: mean ± t · s · √(1 + 1/n) holds
the next of n + 1 values of a normal distribution with the stated probability, exactly. With few
sittings s is uncertain and t large. Figures that were measured alike have similar spreads, so that
each s² is moderated by those of all figures together (Smyth 2004, *Linear models and empirical
Bayes methods*, section 6): the spreads' own spread says by how much. What sittings change for all
figures at once is seen only once per sitting, however many figures there are. Two sample variances
of a bivariate normal distribution with correlation ρ have the correlation ρ², so that by
Satterthwaite (1946, *An approximate distribution of estimates of variance components*) the mean
variance of n figures has n / (1 + (n - 1) ρ²) times the degrees of freedom of one. No moderated
spread has more.

Sittings within seconds of each other deviate alike where a computer's speed changes from one time
to another, and are no independent values. Those of one time therefore count as one, by their mean.
With the variances B between the means of k times and W within times, whose numbers of sittings
have the harmonic mean r, a single sitting of a later time has the variance B + (1 - 1/r) W, as in a
random-effects analysis of variance (Searle, Casella and McCulloch 1992, *Variance Components*,
section 3.6). Satterthwaite gives its degrees of freedom: k - 1 where times differ most, and as many
as for independent sittings where they do not.

Two sittings show a common deviation only once, and hardly say how large others will be. Where it is
larger than the figures' own ones, intervals hold less than they state: in simulations with 3 % in
common and 1 % of their own, 86 to 90 % of 40 figures from two sittings, 94 to 95 % from three.

Measurements have longer tails than a normal distribution. Each time is therefore left out in turn
and its sittings predicted from the others, for all figures; if their intervals hold less than 95 %
of what was left out, all are widened until they do (cross-conformal prediction, Vovk 2015). Figures
that differ by less than a window resolves are widened apart from the others: their spreads are
rounding errors, and no measure of how far a rare interrupt moves them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul

import numpy as np
from numpy.typing import NDArray

from devices.profile import Interval

CONFIDENCE = 0.95
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)

# Share of resamples that changes no interval.
_NEGLIGIBLE = 1e-12

# Fewest figures whose spreads are moderated, and the smallest spread of a figure, relative to the
# median of all, that is taken for measured. Both as in limma, Smyth's implementation.
_FEWEST_FIGURES = 3
_LEAST_SPREAD = 1e-5

# Logarithm of the widest factor between mean and end: two sittings alone, t = 12.7, can exceed it.
_WIDEST = 10.0

# Least relative half width of an interval that has one: where a window begins and ends between two
# ticks, and how its executions divide its overhead, differs even where nothing else does.
_RESOLUTION = 5e-5

# Fewest predictions of left-out values that decide on a wider interval.
_FEWEST_LEFT_OUT = 40

# Degrees of freedom of a prior that is certain, for all that matters here.
_CERTAIN = 1e6


def median_interval(values: Sequence[float]) -> Interval:
    """Median of the values and its percentile bootstrap interval.

    See Efron and Tibshirani (1993), chapter 13. With five values the interval spans the smallest to
    the largest, which covers the true median in 94 % of cases. With fewer its confidence is lower
    than stated, and one value gives no interval.

    Nothing is drawn: the distribution of the medians of all resamples is known. The middle value of
    a resample has a binomial distribution over the ranks of the values, and the two middle values
    of an even number have a joint one (Hutson and Ernst 2000, *The exact bootstrap mean and
    variance of an L-estimator*).

    Args:
        values: The values, in any order.

    Raises:
        ValueError: ``values`` is empty.
    """
    if len(values) == 0:
        raise ValueError("a median needs at least one value")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    median = float(np.median(ordered))
    low, high = (_resampled_median(ordered, share) for share in _TAILS)
    # Rounding can put the mean of two values past the median.
    return Interval(median=median, low=min(low, median), high=max(high, median))


def _resampled_median(ordered: NDArray[np.float64], share: float) -> float:
    """Quantile of the medians of all resamples of n values."""
    count, half = len(ordered), len(ordered) // 2
    if count % 2:
        return float(ordered[_rank(half + 1, count, share) - 1])
    # The mean of the two middle values lies between them, and so does its quantile.
    low, high = (float(ordered[_rank(place, count, share) - 1]) for place in (half, half + 1))
    if _share_of_medians(ordered, low) >= share:
        return low
    while low < (middle := low + (high - low) / 2) < high:
        if _share_of_medians(ordered, middle) >= share:
            high = middle
        else:
            low = middle
    return high


def _rank(place: int, count: int, share: float) -> int:
    """Quantile of the rank, from 1, that a resample's ``place``-th smallest value has among all."""
    from scipy.special import betaincinv

    return max(1, math.ceil(count * float(betaincinv(place, count - place + 1, share))))


def _share_of_medians(ordered: NDArray[np.float64], limit: float) -> float:
    """Share of all resamples of an even number of values with a median of at most ``limit``.

    Of n = 2 m values in a resample, the m-th smallest has at most the rank k of ``limit``; those do
    not count whose m-th has a rank i, and the next one a rank above j, the last one with which the
    mean of both is at most ``limit``. These have the share
    C(n, m) ((i/n)^m - ((i - 1)/n)^m) (1 - j/n)^m.
    """
    from scipy.special import bdtrc, betaln

    count, half = len(ordered), len(ordered) // 2
    within = int(np.searchsorted(ordered, limit, side="right"))
    ranks = np.arange(_rank(half, count, _NEGLIGIBLE), within + 1)
    last = np.searchsorted(ordered, 2 * limit - ordered[ranks - 1], side="right")
    # C(n, m) / 4^m, with 4^m multiplied into the powers: neither overflows.
    ways = math.exp(-math.log(count + 1) - float(betaln(half + 1, half + 1)) - half * math.log(4))
    above = (4 * ranks / count * (1 - last / count)) ** half * (1 - (1 - 1 / ranks) ** half)
    return float(bdtrc(half - 1, count, within / count)) - ways * float(above.sum())


def later_intervals(
    figures: Sequence[Sequence[float]], times: Sequence[Sequence[int]] | None = None
) -> list[Interval]:
    """Median of each figure over its sittings, with the interval of one later sitting's value.

    A figure of one sitting gets the spread of the others, and no interval where none is known.
    A figure with a value of zero has no logarithm; its interval spans its values.

    Args:
        figures: For each figure, one value per sitting. All were measured in the same way, so that
            their relative spreads are comparable.
        times: For each value, the number of the time at which it was measured. Values of a single
            time are taken to be independent of each other, since nothing says how times differ.
            Without it, each was measured at a time of its own.

    Raises:
        ValueError: A figure has no values.
    """
    if any(len(values) == 0 for values in figures):
        raise ValueError("a median needs at least one value")
    numbers = times or [range(len(values)) for values in figures]
    samples = [_Sample.of(*each) for each in zip(figures, numbers, strict=True)]
    widening, resolution = _widening(samples)
    intervals: list[Interval] = []
    for sample, (half, freedom) in zip(samples, _half_widths(samples), strict=True):
        if len(sample.values) == 1 and half == 0.0:
            intervals.append(Interval.exact(sample.values[0]))
        else:
            widened = widening * half if half > _RESOLUTION else resolution
            intervals.append(_later(sample, widened, freedom))
    return intervals


def later_variance(values: Sequence[float], times: Sequence[int]) -> float:
    """Variance of the value of one sitting at a later time; 0 for a single value.

    Args:
        values: The value of each sitting, at least one.
        times: The number of the time at which each was measured, as for :func:`later_intervals`.
    """
    return _variance(_by_time(values, times))[0]


def interval_after_one_sitting(
    within: Interval, earlier: Sequence[tuple[Interval, Sequence[int]]]
) -> Interval:
    """Median of a figure in one sitting, with the interval of one later sitting's value.

    Both sittings deviate: by what is known to differ between sittings, or by the error of the
    median within this one if that is larger. The half width is √2 times that of the deviation.

    Args:
        within: The figure in its sitting, with the interval of :func:`median_interval`.
        earlier: Intervals by :func:`later_intervals` of figures with the same relative spread, each
            with the number of each of its sittings' time, as for that function. The widest counts,
            and those that reach zero do not.
    """
    if within.low == 0:
        return within
    half, freedom = within.half_log, None
    for interval, times in earlier:
        count = len(_by_time(times, times))
        if interval.low > 0 and (one := interval.half_log / math.sqrt(1 + 1 / count)) > half:
            half, freedom = one, interval.freedom
    factor = math.exp(min(_WIDEST, math.sqrt(2) * half))
    return Interval(
        median=within.median,
        low=within.median / factor,
        high=within.median * factor,
        freedom=freedom,
    )


@dataclass(frozen=True)
class _Sample:
    """Values of one figure: one for each sitting, by the time at which it was measured."""

    by_time: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, values: Sequence[float], times: Sequence[int]) -> _Sample:
        return cls(_by_time(values, times))

    def without(self, time: int) -> _Sample:
        """The values of the other times."""
        return _Sample(self.by_time[:time] + self.by_time[time + 1 :])

    @property
    def count(self) -> int:
        """Number of times."""
        return len(self.by_time)

    @cached_property
    def values(self) -> list[float]:
        return [value for values in self.by_time for value in values]

    @cached_property
    def has_logarithms(self) -> bool:
        return min(self.values) > 0

    @cached_property
    def logs(self) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(map(math.log, values)) for values in self.by_time)

    @cached_property
    def mean_log(self) -> float:
        """Mean over the times of the mean logarithm of each."""
        return _mean(list(map(_mean, self.logs)))

    @cached_property
    def spread(self) -> tuple[float, float]:
        """Variance of the logarithms, and its degrees of freedom: 0 where it has none."""
        if self.count < 2 or not self.has_logarithms:
            return 0.0, 0.0
        variance, freedom = _variance(self.logs)
        # The variance of equal values is not exactly zero.
        return (variance if min(self.values) < max(self.values) else 0.0), freedom


def _by_time(values: Sequence[float], times: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    """The values of each time, earliest number first; each by itself if all are of one time."""
    if len(set(times)) == 1:
        return tuple((value,) for value in values)
    found: dict[int, list[float]] = {time: [] for time in sorted(times)}
    for value, time in zip(values, times, strict=True):
        found[time].append(value)
    return tuple(map(tuple, found.values()))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    """Sum of the squared deviations from the mean."""
    mean = _mean(values)
    return math.fsum((value - mean) * (value - mean) for value in values)


def _variance(by_time: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Variance of one value of a later time, and its degrees of freedom: 0 for a single time."""
    count = len(by_time)
    if count < 2:
        return 0.0, 0.0
    between = _squares(list(map(_mean, by_time))) / (count - 1)
    freedom = sum(map(len, by_time)) - count
    if freedom == 0:
        return between, count - 1.0
    share = 1.0 - _mean([1.0 / len(values) for values in by_time])
    within = share * math.fsum(map(_squares, by_time)) / freedom
    variance = between + within
    if variance == 0.0:
        return 0.0, count - 1.0
    parts = (between / variance) ** 2 / (count - 1) + (within / variance) ** 2 / freedom
    return variance, 1.0 / parts


def _half_widths(samples: Sequence[_Sample]) -> list[tuple[float, float]]:
    """Half widths on the logarithmic scale, 0 where no spread is known, and degrees of freedom."""
    from scipy.special import stdtrit

    variances, freedoms = _moderated([each.spread for each in samples], _correlation(samples))
    factors = stdtrit(freedoms, (1 + CONFIDENCE) / 2).tolist()
    return [
        (
            factor * math.sqrt(variance * (1 + 1 / sample.count))
            if variance > 0 and sample.has_logarithms
            else 0.0,
            freedom,
        )
        for sample, variance, freedom, factor in zip(
            samples, variances, freedoms, factors, strict=True
        )
    ]


def _correlation(samples: Sequence[_Sample]) -> float:
    """Mean correlation of two figures' logarithms over sittings.

    Only figures count that have the most values, and among these the most common numbers of
    sittings at each time. In units of their spreads, the sum of n of them has the variance
    n + n (n - 1) ρ.
    """
    known = [sample for sample in samples if sample.spread[0] > 0]
    most = max((len(sample.values) for sample in known), default=0)
    longest = [sample for sample in known if len(sample.values) == most]
    shapes = [tuple(map(len, sample.by_time)) for sample in longest]
    if not shapes:
        return 0.0
    ((common, count),) = Counter(shapes).most_common(1)
    if count < 2:
        return 0.0
    alike = [sample for sample, shape in zip(longest, shapes, strict=True) if shape == common]
    weights = [1 / math.sqrt(sample.spread[0]) for sample in alike]
    sums = [
        [math.fsum(map(mul, weights, logs)) for logs in zip(*of_time, strict=True)]
        for of_time in zip(*(sample.logs for sample in alike), strict=True)
    ]
    total, _ = _variance(sums)
    return min(1.0, max(0.0, (total / count - 1) / (count - 1)))


def _widening(samples: Sequence[_Sample]) -> tuple[float, float]:
    """Factor, at least 1, with which intervals hold 95 % of the values that were left out, and the
    half width with which those below the resolution do."""
    resolved: list[float] = []
    unresolved: list[float] = []
    for time in range(max((sample.count for sample in samples), default=0)):
        # Two times are left, so that there is a spread.
        left = [each for each in samples if each.count > max(time, 2) and each.has_logarithms]
        others = [sample.without(time) for sample in left]
        for sample, other, (half, _) in zip(left, others, _half_widths(others), strict=True):
            for log in sample.logs[time]:
                error = abs(log - other.mean_log)
                if half > _RESOLUTION:
                    resolved.append(error / half)
                else:
                    unresolved.append(error / _RESOLUTION)
    return _factor(resolved), _factor(unresolved) * _RESOLUTION


def _factor(scores: Sequence[float]) -> float:
    """Smallest factor, at least 1, that 95 % of the scores do not exceed; 1 for few scores."""
    rank = math.ceil(CONFIDENCE * (len(scores) + 1))
    if len(scores) < _FEWEST_LEFT_OUT or rank > len(scores):
        return 1.0
    return max(1.0, sorted(scores)[rank - 1])


def _later(sample: _Sample, half: float, freedom: float) -> Interval:
    values = sample.values
    median = float(np.median(values))
    if not sample.has_logarithms:
        return Interval(median=median, low=min(values), high=max(values))
    half = min(_WIDEST, half)
    low, high = math.exp(sample.mean_log - half), math.exp(sample.mean_log + half)
    return Interval(
        median=median, low=min(low, median), high=max(high, median), freedom=freedom or None
    )


def _moderated(
    spreads: Sequence[tuple[float, float]], correlation: float
) -> tuple[list[float], list[float]]:
    """Variances and degrees of freedom, each moderated by all.

    Args:
        spreads: Variance of each figure and its degrees of freedom, 0 where it has none.
        correlation: Mean correlation of two figures.
    """
    known = [(variance, freedom) for variance, freedom in spreads if freedom > 0]
    typical = float(np.median([variance for variance, _ in known])) if known else 0.0
    if len(known) < _FEWEST_FIGURES or typical == 0.0:
        return [variance for variance, _ in spreads], [freedom for _, freedom in spreads]
    from scipy.special import digamma, polygamma

    halves = np.array([freedom / 2 for _, freedom in known])
    variances = np.maximum([variance for variance, _ in known], _LEAST_SPREAD * typical)
    logs = np.log(variances) - digamma(halves) + np.log(halves)
    excess = float(logs.var(ddof=1) - polygamma(1, halves).mean())
    prior_freedom = 2 * _inverse_trigamma(excess) if excess > 0 else _CERTAIN
    prior_freedom = min(prior_freedom, _CERTAIN)
    prior = math.exp(
        float(logs.mean()) + float(digamma(prior_freedom / 2)) - math.log(prior_freedom / 2)
    )
    pooled = 2 * float(halves.sum()) / (1 + (len(known) - 1) * correlation**2)
    return (
        [
            (prior_freedom * prior + freedom * variance) / (prior_freedom + freedom)
            for variance, freedom in spreads
        ],
        [max(freedom, min(prior_freedom + freedom, pooled)) for _, freedom in spreads],
    )


def _inverse_trigamma(value: float) -> float:
    """Find x with trigamma(x) = ``value``, at most half of ``_CERTAIN``."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    def error(log_x: float) -> float:
        return math.log(float(polygamma(1, math.exp(log_x)))) - math.log(value)

    low, high = -0.5 * math.log(value) - 2.0, math.log(_CERTAIN / 2)
    if error(high) > 0 or low >= high:
        return _CERTAIN / 2
    return math.exp(float(brentq(error, min(low, -20.0), high)))
