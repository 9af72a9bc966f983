"""Convert the words of a PPK2 to amperes.

Five shunts form five ranges. With the values of the instrument's own calibration, an ADC reading
*a* in range *r* is (as in Nordic's Power Profiler app)

    x = (4 a - O_r) · k / R_r          k = 1.8 V / 163840
    I = UG_r · (x · (GS_r x + GI_r) + S_r U + I_r)

with the board's supply voltage *U*. In the first three samples after a change of range, the circuit
still settles. Like the app, this module replaces these readings by a running mean, so that both
agree, and flags the samples.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profiler.meters.ppk2.words import RANGES, adc_of, range_of

VOLTS_PER_STEP = 1.8 / 163840
ADC_UNITS = 4

FULL_SCALE = 0x3FFF
MOST_CURRENT_A = 1.0
"""Largest current that the instrument is specified for (PPK2 product brief)."""

_SETTLING = 3
_HIGHEST = RANGES - 1
# Weights of the newest sample in the running means, in the highest range and in the others; the
# first two samples in the highest range are left out.
_WEIGHT, _WEIGHT_HIGHEST = 0.18, 0.06
_SKIPPED_HIGHEST = 2

# Nominal shunts, and a calibration that changes nothing.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "R": (1031.64, 101.65, 10.15, 0.94, 0.043),
    "GS": (0.0,) * RANGES,
    "GI": (1.0,) * RANGES,
    "O": (0.0,) * RANGES,
    "S": (0.0,) * RANGES,
    "I": (0.0,) * RANGES,
    "UG": (1.0,) * RANGES,
}


class MetadataError(Exception):
    """The instrument's answer is incomplete."""


@dataclass(frozen=True)
class Metadata:
    """Calibration that the instrument reports, float64 [ranges] each. ``hardware`` is None if it
    reports none."""

    r_ohm: NDArray[np.float64]
    gs: NDArray[np.float64]
    gi: NDArray[np.float64]
    o: NDArray[np.float64]
    s: NDArray[np.float64]
    i: NDArray[np.float64]
    ug: NDArray[np.float64]
    hardware: str | None

    @classmethod
    def parse(cls, answer: bytes) -> Metadata:
        """Parse the last complete answer in the received bytes.

        A value that the instrument lacks (``-nan``) is replaced by a neutral one. Raises
        :class:`MetadataError`.
        """
        before_end, end, _ = answer.rpartition(b"END")
        _, start, lines = before_end.rpartition(b"Calibrated:")
        if not end or not start:
            raise MetadataError("no answer between 'Calibrated:' and 'END'")
        text = lines.decode("latin-1")
        found = dict(re.findall(r"^([A-Za-z]+\d?): *(\S+)\r?$", text, flags=re.MULTILINE))
        missing = [f"{name}{r}" for name in _NEUTRAL for r in range(RANGES)]
        missing = [key for key in missing if key not in found]
        if missing:
            raise MetadataError(f"its answer lacks {', '.join(missing)}")

        def values(name: str) -> NDArray[np.float64]:
            return np.array(
                [_number(found[f"{name}{r}"], _NEUTRAL[name][r]) for r in range(RANGES)]
            )

        return cls(
            r_ohm=values("R"),
            gs=values("GS"),
            gi=values("GI"),
            o=values("O"),
            s=values("S"),
            i=values("I"),
            ug=values("UG"),
            hardware=found.get("HW"),
        )


def _number(text: str, neutral: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise MetadataError(f"{text!r} is not a number") from None
    return value if math.isfinite(value) else neutral


@dataclass(frozen=True)
class Amperes:
    """Decoded samples: float64, bool, bool [samples]."""

    current_a: NDArray[np.float64]
    settling: NDArray[np.bool_]
    saturated: NDArray[np.bool_]


@dataclass
class AmpereDecoder:
    """Decodes one stream, piece by piece."""

    metadata: Metadata
    supply_v: float
    _range: int | None = None
    _since_change: int = _SETTLING
    _means: dict[float, float] = field(default_factory=dict)

    def decode(self, words: NDArray[np.uint32]) -> Amperes:
        """Decode the next words, at least one, all with an existing range."""
        ranges, adc = range_of(words), adc_of(words)
        current_a = self._calibrated(ranges, adc)
        since = self._samples_since_change(ranges)
        settling = since < _SETTLING
        highest = ranges == _HIGHEST
        skipped = settling & highest & (since < _SKIPPED_HIGHEST)
        means = {
            weight: self._running_mean(weight, current_a, ~skipped)
            for weight in (_WEIGHT, _WEIGHT_HIGHEST)
        }
        smooth = np.where(highest, means[_WEIGHT_HIGHEST], means[_WEIGHT])
        at_end = adc == FULL_SCALE
        return Amperes(
            current_a=np.where(settling, smooth, current_a),
            # At the end of a lower range the instrument is about to change it.
            settling=settling | (at_end & ~highest),
            saturated=(at_end & highest) | (current_a > MOST_CURRENT_A),
        )

    def _calibrated(
        self, ranges: NDArray[np.uint8], adc: NDArray[np.uint32]
    ) -> NDArray[np.float64]:
        m = self.metadata
        x = (ADC_UNITS * adc - m.o[ranges]) * (VOLTS_PER_STEP / m.r_ohm)[ranges]
        constant = (m.s * self.supply_v + m.i)[ranges]
        result: NDArray[np.float64] = m.ug[ranges] * (
            x * (m.gs[ranges] * x + m.gi[ranges]) + constant
        )
        return result

    def _samples_since_change(self, ranges: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Samples since the last change of range; 0 for the first sample in a new range."""
        before = ranges[0] if self._range is None else self._range
        changes = np.flatnonzero(np.diff(ranges, prepend=np.uint8(before)))
        number = np.arange(len(ranges))
        last_change = np.full(len(ranges), -1 - self._since_change)
        last_change[changes] = changes
        since = number - np.maximum.accumulate(last_change)
        self._range = int(ranges[-1])
        self._since_change = min(int(since[-1]), _SETTLING)
        return since

    def _running_mean(
        self, weight: float, current_a: NDArray[np.float64], entering: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Running mean: mean += weight · (sample - mean), starting with the first sample."""
        from scipy.signal import lfilter

        before = self._means.get(weight, float(current_a[0]))
        means, _ = lfilter(
            [weight], [1.0, weight - 1.0], current_a[entering], zi=[(1.0 - weight) * before]
        )
        steps = np.concatenate([[before], means])
        result = steps[np.cumsum(entering)]
        self._means[weight] = float(result[-1])
        return np.asarray(result, dtype=np.float64)
