"""What an operation costs that nobody measured, from those that were.

Within a group of operations a cost is taken as ``a + b · work + c · bytes moved``, with
coefficients that are not negative (Lawson and Hanson 1974) and least relative error: a call, an
arithmetic rate and a memory rate. How far to trust it comes from leaving out each measured
operation in turn and predicting it from the others: with r the root mean square of the logarithms
of measured over predicted, the 95 % interval is the prediction times exp(± t · r), t the quantile
of Student's distribution.
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

# One more than there are coefficients.
FEWEST_SAMPLES = 4

_Array: TypeAlias = NDArray[np.float64]


class PredictionError(InputError):
    """There is too little in a group to predict from."""


@dataclass(frozen=True)
class Law:
    """A fitted group. ``spread`` is what an interval's upper end is over its median."""

    coefficients: tuple[float, ...]
    spread: float

    def predict(self, spec: OpSpec) -> Interval:
        """Raises :class:`PredictionError` where the law gives nothing, which no operation costs."""
        value = float(_features(spec) @ np.array(self.coefficients))
        if value <= 0:
            raise PredictionError(f"{spec}: the law of its group gives zero")
        return Interval(median=value, low=value / self.spread, high=value * self.spread)


def fit(specs: Sequence[OpSpec], costs: Sequence[float]) -> Law:
    """The law of a group of operations from what each was measured to cost (above zero).
    Raises :class:`PredictionError` if there are too few, or one of them has a part in nothing that
    the others predict."""
    if len(specs) < FEWEST_SAMPLES:
        raise PredictionError(f"{len(specs)} operations, {FEWEST_SAMPLES} are needed")
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
        raise PredictionError("an operation of which the others predict nothing")
    error = float(np.sqrt(np.mean(np.log(measured / left_out) ** 2)))
    quantile = float(stdtrit(len(specs) - 1, 0.975))
    coefficients = tuple(float(c) for c in _solve(features, measured))
    return Law(coefficients, float(np.exp(quantile * error)))


def _features(spec: OpSpec) -> _Array:
    return np.array([1.0, spec.work_flop, spec.moved_bytes], dtype=np.float64)


def _solve(features: _Array, measured: _Array) -> _Array:
    """Coefficients of least relative error; columns are scaled to lengths of one, since FLOP and
    calls differ by many orders of magnitude."""
    from scipy.optimize import nnls

    relative = features / measured[:, None]
    lengths = np.linalg.norm(relative, axis=0)
    lengths[lengths == 0] = 1.0
    scaled, _ = nnls(relative / lengths, np.ones(len(measured)))
    solution: _Array = scaled / lengths
    return solution
