"""From trials to figures with confidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from devices.profile import Interval

CONFIDENCE = 0.95
_RESAMPLES = 2000


def median_interval(values: Sequence[float], seed: int) -> Interval:
    """Median over blocks (one value each) and its percentile bootstrap interval (Efron and
    Tibshirani 1993, chapter 13).

    With five blocks the interval is from the smallest to the largest value, which covers the true
    median in 94 % of cases; with fewer it cannot be as sure as it says, and one block gives no
    interval at all.
    """
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) == 0:
        raise ValueError("no values, no median")
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
    # Interpolated percentiles can round to beyond the sample, and past the median.
    low = max(float(result.confidence_interval.low), float(sample.min()))
    high = min(float(result.confidence_interval.high), float(sample.max()))
    return Interval(median=median, low=min(low, median), high=max(high, median))
