"""Relative shift between paired measurements, with its interval and what could have been seen.

Logarithms of the ratios are taken as normal with an unknown variance (Student's t). A repetition
runs all cells of a campaign within a short time of each other, so that the two members of a pair
share what is slow to change: temperature, background load, the state of a card. Pairs of two
campaigns, or of a campaign that was interrupted or extended, do not share it, and what changes in
between is in no interval.

Intervals of several comparisons hold together with the stated confidence (Bonferroni): of
comparisons between equal things within a campaign, at most 5 % raise any alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from devices.documents.document import StrictModel
from devices.quantities import NonNegative, WholeNumber

Verdict: TypeAlias = Literal["more", "less", "same", "undecided"]

CONFIDENCE = 0.95
"""Confidence with which all intervals of a comparison hold together."""

POWER = 0.9
"""Probability with which the smallest visible shift is found."""

_MOST_LOG = math.log(1e15)  # further ends of an interval, of two pairs for example, say no more


class Shift(StrictModel):
    """Change from one measurement to another, as a share of the first.

    Attributes:
        pairs: Number of pairs that it is from; 0 for figures that are computed and have no error.
        shift: Change of the geometric mean; 0.1 is 10 % more.
        low, high: Ends of its interval; absent for fewer than two pairs.
        visible: The smallest change that these pairs would have shown with 90 % probability; absent
            where the interval is.
        verdict: ``more`` or ``less`` if the interval excludes zero, but ``same`` if the interval
            lies within the margin; else ``undecided``.
    """

    pairs: WholeNumber
    shift: float
    low: float | None = None
    high: float | None = None
    visible: NonNegative | None = None
    verdict: Verdict


def paired_shift(
    before: Sequence[float], after: Sequence[float], comparisons: int, margin: float
) -> Shift:
    """Shift from ``before`` to ``after``, pair by pair.

    Args:
        before: Positive figures, at least one.
        after: As many figures, in the same order.
        comparisons: Number of comparisons that are made together.
        margin: Largest shift at which the two count as the same, such as 0.02.

    Returns:
        The shift, whose interval holds together with those of the other comparisons.
    """
    logs = [math.log(new / old) for old, new in zip(before, after, strict=True)]
    return shift_of_logs(logs, comparisons, margin)


def shift_of_logs(logs: Sequence[float], comparisons: int, margin: float) -> Shift:
    """Shift whose pairs have these logarithms of ratios; see :func:`paired_shift`."""
    from scipy.special import stdtrit

    mean = fmean(logs)
    if len(logs) < 2:
        return Shift(pairs=len(logs), shift=math.expm1(mean), verdict="undecided")
    error = stdev(logs) / math.sqrt(len(logs))
    freedom = len(logs) - 1
    tail = (1 - CONFIDENCE) / 2 / comparisons
    reach = float(stdtrit(freedom, 1 - tail)) * error
    visible = min(_MOST_LOG, reach + float(stdtrit(freedom, POWER)) * error)
    low = math.expm1(max(-_MOST_LOG, mean - reach))
    high = math.expm1(min(_MOST_LOG, mean + reach))
    return Shift(
        pairs=len(logs),
        shift=math.expm1(mean),
        low=low,
        high=high,
        visible=math.expm1(visible),
        verdict=_verdict(low, high, margin),
    )


def exact_shift(before: float, after: float, margin: float) -> Shift:
    """Shift between two figures that have no error, such as energies of schedules."""
    shift = after / before - 1 if before else 0.0
    return Shift(
        pairs=0,
        shift=shift,
        low=shift,
        high=shift,
        visible=0.0,
        verdict=_verdict(shift, shift, margin),
    )


def _verdict(low: float, high: float, margin: float) -> Verdict:
    if -margin <= low and high <= margin:
        return "same"
    if low > 0:
        return "more"
    return "less" if high < 0 else "undecided"
