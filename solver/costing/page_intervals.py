"""95 % intervals of the cost of paging one tensor, from the sweep that its law was fitted to.

The law is ``fixed + per_page · pages``, fitted to relative residuals. For a tensor with cost c at
p pages, the relative standard error of the regression is s · √(1 + xᵀ(XᵀX)⁻¹x) with
x = (1/c, p/c); the rows of X are the same quantities of the sweep's points. It covers the
uncertainty of the parameters and the scatter about the law, s² = (sum of squared residuals)/(n - 2)
(Draper and Smith, *Applied Regression Analysis*, section 3.1). Student's quantile times this is the
half width of the 95 % interval. The points also have intervals of their own, from errors that they
may share (state of the card, temperature) and that a fit to them cannot show. The root mean square
of these is added in quadrature, as the GUM (JCGM 100:2008, 5.1.2) adds independent contributions.
All of this is done on a logarithmic scale, so that no cost falls below zero. A relative half width
above 1 is converted to it (:func:`solver.costing.law.logarithmic`). Where transfers were watched
within training steps, the law is multiplied by the factor of a transfer of its size
(:meth:`~devices.profile.AffinePageCost.factor`), and the ends by the ends of this factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from devices.profile import AffinePageCost, Interval, StorageCosts
from solver.costing.law import logarithmic

# 97.5 % quantile of the normal distribution.
_NORMAL_QUANTILE = 1.959964

# Logarithm of the widest factor between a median and an end; wider ones would overflow.
_WIDEST = 200.0


@dataclass(frozen=True)
class PageIntervals:
    """Intervals of moving one tensor one way. ``energy_j`` is None if storage has no energies."""

    time_s: Interval
    energy_j: Interval | None

    def scaled(self, count: float) -> PageIntervals:
        """Intervals of ``count`` such transfers, whose errors have the same sign."""
        energy_j = None if self.energy_j is None else self.energy_j.scaled(count)
        return PageIntervals(self.time_s.scaled(count), energy_j)

    def within_steps(self, cost: AffinePageCost) -> PageIntervals:
        """Intervals of such transfers within a training step."""
        if cost.in_steps is None:
            return self
        factor = cost.in_steps.scaled(cost.growth(self.time_s.median))
        energy_j = None if self.energy_j is None else _product(self.energy_j, factor)
        return PageIntervals(_product(self.time_s, factor), energy_j)

    def plus(self, other: PageIntervals) -> PageIntervals:
        """Intervals of both, whose errors have the same sign."""
        energy_j = None
        if self.energy_j is not None and other.energy_j is not None:
            energy_j = _sum(self.energy_j, other.energy_j)
        return PageIntervals(_sum(self.time_s, other.time_s), energy_j)


def page_in_intervals(storage: StorageCosts, size_bytes: int) -> PageIntervals:
    """Intervals of paging a tensor in. Their medians are :meth:`StorageCosts.read_cost`."""
    alone = _intervals(storage.read, storage.page_bytes, size_bytes)
    return alone.within_steps(storage.read)


def page_out_intervals(
    storage: StorageCosts, size_bytes: int, *, erased_bytes: int | None = None
) -> PageIntervals:
    """Intervals of paging a tensor out, including its share of erasing.

    The share is that of ``erased_bytes``, the tensor's place, if less is written than has room.
    The errors of writing and erasing are taken to have the same sign. The medians are
    :meth:`StorageCosts.write_cost`.
    """
    write = _intervals(storage.write, storage.page_bytes, size_bytes)
    if storage.erase is None or storage.erase_block_bytes is None:
        return write.within_steps(storage.write)
    block = _intervals(storage.erase, storage.erase_block_bytes, storage.erase_block_bytes)
    erased = size_bytes if erased_bytes is None else erased_bytes
    alone = write.plus(block.scaled(storage.erased_blocks(erased)))
    return alone.within_steps(storage.write)


def _intervals(cost: AffinePageCost, page_bytes: int, size_bytes: int) -> PageIntervals:
    pages = math.ceil(size_bytes / page_bytes)
    times = [
        (math.ceil(point.bytes / page_bytes), point.time_s)
        for point in cost.sweep
        if point.time_s.median > 0
    ]
    time_s = _Law(cost.fixed_s, cost.per_page_s, cost.fit_error, times).at(pages)
    if cost.fixed_j is None or cost.per_page_j is None:
        return PageIntervals(time_s, None)
    energies = [
        (math.ceil(point.bytes / page_bytes), point.energy_j)
        for point in cost.sweep
        if point.energy_j is not None and point.energy_j.median > 0
    ]
    energy_j = _Law(cost.fixed_j, cost.per_page_j, cost.fit_error, energies).at(pages)
    return PageIntervals(time_s, energy_j)


@dataclass(frozen=True)
class _Law:
    """A fitted law of paging.

    ``points`` are what it was fitted to: pages, and the cost with its interval. ``fit_error`` is
    the relative scatter, used if a profile states no points.
    """

    fixed: float
    per_page: float
    fit_error: float
    points: Sequence[tuple[int, Interval]]

    def at(self, pages: int) -> Interval:
        median = self.fixed + self.per_page * pages
        if median <= 0:
            return Interval.exact(median)
        regression = logarithmic(self._regression(pages, median))
        below, above = self._own_errors()
        return Interval(
            median=median,
            low=median * math.exp(-math.hypot(regression, below)),
            high=median * math.exp(min(_WIDEST, math.hypot(regression, above))),
        )

    def _regression(self, pages: int, median: float) -> float:
        """Relative half width of the 95 % prediction interval; 0 for two points or fewer."""
        if not self.points:
            return _NORMAL_QUANTILE * self.fit_error
        freedom = len(self.points) - 2
        if freedom < 1:
            return 0.0
        from scipy.special import stdtrit

        x = np.array([count for count, _ in self.points], dtype=np.float64)
        y = np.array([interval.median for _, interval in self.points])
        residuals = (self.fixed + self.per_page * x) / y - 1.0
        rows = np.column_stack([1.0 / y, x / y])
        row = np.array([1.0, pages]) / median
        leverage = float(row @ np.linalg.pinv(rows.T @ rows, hermitian=True) @ row)
        variance = float(residuals @ residuals) / freedom
        return float(stdtrit(freedom, 0.975)) * math.sqrt(variance * (1.0 + leverage))

    def _own_errors(self) -> tuple[float, float]:
        """Root mean square of the points' own relative half widths, below and above."""
        intervals = [interval for _, interval in self.points]
        if not intervals:
            return 0.0, 0.0
        below = [math.log(i.median / i.low) if i.low > 0 else math.inf for i in intervals]
        above = [math.log(i.high / i.median) for i in intervals]
        return _root_mean_square(below), _root_mean_square(above)


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))


def _product(a: Interval, b: Interval) -> Interval:
    return Interval(median=a.median * b.median, low=a.low * b.low, high=a.high * b.high)


def _sum(a: Interval, b: Interval) -> Interval:
    return Interval(median=a.median + b.median, low=a.low + b.low, high=a.high + b.high)
