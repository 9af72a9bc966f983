"""Prediction of operations of sorts that were measured a few times or never.

One law with terms that all sorts have is fitted to operations of several sorts. A sort deviates
from it as a whole, and its operations deviate from each other, the more the more they differ in
size. Whole sorts are left out in turn and predicted from the others. Their errors state the
variance between sorts, and how the variance within a sort grows with the difference in size (a
linear variogram, Matheron 1963). The deviation of a sort with a few measured operations is that of
the one that is nearest in size, drawn towards zero, so that one measurement of a sort already
counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from devices.operation import OpSpec
from solver.costing.law import (
    FOLDS,
    GENERAL_TERMS,
    ONE_SIDE,
    Array,
    Estimate,
    Fit,
    PredictionError,
    Table,
    half_width,
    require_enough,
)
from solver.costing.terms import sort

# Least variances between sorts, and within one for each doubling of the size. A profile of one
# network has few sorts in few sizes, which do not show how different others are. On the designed
# sweep of an emulated Cortex-M4F, with all sorts in all sizes, these were 1.54 and 0.057.
_LEAST_BETWEEN = 1.0
_LEAST_GROWTH = 0.05


@dataclass(frozen=True)
class LawOfSeveralKinds:
    """Law of operations of several sorts.

    ``residuals`` has the size and the deviation from the law of each measured operation, by sort;
    ``between`` and ``within`` are variances, ``growth`` that for each doubling of the size, and
    ``quantile`` that of Student's distribution.
    """

    fit: Fit
    residuals: Mapping[str, Sequence[tuple[float, float]]]
    between: float
    within: float
    growth: float
    quantile: float

    def predict(self, spec: OpSpec) -> Estimate:
        """Predict the cost of ``spec``. Raises :class:`PredictionError` if the law gives zero."""
        log, deviation = self.fit.predict(spec)
        own = self.residuals.get(sort(spec), ())
        if not own:
            return self._estimate(log, self.between + self.within, deviation)
        apart, residual = min((abs(_size(spec) - size), found) for size, found in own)
        within = self.within + self.growth * apart
        share = self.between / (self.between + within)
        return self._estimate(log + share * residual, self.within + share * within, deviation)

    def _estimate(self, log: float, variance: float, deviation: float) -> Estimate:
        return Estimate(log, half_width(self.quantile * math.sqrt(variance) * deviation))


def fit_several_kinds(specs: Sequence[OpSpec], costs: Sequence[float]) -> LawOfSeveralKinds:
    """Fit a law to operations of at least two sorts.

    Args:
        specs: The operations.
        costs: Their costs, positive, in one unit (seconds or joules).

    Raises:
        PredictionError: The operations are too few, or of one sort, or no law predicts each sort
            from the others.
    """
    require_enough(specs)
    sorts = sorted({sort(spec) for spec in specs})
    if len(sorts) == 1:
        raise PredictionError(f"all operations are {sorts[0]}: others are needed")
    from scipy.special import stdtrit

    logs = np.log(np.array(costs, dtype=np.float64))
    numbers = np.array([sorts.index(sort(spec)) for spec in specs])
    tried = []
    for terms_of in GENERAL_TERMS:
        table = Table.of(terms_of, specs, logs, np.zeros((len(specs), 0)))
        try:
            errors, deviations = table.left_out(None, numbers % FOLDS)
        except PredictionError:
            continue
        tried.append((float(np.abs(errors).mean()), table, errors / deviations))
    if not tried:
        raise PredictionError("the cost of one operation, predicted from other kinds, is zero")
    _, table, ratios = min(tried, key=lambda each: each[0])
    fit = table.fit(None, np.arange(len(specs)))
    fitted, _ = fit.at(table.rows, table.points)
    residuals: dict[str, list[tuple[float, float]]] = {}
    for spec, residual in zip(specs, (logs - fitted).tolist(), strict=True):
        residuals.setdefault(sort(spec), []).append((_size(spec), residual))
    sizes = np.array([_size(spec) for spec in specs])
    within, growth = _variogram(ratios, sizes, numbers)
    return LawOfSeveralKinds(
        fit,
        residuals,
        max(_LEAST_BETWEEN, float(np.mean(ratios**2)) - within),
        within,
        max(_LEAST_GROWTH, growth),
        float(stdtrit(len(sorts) - 1, ONE_SIDE)),
    )


def _size(spec: OpSpec) -> float:
    """Size of an operation in doublings."""
    return math.log2(1 + spec.work_flop + spec.moved_bytes)


def _variogram(errors: Array, sizes: Array, numbers: Array) -> tuple[float, float]:
    """Variance within a group, and its growth for each doubling of the size between two members."""
    from scipy.optimize import nnls

    rows, halves = [], []
    for number in np.unique(numbers):
        own = np.flatnonzero(numbers == number)
        first, second = (own[index] for index in np.triu_indices(len(own), 1))
        rows.append(np.column_stack([np.ones(len(first)), np.abs(sizes[first] - sizes[second])]))
        halves.append((errors[first] - errors[second]) ** 2 / 2)
    matrix = np.concatenate(rows)
    if len(matrix) == 0:
        return float(np.mean(errors**2)) / 2, 0.0
    (within, growth), _ = nnls(matrix, np.concatenate(halves))
    return float(within), float(growth)
