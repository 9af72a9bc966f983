"""Readings of a meter on the board's clock, and what each of them is a mean of.

A reading is a weighted mean of the power before it. Its response says with which weights: the share
of the weight on power that is younger than an age rises from 0 to 1 over the ages that the reading
remembers. Where the power is constant from one instant to another, the difference of two shares is
the part that this stretch has in the reading.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

# Time constants after which a first-order low-pass filter has forgotten all but 0.03 %.
_REMEMBERED = 8.0


@dataclass(frozen=True)
class Response:
    """What a reading is a mean of: the power over some time, or a low-pass filter's output.

    Attributes:
        integration_s: the reading is the mean over this long; 0 for a low-pass filter. An array has
            a length for each reading.
        newest_s: age of the newest power in it: 0 if the mean ends at the reading's time, negative
            if the mean goes beyond it. An array has an age for each reading.
        held_s: a register holds a reading this long, until the next one replaces it. When it was
            replaced is not known, so that all ages up to this one are equally likely.
        decay_s: time constant of a first-order low-pass filter; 0 for a mean.
        is_exact: False if the lengths are only the longest possible ones, so that a reading's
            weights are not known.
    """

    integration_s: float | NDArray[np.float64]
    newest_s: float | NDArray[np.float64] = 0.0
    held_s: float = 0.0
    decay_s: float = 0.0
    is_exact: bool = True

    @classmethod
    def held(cls, integration_s: float) -> Response:
        """A register that is replaced every ``integration_s``, by the mean over that time."""
        return cls(integration_s, held_s=integration_s)

    @classmethod
    def centred(cls, integration_s: float) -> Response:
        """A sample that stands for half of ``integration_s`` on either side of it."""
        return cls(integration_s, newest_s=-integration_s / 2)

    @classmethod
    def low_pass(cls, bandwidth_hz: float) -> Response:
        """A first-order low-pass filter that halves the power of ``bandwidth_hz``."""
        return cls(0.0, decay_s=1 / (2 * np.pi * bandwidth_hz))

    def between(self, lengths_s: NDArray[np.float64]) -> Response:
        """A counter that changes every ``held_s``: means over these lengths, centred on them."""
        return replace(self, integration_s=lengths_s, newest_s=-lengths_s / 2)

    @property
    def youngest_s(self) -> float:
        """Age of the newest power in any reading."""
        return float(np.min(self.newest_s))

    @property
    def oldest_s(self) -> float:
        """Age of the oldest power in any reading."""
        end_s = float(np.max(np.add(self.newest_s, self.integration_s)))
        return end_s + self.held_s + _REMEMBERED * self.decay_s

    @property
    def mean_age_s(self) -> float:
        """Mean age of the power in a reading."""
        middle_s = float(np.mean(np.add(self.newest_s, np.divide(self.integration_s, 2))))
        return middle_s + self.held_s / 2 + self.decay_s

    @property
    def spread_s(self) -> float:
        """Standard deviation of the age of the power in a reading."""
        integration_s = float(np.max(self.integration_s))
        return float(np.sqrt((integration_s**2 + self.held_s**2) / 12 + self.decay_s**2))

    def too_long_for(self, window_s: float) -> str:
        """Reason why a window's energy cannot be told from what came before and after it."""
        return (
            f"a reading of the meter remembers {self.width_s * 1e3:.4g} ms, too long for a window"
            f" of {window_s * 1e3:.4g} ms"
        )

    @property
    def width_s(self) -> float:
        """Time that a reading remembers."""
        return self.oldest_s - self.youngest_s

    def of(self, readings: NDArray[np.intp]) -> Response:
        """The response of some of the readings."""
        if np.ndim(self.integration_s) == 0:
            return self
        lengths_s, newest_s = np.asarray(self.integration_s), np.asarray(self.newest_s)
        return replace(self, integration_s=lengths_s[readings], newest_s=newest_s[readings])

    def reached(self, age_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of a reading's weight on power that is younger than an age, for each reading."""
        age_s = age_s - self.newest_s
        if self.decay_s:
            return np.asarray(1 - np.exp(-np.maximum(age_s, 0.0) / self.decay_s))
        if not self.held_s:
            return np.asarray(np.clip(age_s / self.integration_s, 0.0, 1.0))
        # The distribution of the sum of two ages, each uniform.
        length_s, held_s = self.integration_s, self.held_s
        squares = [
            np.square(np.maximum(age_s - since_s, 0.0))
            for since_s in (0.0, length_s, held_s, np.add(length_s, held_s))
        ]
        area = squares[0] - squares[1] - squares[2] + squares[3]
        return np.asarray(np.clip(area / (2 * length_s * held_s), 0.0, 1.0))


@dataclass(frozen=True)
class Readings:
    """Readings on the board's clock.

    Attributes:
        origin_ns: instant on the board's clock from which seconds count.
        times_s: float64 [readings], rising.
        power_w: float64 [readings]; NaN where a reading was lost.
        sound: bool [readings]: the reading arrived, and was within the meter's range.
        response: what each reading is a mean of; None where the description does not say.
        clock_error_s: half of a 95 % interval of a shift that is common to all ``times_s``.
    """

    origin_ns: int
    times_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    sound: NDArray[np.bool_]
    response: Response | None
    clock_error_s: float = 0.0
