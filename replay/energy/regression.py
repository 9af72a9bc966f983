"""Mean power of each activity of many steps, from readings in which several activities mix.

**Model.** A reading is the sum of the mean powers of activities, each times its weight in the
reading (:mod:`replay.energy.design`), and an error. The weights differ from reading to reading,
since the meter does not sample in step with the training, so that least squares over the readings
of many steps separate activities that are shorter than what one reading remembers. When exactly a
sensor's register was replaced is not known; its weights are means over all possible instants. The
error that this makes is independent of the weights that are used (Berkson 1950), so that it widens
the intervals and does not shift the powers.

**Clock.** A shift of all readings against the spans is estimated with the powers, by Gauss and
Newton's method. What is known of it beforehand counts as one more observation: it lies around 0
with the uncertainty of the meter's clock, and of the age of a register that is read in step with
its replacements. Where the readings say nothing about the shift, this uncertainty remains, and is
in the intervals.

**What cannot be told apart.** Activities that always share a reading in the same proportion have
columns that point in the same direction. As long as the condition number of the design, with
columns of length one, is above 30 (Belsley, Kuh and Welsch 1980, *Regression diagnostics*, section
3.2), the two activities that the weakest direction plays off against each other are merged. They
have one mean power, and their energy is given together. The same happens to an activity so short
that errors of the size of the residuals leave its power unknown by more than half of the mean
power, or that few blocks of steps have it, such as a wait in a single step: it is merged with the
one that its error is compensated by. These rules look at the design and at the size of the
residuals, never at the power of an activity, so that they do not choose among results.

**Intervals.** Readings that follow one another have errors in common, and so have the readings of a
step. Each of some tens of blocks of consecutive steps is left out in turn (the cluster jackknife,
MacKinnon, Nielsen and Webb 2023): the variance is (B - 1)/B times the sum of squares of the
changes, and the interval that of Student's t with B - 1 degrees of freedom. It is an interval of
the mean over steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiler.meters.readings import Readings, Response
from profiler.statistics import CONFIDENCE
from replay.energy.design import Products, Spans, products

WORST_CONDITION = 30.0

FEWEST_BLOCKS = 8
"""Fewest blocks of steps, and fewest that have an activity: leaving out one of them must leave
enough to tell the activity's power."""

_MOST_UNKNOWN = 0.5
"""Largest half width of a power's interval, as a share of the mean power of all readings."""

_MOST_UNSOUND = 0.01
"""Largest share of readings that are left out: which ones are, depends on the power."""

_ROUNDS = 20
_CLOSE = 1e-3
"""Change of the shift at which it is known, as a share of what a reading remembers."""

# Half of a 95 % interval of a normal distribution, in standard deviations.
_HALF = 1.96

_MOST_SHIFT = 4.0
"""Most standard deviations by which the shift may differ from what is known beforehand."""


class NotSeparable(Exception):
    """The readings do not determine the powers; the message says why."""


@dataclass(frozen=True)
class GroupPower:
    """Activities with one mean power.

    Attributes:
        activities: their names, that of the longest first.
        power_w: mean power.
        half_w: half of its 95 % interval.
        energy_j: energy in a step.
        half_j: half of its 95 % interval.
        time_s: mean time in a step.
    """

    activities: tuple[str, ...]
    power_w: float
    half_w: float
    energy_j: float
    half_j: float
    time_s: float


@dataclass(frozen=True)
class Separated:
    """Powers of the activities of a step.

    Attributes:
        groups: activities with their powers.
        blocks: number of blocks of steps.
        readings: number of readings.
        shift_s: by how much the readings were late against the spans.
        condition: condition number of the design that was solved.
    """

    groups: tuple[GroupPower, ...]
    blocks: int
    readings: int
    shift_s: float
    condition: float


