"""Prediction of an operation's cost from measured operations of its kind.

The cost is modelled in two parts. The first is physical: a sum of the terms of its kind
(:mod:`solver.costing.terms`) with non-negative coefficients (Lawson and Hanson 1974) of least
relative error. It extrapolates to sizes that were not measured, and more work never costs less.
The second part corrects the logarithm of the first near measured operations: a Gaussian process
over the logarithms of the attributes (Rasmussen and Williams 2006, chapter 2), which goes back to
the group's mean correction far away from them.

Several such laws are tried, with terms of the kind or with those that all kinds have, with and
without a correction. Each is fitted without some of the operations and predicts those
(cross-validation). The first law is taken whose mean error is about the least: operations of
networks are unlike drawn ones, and laws without a correction rely less on these. The errors of that
law give the interval. Each
error is divided by the process's standard deviation at that operation, which grows with the
distance to what was measured; with s the root mean square of these ratios and t the quantile of
Student's distribution, the 95 % interval is the prediction times exp(± t · s · standard deviation).
If the ratios have longer tails than a normal distribution, it is wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from devices.operation import OpSpec
from solver.costing.terms import Terms, common_terms, few_terms, terms

FEWEST_SAMPLES = 4

FOLDS = 8

# Square of a ridge for each operation, beside columns of length 1: it decides between terms that
# cannot be told apart.
_RIDGE = 1e-9

# Inverse of the variance of a coefficient that no operation determines, beside columns of length 1.
_UNKNOWN = 0.1

# The process: distance, in powers of two of the attributes, over which a correction fades; variance
# of the correction that a whole group has in common; of that of a single operation (its
# measurement), for quiet and for noisy boards, None for no correction. All variances are relative
# to that of the correction that fades.
_LENGTH = 8.0
_COMMON = 0.25
NUGGETS: tuple[float | None, ...] = (None, 0.0025, 0.1)

# Logarithm of the narrowest factor between a prediction and an end of its interval. A cost depends
# a little on the data too.
_LEAST = 0.01

# Mean error of a law, over the least one, up to which the law counts as good as the best.
_AS_GOOD = 1.5

_CONFIDENCE = 0.95

# Operations by whose number intervals are too narrow because the law was chosen by their errors:
# the least with which 90 % of intervals hold on the recorded boards from eight operations on.
_CHOICE = 6.0
ONE_SIDE = 0.975

Array: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.int64]
_TermsOf: TypeAlias = Callable[[OpSpec], Terms]

GENERAL_TERMS: tuple[_TermsOf, ...] = (few_terms, common_terms)
"""Terms that operations of all kinds have."""


class PredictionError(InputError):
    """A group of operations does not suffice for a prediction."""


class LawShape(NamedTuple):
    """What a law consists of: its terms, and the nugget of its correction; None for none."""

    terms_of: _TermsOf
    nugget: float | None


SHAPES = tuple(
    LawShape(terms_of, nugget) for nugget in NUGGETS for terms_of in (terms, *GENERAL_TERMS[::-1])
)
"""Laws of which the best is taken, and of equally good ones the first."""


@dataclass(frozen=True)
class Estimate:
    """A predicted cost: its logarithm, and the half width of its 95 % interval."""

    log: float
    half: float


@dataclass(frozen=True)
class Law:
    """Law of a group of operations, fitted to their costs.

    ``reach`` is the half width of a 95 % interval in standard deviations of the process.
    """

    fit: Fit
    reach: float

    def predict(self, spec: OpSpec) -> Estimate:
        """Predict the cost of ``spec``. Raises :class:`PredictionError` if the law gives zero."""
        log, deviation = self.fit.predict(spec)
        return Estimate(log, half_width(self.reach * deviation))


def half_width(deviation: float) -> float:
    """Half width of an interval of a logarithm, at least that of a cost which depends on data."""
    return max(_LEAST, logarithmic(deviation))


def logarithmic(deviation: float) -> float:
    """Half width of an interval of a logarithm, from the relative one of the cost.

    Both are the same while they are small. Large deviations are those of a sum of terms, of which
    some are unknown: the upper end grows in proportion to them, and not as their exponential.
    """
    return deviation if deviation < 1.0 else 1.0 + math.log(deviation)


def fit_law(
    specs: Sequence[OpSpec], costs: Sequence[float], shapes: Sequence[LawShape] = SHAPES
) -> Law:
    """Fit the law of operations of one kind to their measured costs.

    Args:
        specs: The operations.
        costs: Their costs, positive, in one unit (seconds or joules).
        shapes: Laws to try.

    Raises:
        PredictionError: The group is too small, or no law predicts each from the others.
    """
    require_enough(specs)
    points = np.array([_point(spec) for spec in specs])
    folds = _shuffled(specs) % FOLDS
    tried = []
    logs = np.log(np.array(costs, dtype=np.float64))
    tables: dict[_TermsOf, Table] = {}
    for terms_of, nugget in shapes:
        if terms_of not in tables:
            tables[terms_of] = Table.of(terms_of, specs, logs, points)
        table = tables[terms_of]
        with suppress(PredictionError):
            errors, deviations = table.left_out(nugget, folds)
            tried.append((float(np.abs(errors).mean()), table, nugget, errors / deviations))
    if not tried:
        raise PredictionError("the cost of one operation, predicted from the others, is zero")
    enough = _AS_GOOD * min(error for error, *_ in tried)
    _, table, nugget, ratios = next(each for each in tried if each[0] <= enough)
    return Law(table.fit(nugget, np.arange(len(specs))), _reach(ratios))


def require_enough(specs: Sequence[OpSpec]) -> None:
    """Raise :class:`PredictionError` if there are too few operations for a law."""
    if len(specs) < FEWEST_SAMPLES:
        raise PredictionError(f"{len(specs)} operations are too few: {FEWEST_SAMPLES} are needed")


def _reach(ratios: Array) -> float:
    """Half width of a 95 % interval in standard deviations, from errors of left-out operations.

    Errors have longer tails than a normal distribution. If there are enough of them, the interval
    holds 95 % of those and one more (conformal prediction, Vovk 2015), or is wider. The law was
    chosen by the same errors, which are therefore smaller than those of new operations, the more
    the fewer they are.
    """
    from scipy.special import stdtrit

    count = len(ratios)
    reach = float(stdtrit(count - 1, ONE_SIDE)) * math.sqrt(float(np.mean(ratios**2)))
    rank = math.ceil(_CONFIDENCE * (count + 1))
    if rank <= count:
        reach = max(reach, float(np.sort(np.abs(ratios))[rank - 1]))
    return reach * (1.0 + _CHOICE / count)


@dataclass(frozen=True)
class Fit:
    """A sum of terms, and a correction of its logarithm near the measured operations."""

    terms_of: _TermsOf
    names: tuple[str, ...]
    coefficients: Array
    lengths: Array
    gram_inverse: Array
    nugget: float | None
    points: Array
    inverse: Array
    weights: Array

    def predict(self, spec: OpSpec) -> tuple[float, float]:
        """Logarithm of the cost, and standard deviation of the process there."""
        found = self.terms_of(spec)
        row = np.array([found.get(name, 0.0) for name in self.names])
        logs, deviations = self.at(row[None], _point(spec)[None])
        return float(logs[0]), float(deviations[0])

    def at(self, rows: Array, points: Array) -> tuple[Array, Array]:
        """Logarithms and standard deviations at operations with these terms and attributes."""
        sums = rows @ self.coefficients
        if sums.min() <= 0:
            raise PredictionError("the law of its group gives zero for an operation")
        logs: Array = np.log(sums)
        relative = rows / sums[:, None] / self.lengths
        variances = 1.0 + ((relative @ self.gram_inverse) * relative).sum(axis=1)
        if self.nugget is not None:
            near = _covariance(points, self.points)
            logs = logs + near @ self.weights
            variances += _COMMON + self.nugget - ((near @ self.inverse) * near).sum(axis=1)
        deviations: Array = np.sqrt(np.maximum(variances, self.nugget or 0.0))
        return logs, deviations


@dataclass(frozen=True)
class Table:
    """Terms, attributes and costs of a group of operations."""

    terms_of: _TermsOf
    names: tuple[str, ...]
    rows: Array
    points: Array
    logs: Array

    @classmethod
    def of(cls, terms_of: _TermsOf, specs: Sequence[OpSpec], logs: Array, points: Array) -> Table:
        found = [terms_of(spec) for spec in specs]
        names = tuple(sorted({name for each in found for name in each}))
        rows = np.array([[each.get(name, 0.0) for name in names] for each in found])
        return cls(terms_of, names, rows, points, logs)

    @cached_property
    def coefficients_without(self) -> dict[int, Array]:
        """Coefficients by the fold that was left out of them, as far as they were computed."""
        return {}

    def fit(self, nugget: float | None, kept: Numbers, without: int | None = None) -> Fit:
        """Fit the ``kept`` operations; without a ``nugget``, their sum is not corrected.

        ``without`` is the number of the fold that is not kept.
        """
        rows, points, logs = self.rows[kept], self.points[kept], self.logs[kept]
        key = -1 if without is None else without
        if key not in self.coefficients_without:
            self.coefficients_without[key] = _solve(rows, np.exp(logs))
        coefficients = self.coefficients_without[key]
        inverse, weights = np.zeros((0, 0)), np.zeros(0)
        if nugget is not None:
            sums = rows @ coefficients
            if sums.min() <= 0:
                raise PredictionError("the law gives zero for an operation")
            inverse = _inverse(_covariance(points, points) + nugget * np.eye(len(kept)))
            weights = inverse @ (logs - np.log(sums))
        relative = rows / np.exp(logs)[:, None]
        lengths = _lengths(relative)
        gram = (relative / lengths).T @ (relative / lengths)
        return Fit(
            self.terms_of,
            self.names,
            coefficients,
            lengths,
            _inverse(gram + _UNKNOWN * np.eye(len(lengths))),
            nugget,
            points,
            inverse,
            weights,
        )

    def left_out(self, nugget: float | None, folds: Numbers) -> tuple[Array, Array]:
        """Errors of predictions from the other folds, and their standard deviations.

        Raises :class:`PredictionError` if a law gives zero for an operation.
        """
        errors, deviations = np.zeros(len(folds)), np.ones(len(folds))
        for fold in np.unique(folds).tolist():
            left = folds == fold
            law = self.fit(nugget, np.flatnonzero(~left), fold)
            predicted, deviations[left] = law.at(self.rows[left], self.points[left])
            errors[left] = self.logs[left] - predicted
        return errors, deviations


def _shuffled(specs: Sequence[OpSpec]) -> Numbers:
    """A number for each operation, in an order that does not depend on that of ``specs``."""
    order = sorted(range(len(specs)), key=lambda index: (specs[index].values, specs[index].kind))
    numbers = np.empty(len(specs), dtype=np.int64)
    numbers[order] = np.arange(len(specs))
    return numbers


def _point(spec: OpSpec) -> Array:
    sizes = [math.log2(1 + value) for value in spec.values]
    return np.array(
        [*sizes, math.log2(1 + spec.work_flop) / 2, math.log2(1 + spec.moved_bytes) / 2]
    )


def _covariance(left: Array, right: Array) -> Array:
    squares = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=-1)
    found: Array = np.exp(-np.sqrt(squares) / _LENGTH) + _COMMON
    return found


def _lengths(matrix: Array) -> Array:
    """Lengths of the columns; 1 for columns of zeros."""
    found: Array = np.linalg.norm(matrix, axis=0)
    found[found == 0] = 1.0
    return found


def _inverse(matrix: Array) -> Array:
    return np.linalg.inv(matrix).astype(np.float64)


def _solve(matrix: Array, costs: Array) -> Array:
    """Non-negative coefficients of least relative error.

    Columns are scaled to unit length, since FLOP and calls differ by many orders of magnitude.
    """
    from scipy.optimize import nnls

    relative = matrix / costs[:, None]
    lengths = _lengths(relative)
    count = matrix.shape[1]
    ridge = math.sqrt(_RIDGE * len(costs)) * np.eye(count)
    scaled, _ = nnls(
        np.vstack([relative / lengths, ridge]),
        np.concatenate([np.ones(len(costs)), np.zeros(count)]),
        maxiter=100 * count,
    )
    solution: Array = scaled / lengths
    return solution
