"""Medians with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from devices.profile import Interval

CONFIDENCE = 0.95
_RESAMPLES = 2000


def median_interval(values: Sequence[float], seed: int) -> Interval:
    """Median over blocks and its percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13).

    With five blocks the interval spans the smallest to the largest value, which covers the true
    median in 94 % of cases. With fewer blocks its confidence is lower than stated, and one block
    gives no interval.

    Args:
        values: One value per block.
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