def separate(readings: Readings, response: Response, spans: Spans) -> Separated:
    """Find the mean power of each activity.

    Args:
        readings: the readings.
        response: what each of them is a mean of.
        spans: the spans of the activities.

    Raises:
        NotSeparable: there are too few blocks or readings, or the model does not fit.
    """
    known_s = _known_shift_s(readings, response)
    at_zero = products(readings, response, spans, 0.0)
    used = at_zero.rows > 0
    if np.count_nonzero(used) < FEWEST_BLOCKS:
        raise NotSeparable(
            f"readings cover {np.count_nonzero(used)} blocks of steps, {FEWEST_BLOCKS} are needed"
        )
    unsound = float(np.mean(~readings.sound))
    if unsound > _MOST_UNSOUND:
        raise NotSeparable(
            f"{unsound:.1%} of the readings were lost, beyond the meter's range, or taken while it"
            " changed its range"
        )
    if readings.clock_error_s > response.width_s:
        raise NotSeparable(
            f"the meter's clock is known to {readings.clock_error_s * 1e3:.2g} ms only, and its"
            f" readings remember {response.width_s * 1e3:.2g} ms: use sync gpio"
        )
    groups, condition = _groups(at_zero, len(spans.activities))
    shift_s, fitted = 0.0, _Fit.of(at_zero.merged(groups), known_s, 0.0)
    for _ in range(_ROUNDS):
        if not known_s:
            break
        step_s = fitted.shift_s
        if abs(step_s) < _CLOSE * response.width_s:
            break
        shift_s += float(np.clip(step_s, -response.width_s / 4, response.width_s / 4))
        moved = products(readings, response, spans, shift_s)
        fitted = _Fit.of(moved.merged(groups), known_s, shift_s)
    if known_s and abs(shift_s) > _MOST_SHIFT * known_s:
        raise NotSeparable(
            f"the power fits the steps only if the meter's clock is off by {shift_s * 1e3:.3g} ms,"
            f" but it is known to {_HALF * known_s * 1e3:.3g} ms"
        )
    return _separated(fitted, spans, groups, used, shift_s, condition)


def _known_shift_s(readings: Readings, response: Response) -> float:
    """Standard deviation of the shift, as far as it is known without the readings."""
    return float(np.hypot(readings.clock_error_s / _HALF, response.held_s / np.sqrt(12)))


def _groups(given: Products, count: int) -> tuple[NDArray[np.float64], float]:
    """Activities that are merged, as [groups, activities] ones, and the condition number."""
    columns = given.columns.sum(axis=0)[:count, :count]
    powers, rows = given.powers.sum(axis=0)[:count], int(given.rows.sum())
    mean_w = float(np.sqrt(given.squares.sum() / rows))
    groups = np.eye(count)[np.diag(columns) > 0]
    has_weight = np.diagonal(given.columns, axis1=1, axis2=2)[:, :count] > 0
    while True:
        own = groups @ columns @ groups.T
        length = np.sqrt(np.diag(own))
        scaled = own / np.outer(length, length)
        values, vectors = np.linalg.eigh(scaled)
        condition = float(np.sqrt(values[-1] / max(values[0], np.finfo(float).tiny)))
        if len(groups) == 1:
            return groups, condition
        if condition > WORST_CONDITION:
            weakest = vectors[:, 0]
            one, other = int(np.argmax(weakest)), int(np.argmin(weakest))
        else:
            inverse = np.linalg.inv(scaled)
            blocks = np.count_nonzero(groups @ has_weight.T, axis=1)
            other = int(np.argmin(blocks))
            if blocks[other] >= FEWEST_BLOCKS:
                right = groups @ powers
                squares = given.squares.sum() - right @ np.linalg.solve(own, right)
                spread_w = np.sqrt(max(float(squares), 0.0) / max(1, rows - len(groups)))
                halves_w = _HALF * spread_w * np.sqrt(np.diag(inverse)) / length
                other = int(np.argmax(halves_w))
                if halves_w[other] <= _MOST_UNKNOWN * mean_w:
                    return groups, condition
            one = int(np.argmin(inverse[other] / np.sqrt(np.diag(inverse))))
        groups[one] += groups[other]
        groups = np.delete(groups, other, axis=0)


