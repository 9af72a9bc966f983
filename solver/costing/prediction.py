"""Prediction of an operation's cost from other, measured operations.

Within a group of operations, the cost is modelled as ``a + b · work + c · bytes moved``: a call, an
arithmetic rate and a memory rate. The coefficients are non-negative (Lawson and Hanson 1974) and
minimise the relative error. The interval comes from leaving out each measured operation in turn and
predicting it from the others: with r the root mean square of the logarithms of measured over
predicted, the 95 % interval is the prediction times exp(± t · r), where t is the quantile of
Student's distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.errors import InputError
from devices.operation import OpSpec
from devices.profile import Interval

# One more than the number of coefficients.
FEWEST_SAMPLES = 4

_Array: TypeAlias = NDArray[np.float64]


class PredictionError(InputError):
    """A group of operations does not suffice for a prediction."""


@dataclass(frozen=True)
class Law:
    """Law fitted to a group. ``spread`` is the ratio of an interval's upper end to its median."""

    coefficients: tuple[float, ...]
    spread: float

    def predict(self, spec: OpSpec) -> Interval:
        """Predict the cost of ``spec``. Raises :class:`PredictionError` if the law gives zero."""
        value = float(_features(spec) @ np.array(self.coefficients))
        if value <= 0:
            raise PredictionError(f"{spec}: the law of its group gives zero")
        return Interval(median=value, low=value / self.spread, high=value * self.spread)


def fit(specs: Sequence[OpSpec], costs: Sequence[float]) -> Law:
    """Fit the law of a group of operations to their measured costs.

    Args:
        specs: The operations.
        costs: Their costs, positive, in one unit (seconds or joules).

    Returns:
        The law, in the unit of ``costs``.

    Raises:
        PredictionError: The group is too small, or the others predict zero for one operation.
    """
    if len(specs) < FEWEST_SAMPLES:
        raise PredictionError(f"{len(specs)} operations are too few: {FEWEST_SAMPLES} are needed")
    from scipy.special import stdtrit

    features = np.array([_features(spec) for spec in specs])
    measured = np.array(costs)
    everything = np.arange(len(specs))
    left_out = np.array(
        [
            features[k] @ _solve(features[everything != k], measured[everything != k])
            for k in everything
        ]
    )
    if left_out.min() <= 0:
        raise PredictionError("the cost of one operation, predicted from the others, is zero")
    error = float(np.sqrt(np.mean(np.log(measured / left_out) ** 2)))
    quantile = float(stdtrit(len(specs) - 1, 0.975))
    coefficients = tuple(float(c) for c in _solve(features, measured))
    return Law(coefficients, float(np.exp(quantile * error)))


def _features(spec: OpSpec) -> _Array:
    return np.array([1.0, spec.work_flop, spec.moved_bytes], dtype=np.float64)


def _solve(features: _Array, measured: _Array) -> _Array:
    """Non-negative coefficients of least relative error.

    Columns are scaled to unit length, since FLOP and calls differ by many orders of magnitude.
    """
    from scipy.optimize import nnls

    relative = features / measured[:, None]
    lengths = np.linalg.norm(relative, axis=0)
    lengths[lengths == 0] = 1.0
    scaled, _ = nnls(relative / lengths, np.ones(len(measured)))
    solution: _Array = scaled / lengths
    return solution
