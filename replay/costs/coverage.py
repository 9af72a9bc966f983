"""Share of later trials that the intervals of a profile hold, with its own interval.

Two draws decide this share: the sittings of the profile, from which its intervals are, and those of
the check. Its interval is meant to hold the long-run share, that of a profile and a check made
anew, in 95 % of cases. In simulated checks (400 for each case: 40 figures, 1 to 9 sittings, a
profile without error) it did in 92 to 97 % where figures of one sitting correlate by at most 0.2,
in 76 to 89 % with 0.5, and in 10 to 33 % where all deviate alike, in two sittings or more: most
such checks hold every trial, and know of no other. The claim was found clearly wrong, falsely, in
at most 4 % of them with two sittings or more, and in 11 % with one. Neither draw consists
of independent trials:

* Trials of one sitting of the check deviate together, as when the whole board is slower. Their
  variance is that between sittings (Kish 1965, *Survey Sampling*, section 8.2).
* A sitting of the profile that was unusual shifts the intervals of many figures, and so do those
  of one pause together. Their part of the variance is found by the jackknife: the share with
  intervals from the sittings of all times but one, for each time (Efron 1982, *The Jackknife, the
  Bootstrap and Other Resampling Plans*, chapter 3). Where the profile keeps no sittings, each
  interval is taken to err by itself; trials of one figure then form a cluster.

The two variances add up. They are stated as the number of independent trials with this variance;
weights by time reduce that number likewise. The interval is Wilson's (1927) for this number, with
Student's quantile for the degrees of freedom of the variance (Satterthwaite 1946): that between
three sittings has two. A share of 0 or 1 has no variance of its own; the trials are taken to vary
as if two more were held and two more were not (Agresti and Coull 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from devices.documents.document import StrictModel
from devices.profile import Interval
from devices.quantities import Count, Fraction, Label, Name, NonNegative, WholeNumber
from profiler.statistics import later_intervals

CLAIM = 0.95
"""Share of later sittings that an interval of a profile claims to hold."""

_NORMAL_QUANTILE = 1.959964

# Fewest times of which one is left out: two of the others are needed for a spread.
_FEWEST_TIMES = 3


class Coverage(StrictModel):
    """Share of trials that their intervals hold, with its own 95 % interval."""

    trials: Count
    held: WholeNumber
    share: Fraction
    low: Fraction
    high: Fraction

    @property
    def is_clearly_below_the_claim(self) -> bool:
        return self.high < CLAIM


class CheckedFigure(StrictModel):
    """One cost: its interval in the profile, and what the check measured in each sitting.

    ``what`` is the name of an op or the key of an operation, each of which may be as long as a
    label, after words for its state.
    """

    what: Name
    kind: Label
    profile: Interval
    sittings_s: tuple[NonNegative, ...]

    @property
    def median_s(self) -> float:
        return float(np.median(self.sittings_s))

    @property
    def difference(self) -> float:
        """Relative difference of the median; 0 for a figure of zero."""
        return self.median_s / self.profile.median - 1 if self.profile.median else 0.0


@dataclass(frozen=True)
class CheckedGroup:
    """Figures that were measured in the same sittings, in the profile and in the check.

    Attributes:
        figures: the figures.
        without: for each time of the profile's sittings, the intervals of all figures from the
            sittings of other times; empty where the profile keeps no sittings.
        sittings: for each figure the numbers of the check's sittings that its values are of; empty
            where all are of the first ones.
    """

    figures: tuple[CheckedFigure, ...]
    without: tuple[tuple[Interval, ...], ...] = ()
    sittings: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(
        cls,
        figures: Sequence[CheckedFigure],
        profiled: Sequence[Sequence[float]],
        times: Sequence[int],
    ) -> CheckedGroup:
        """Figures, with the values of their profile's sittings.

        Args:
            figures: the figures.
            profiled: for each figure, the value of each of the profile's sittings.
            times: the number of each of these sittings' time.
        """
        numbers = sorted(set(times))
        if len(numbers) < _FEWEST_TIMES or any(len(own) != len(times) for own in profiled):
            return cls(tuple(figures))

        def without(left_out: int) -> tuple[Interval, ...]:
            others = [index for index, time in enumerate(times) if time != left_out]
            values = [[own[index] for index in others] for own in profiled]
            own_times = [times[index] for index in others]
            return tuple(later_intervals(values, [own_times] * len(values)))

        return cls(tuple(figures), tuple(map(without, numbers)))

    def of_kind(self, kind: str) -> CheckedGroup:
        """The figures of one kind."""
        chosen = [index for index, figure in enumerate(self.figures) if figure.kind == kind]
        return CheckedGroup(
            tuple(self.figures[index] for index in chosen),
            tuple(tuple(intervals[index] for index in chosen) for intervals in self.without),
            tuple(self.sittings[index] for index in chosen) if self.sittings else (),
        )

    @property
    def values(self) -> NDArray[np.float64]:
        """Values, a row for each figure and a column for each sitting; NaN where one is missing."""
        counts = (tuple(range(len(figure.sittings_s))) for figure in self.figures)
        numbers = self.sittings or tuple(counts)
        columns = {
            number: column
            for column, number in enumerate(sorted({each for own in numbers for each in own}))
        }
        values = np.full((len(self.figures), len(columns)), np.nan)
        for row, figure, own in zip(values, self.figures, numbers, strict=True):
            row[[columns[number] for number in own]] = figure.sittings_s
        return values


Weight = Callable[[CheckedFigure], float]


def coverage(groups: Sequence[CheckedGroup], weight: Weight | None = None) -> Coverage:
    """Weighted share of trials that lie in their figures' intervals.

    Args:
        groups: the figures, at least one.
        weight: weight of a figure's trials; every trial counts once without it, or if all are 0.
    """
    counted = [_Counted.of(group, weight) for group in groups if group.figures]
    if not any(each.weights.any() for each in counted):
        counted = [_Counted.of(group, None) for group in groups if group.figures]
    total = math.fsum(each.weights.sum() for each in counted)
    share = min(1.0, math.fsum(each.weight_of(each.held) for each in counted) / total)
    independent = total**2 / math.fsum((each.weights**2).sum() for each in counted)
    likely = (share * independent + 2.0) / (independent + 4.0)
    parts = [part for each in counted for part in each.variances(likely)]
    variance = math.fsum(part.variance for part in parts) / total**2
    effective = max(1.0, min(independent, likely * (1.0 - likely) / variance))
    low, high = wilson(share, effective, _quantile(parts))
    return Coverage(
        trials=sum(len(figure.sittings_s) for group in groups for figure in group.figures),
        held=sum(int(each.held.sum()) for each in counted),
        share=share,
        low=low,
        high=high,
    )


@dataclass(frozen=True, order=True)
class _Variance:
    """A variance, and its degrees of freedom; infinitely many where it is not estimated."""

    variance: float
    freedom: float = math.inf


@dataclass(frozen=True)
class _Counted:
    """Trials of a group, a row for each figure and a column for each sitting of the check.

    Attributes:
        weights: of the trials; 0 where a figure has none in a sitting.
        held: 1 where the profile's interval holds the trial, else 0.
        without: ``held`` by the intervals without the profile's sittings of each time.
    """

    weights: NDArray[np.float64]
    held: NDArray[np.float64]
    without: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, group: CheckedGroup, weight: Weight | None) -> _Counted:
        figures, values = group.figures, group.values
        own = np.array([1.0 if weight is None else weight(figure) for figure in figures])
        return cls(
            np.where(np.isnan(values), 0.0, own[:, None]),
            _held([figure.profile for figure in figures], values),
            tuple(_held(intervals, values) for intervals in group.without),
        )

    def weight_of(self, held: NDArray[np.float64]) -> float:
        """Weight of the trials that are held."""
        return float((self.weights * held).sum())

    def variances(self, share: float) -> Iterator[_Variance]:
        """Variances of the weight that is held, which add up, for a share over all groups."""
        alone = share * (1.0 - share) * float((self.weights**2).sum())
        own_share = self.weight_of(self.held) / float(self.weights.sum() or 1.0)
        residuals = self.weights * (self.held - own_share)
        yield max(_Variance(alone), _of_a_sum(residuals.sum(axis=0)))
        if self.without:
            sums = np.array([self.weight_of(held) for held in self.without])
            count = len(sums)
            yield _Variance((count - 1) ** 2 / count * float(sums.var(ddof=1)), count - 1)
        else:
            of_figures = _of_a_sum(residuals.sum(axis=1))
            yield _Variance(max(0.0, of_figures.variance - alone), of_figures.freedom)


def _held(intervals: Sequence[Interval], values: NDArray[np.float64]) -> NDArray[np.float64]:
    low = np.array([interval.low for interval in intervals])[:, None]
    high = np.array([interval.high for interval in intervals])[:, None]
    return ((low <= values) & (values <= high)).astype(np.float64)


def _of_a_sum(terms: NDArray[np.float64]) -> _Variance:
    """Variance of a sum of independent terms, from their spread; 0 for a single term."""
    count = len(terms)
    return _Variance(count * float(terms.var(ddof=1)), count - 1) if count > 1 else _Variance(0.0)


def _quantile(parts: Sequence[_Variance]) -> float:
    """Student's quantile for a sum of estimated variances, with Satterthwaite's freedom."""
    from scipy.special import stdtrit

    total = math.fsum(part.variance for part in parts)
    inverse = math.fsum((part.variance / total) ** 2 / part.freedom for part in parts)
    return float(stdtrit(1.0 / inverse, (1.0 + CLAIM) / 2)) if inverse else _NORMAL_QUANTILE


def wilson(share: float, trials: float, z: float = _NORMAL_QUANTILE) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; ``z`` is the quantile of its error."""
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = (
        z / (1 + z**2 / trials) * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    )
    return max(0.0, centre - half), min(1.0, centre + half)