def _solved(matrix: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    try:
        return np.asarray(np.linalg.solve(matrix, vector))
    except np.linalg.LinAlgError as error:
        raise NotSeparable(
            "all that tells two activities apart is in one block of steps: raise --steps"
        ) from error


@dataclass(frozen=True)
class _Fit:
    """Solution of the normal equations.

    Attributes:
        matrix: [blocks, G + 1, G + 1]: products of the columns of the groups and the shift.
        vector: [blocks, G + 1].
        prior: weight of what is known of the shift beforehand.
        prior_s: its standard deviation.
        at_s: the shift of the design.
        powers_w: [G].
        shift_s: how much later the shift is.
        rows: [blocks] readings.
    """

    matrix: NDArray[np.float64]
    vector: NDArray[np.float64]
    prior: float
    prior_s: float
    at_s: float
    powers_w: NDArray[np.float64]
    shift_s: float
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, given: Products, prior_s: float, at_s: float) -> _Fit:
        count = given.columns.shape[1] // 2
        total, right = given.columns.sum(axis=0), given.powers.sum(axis=0)
        powers_w = _solved(total[:count, :count], right[:count])
        spread = given.squares.sum() - powers_w @ right[:count]
        freedom = max(1, int(given.rows.sum()) - count)
        prior = max(spread, 0.0) / freedom / prior_s**2 if prior_s else 0.0
        # The derivative of a reading by the shift is that of its weights, times the powers.
        chain = np.zeros((count + 1, 2 * count))
        chain[:count, :count] = np.eye(count)
        chain[count, count:] = powers_w
        matrix = chain @ given.columns @ chain.T
        vector = given.powers @ chain.T
        fit = cls(matrix, vector, prior, prior_s, at_s, powers_w, 0.0, given.rows)
        solution = fit.solved(matrix.sum(axis=0), vector.sum(axis=0))
        return cls(
            matrix,
            vector,
            prior,
            prior_s,
            at_s,
            solution[:count],
            float(solution[count]),
            given.rows,
        )

    def solved(
        self, matrix: NDArray[np.float64], vector: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Powers and shift from the sums over some blocks."""
        matrix, vector = matrix.copy(), vector.copy()
        if not self.prior:
            return np.append(_solved(matrix[:-1, :-1], vector[:-1]), 0.0)
        matrix[-1, -1] += self.prior
        vector[-1] -= self.prior * self.at_s
        return _solved(matrix, vector)

    @property
    def prior_error(self) -> NDArray[np.float64]:
        """[G] change of the powers with one standard deviation of what is known of the shift."""
        if not self.prior:
            return np.zeros(len(self.powers_w))
        matrix = self.matrix.sum(axis=0)
        matrix[-1, -1] += self.prior
        unit = np.zeros(len(matrix))
        unit[-1] = self.prior * self.prior_s
        return _solved(matrix, unit)[:-1]


def _separated(
    fitted: _Fit,
    spans: Spans,
    groups: NDArray[np.float64],
    used: NDArray[np.bool_],
    shift_s: float,
    condition: float,
) -> Separated:
    from scipy.special import stdtrit

    times_s, steps = spans.times_s @ groups.T, spans.steps
    mean_s = times_s.sum(axis=0) / steps.sum()
    matrix, vector = fitted.matrix.sum(axis=0), fitted.vector.sum(axis=0)
    left_out = np.array(
        [
            fitted.solved(matrix - fitted.matrix[block], vector - fitted.vector[block])[:-1]
            for block in np.flatnonzero(used)
        ]
    )
    blocks = len(left_out)
    changes_w = left_out - fitted.powers_w
    others_s = times_s.sum(axis=0) - times_s[used]
    changes_s = others_s / (steps.sum() - steps[used])[:, None] - mean_s
    changes_j = changes_w * mean_s + changes_s * fitted.powers_w
    prior_w = fitted.prior_error
    quantile = float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2))

    def half(changes: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
        variance = (blocks - 1) / blocks * np.square(changes).sum(axis=0)
        return np.asarray(quantile * np.sqrt(variance + np.square(prior)))

    halves_w, halves_j = half(changes_w, prior_w), half(changes_j, prior_w * mean_s)
    longest = np.argsort(-spans.times_s.sum(axis=0))
    found = tuple(
        GroupPower(
            tuple(spans.activities[index] for index in longest if members[index] > 0),
            float(power_w),
            float(half_w),
            float(power_w * time_s),
            float(half_j),
            float(time_s),
        )
        for members, power_w, half_w, half_j, time_s in zip(
            groups, fitted.powers_w, halves_w, halves_j, mean_s, strict=True
        )
    )
    return Separated(found, blocks, int(fitted.rows.sum()), shift_s, condition)
