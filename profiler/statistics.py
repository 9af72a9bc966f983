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

Measurements have longer tails than a normal distribution. Each sitting is therefore left out in
turn and predicted from the others, for all figures; if their intervals hold less than 95 % of what
was left out, all are widened until they do (cross-conformal prediction, Vovk 2015). Figures that
differ by less than a window resolves are widened apart from the others: their spreads are rounding
errors, and no measure of how far a rare interrupt moves them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from devices.profile import Interval

CONFIDENCE = 0.95
_RESAMPLES = 2000

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


def median_interval(values: Sequence[float], seed: int) -> Interval:
    """Median of the values and its percentile bootstrap interval.

    See Efron and Tibshirani (1993), chapter 13. With five values the interval spans the smallest to
    the largest, which covers the true median in 94 % of cases. With fewer its confidence is lower
    than stated, and one value gives no interval.

    Args:
        values: The values.
        seed: Seed of the bootstrap.

    Raises:
        ValueError: ``values`` is empty.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) == 0:
        raise ValueError("a median needs at least one value")
    median = float(np.median(sample))
    if np.ptp(sample) == 0.0:
        return Interval.exact(median)
    from scipy.stats import bootstrap  # takes a second to import

    result = bootstrap(
        (sample,),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    # Rounding can put interpolated percentiles beyond the sample or past the median.
    low = max(float(result.confidence_interval.low), float(sample.min()))
    high = min(float(result.confidence_interval.high), float(sample.max()))
    return Interval(median=median, low=min(low, median), high=max(high, median))


def later_intervals(figures: Sequence[Sequence[float]]) -> list[Interval]:
    """Median of each figure over its sittings, with the interval of one later sitting's value.

    A figure of one sitting gets the spread of the others, and no interval where none is known.
    A figure with a value of zero has no logarithm; its interval spans its values.

    Args:
        figures: For each figure, one value per sitting. All were measured in the same way, so that
            their relative spreads are comparable.

    Raises:
        ValueError: A figure has no values.
    """
    if any(len(values) == 0 for values in figures):
        raise ValueError("a median needs at least one value")
    samples = [np.asarray(values, dtype=np.float64) for values in figures]
    widening, resolution = _widening(samples)
    intervals: list[Interval] = []
    for sample, (half, freedom) in zip(samples, _half_widths(samples), strict=True):
        if len(sample) == 1 and half == 0.0:
            intervals.append(Interval.exact(float(sample[0])))
        else:
            widened = widening * half if half > _RESOLUTION else resolution
            intervals.append(_later(sample, widened, freedom))
    return intervals


def interval_after_one_sitting(
    within: Interval, earlier: Sequence[tuple[Interval, int]]
) -> Interval:
    """Median of a figure in one sitting, with the interval of one later sitting's value.

    Both sittings deviate: by what is known to differ between sittings, or by the error of the
    median within this one if that is larger. The half width is √2 times that of the deviation.

    Args:
        within: The figure in its sitting, with the interval of :func:`median_interval`.
        earlier: Intervals by :func:`later_intervals` of figures with the same relative spread, each
            with its number of sittings. The widest counts, and those that reach zero do not.
    """
    if within.low == 0:
        return within
    half, freedom = _half(within), None
    for interval, sittings in earlier:
        if interval.low > 0 and (one := _half(interval) / math.sqrt(1 + 1 / sittings)) > half:
            half, freedom = one, interval.freedom
    factor = math.exp(min(_WIDEST, math.sqrt(2) * half))
    return Interval(
        median=within.median,
        low=within.median / factor,
        high=within.median * factor,
        freedom=freedom,
    )


def _half(interval: Interval) -> float:
    """Half width of a positive interval on the logarithmic scale."""
    return math.log(interval.high / interval.low) / 2


def _spread(sample: NDArray[np.float64]) -> tuple[float, int]:
    """Variance of the logarithms, and its degrees of freedom: 0 where it has none."""
    if len(sample) < 2 or sample.min() <= 0:
        return 0.0, 0
    # The variance of equal values is not exactly zero.
    variance = float(np.log(sample).var(ddof=1)) if np.ptp(sample) else 0.0
    return variance, len(sample) - 1


def _half_widths(samples: Sequence[NDArray[np.float64]]) -> list[tuple[float, float]]:
    """Half widths on the logarithmic scale, 0 where no spread is known, and degrees of freedom."""
    from scipy.special import stdtrit

    spreads = [_spread(sample) for sample in samples]
    variances, freedoms = _moderated(spreads, _correlation(samples))
    return [
        (
            float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
            * math.sqrt(variance * (1 + 1 / len(sample)))
            if variance > 0 and sample.min() > 0
            else 0.0,
            freedom,
        )
        for sample, variance, freedom in zip(samples, variances, freedoms, strict=True)
    ]


def _correlation(samples: Sequence[NDArray[np.float64]]) -> float:
    """Mean correlation of two figures' logarithms over sittings, of those with most values.

    It is that of the figures in units of their spreads: the variance of the sum of n such figures
    is n + n (n - 1) ρ.
    """
    known = [sample for sample in samples if _spread(sample)[0] > 0]
    most = max(map(len, known), default=0)
    logs = np.log([sample for sample in known if len(sample) == most])
    count = len(logs)
    if count < 2:
        return 0.0
    deviations = logs - logs.mean(axis=1, keepdims=True)
    total = float((deviations / logs.std(axis=1, ddof=1, keepdims=True)).sum(axis=0).var(ddof=1))
    return min(1.0, max(0.0, (total / count - 1) / (count - 1)))


def _widening(samples: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Factor, at least 1, with which intervals hold 95 % of the values that were left out, and the
    half width with which those below the resolution do."""
    resolved: list[float] = []
    unresolved: list[float] = []
    for sitting in range(max(map(len, samples), default=0)):
        # Two values are left, so that there is a spread.
        left = [s for s in samples if len(s) > max(sitting, 2) and s.min() > 0]
        others = [np.delete(sample, sitting) for sample in left]
        for sample, other, (half, _) in zip(left, others, _half_widths(others), strict=True):
            error = abs(math.log(sample[sitting]) - float(np.log(other).mean()))
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


def _later(sample: NDArray[np.float64], half: float, freedom: float) -> Interval:
    median = float(np.median(sample))
    if sample.min() <= 0:
        return Interval(median=median, low=float(sample.min()), high=float(sample.max()))
    half = min(_WIDEST, half)
    mean = float(np.log(sample).mean())
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Interval(
        median=median, low=min(low, median), high=max(high, median), freedom=freedom or None
    )


def _moderated(
    spreads: Sequence[tuple[float, int]], correlation: float
) -> tuple[list[float], list[float]]:
    """Variances and degrees of freedom, each moderated by all.

    Args:
        spreads: Variance of each figure and its degrees of freedom, 0 where it has none.
        correlation: Mean correlation of two figures.
    """
    known = [(variance, freedom) for variance, freedom in spreads if freedom > 0]
    typical = float(np.median([variance for variance, _ in known])) if known else 0.0
    if len(known) < _FEWEST_FIGURES or typical == 0.0:
        return [variance for variance, _ in spreads], [float(freedom) for _, freedom in spreads]
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
        [max(float(freedom), min(prior_freedom + freedom, pooled)) for _, freedom in spreads],
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
