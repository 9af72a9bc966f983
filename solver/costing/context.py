"""Cost of an operation in a step, from its costs in a loop with warm and with cold caches.

In a step, an operation finds some of its operands in the caches. Which ones depends on what it is:
an activation was written by the operation before, a parameter was read a whole step ago. Where
steps were watched, the logarithm of the cost in a step is modelled for each kind of operation as
``warm + offset + share · (cold - warm)``. Offset and share are those of all kinds together unless
operations of the kind were watched (ridge regression towards the common values). The offset is that
of other data: zeros, on processors that add them faster.

The residuals of watched operations give the interval, moderated by those of all kinds (Smyth 2004).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from devices.profile import DeviceProfile, Interval, PlaceCost
from solver.costing.law import Estimate

# Fewest distinct operations that have to be watched.
_FEWEST = 6

# Weight of the common offset and share, in operations.
_OFFSET_WEIGHT = 2.0
_SHARE_WEIGHT = 2.0

# Weight of the variance of all kinds in that of one, in operations.
_VARIANCE_WEIGHT = 3.0

_NORMAL_QUANTILE = 1.959964


@dataclass(frozen=True)
class _Line:
    offset: float
    share: float
    deviation: float


@dataclass(frozen=True)
class Context:
    """Costs in steps from warm and cold ones. Without watched steps, the profile's cache state."""

    common: _Line
    of_kind: Mapping[str, _Line]
    is_watched: bool

    @classmethod
    def of(cls, profile: DeviceProfile) -> Context:
        watched = _watched(profile)
        if sum(map(len, watched.values())) < _FEWEST:
            share = 0.0 if profile.cost_basis == "warm" else 1.0
            return cls(_Line(0.0, share, 0.0), {}, is_watched=False)
        everything = [pair for pairs in watched.values() for pair in pairs]
        offset, share = _line(everything, 0.0, 0.5)
        spread = _squares(everything, offset, share) / len(everything)
        lines = {}
        for kind, pairs in watched.items():
            own_offset, own_share = _line(pairs, offset, share)
            lines[kind] = own_offset, own_share, _squares(pairs, own_offset, own_share)
        within = sum(squares for *_, squares in lines.values()) / len(everything)
        return cls(
            _Line(offset, share, math.sqrt(spread)),
            {
                kind: _Line(
                    own_offset,
                    own_share,
                    math.sqrt(
                        (_VARIANCE_WEIGHT * within + squares)
                        / (_VARIANCE_WEIGHT + len(watched[kind]))
                        * (1 + 1 / len(watched[kind]))
                    ),
                )
                for kind, (own_offset, own_share, squares) in lines.items()
            },
            is_watched=True,
        )

    def in_step(self, kind: str, warm: Estimate, cold: Estimate) -> Estimate:
        """Cost in a step of an operation of this kind."""
        line = self.of_kind.get(kind, self.common)
        half = abs(1.0 - line.share) * warm.half + abs(line.share) * cold.half
        return Estimate(
            warm.log + line.offset + line.share * (cold.log - warm.log),
            math.hypot(half, _NORMAL_QUANTILE * line.deviation),
        )


def estimate_of(interval: Interval) -> Estimate | None:
    """The interval as a logarithm with a half width; None if the cost is zero."""
    if interval.median <= 0:
        return None
    above = math.log(interval.high / interval.median)
    below = math.log(interval.median / interval.low) if interval.low > 0 else above
    return Estimate(math.log(interval.median), max(above, below))


def interval_of(estimate: Estimate) -> Interval:
    """The estimate as a median with ends."""
    median, factor = math.exp(estimate.log), math.exp(estimate.half)
    return Interval(median=median, low=median / factor, high=median * factor)


def _watched(profile: DeviceProfile) -> dict[str, list[tuple[float, float]]]:
    """Logarithms of cold and of in-step over warm times of watched operations, by kind.

    An operation with several places counts once, with the mean of their logarithms.
    """
    places: dict[str, list[PlaceCost]] = {}
    for place in profile.place.values():
        places.setdefault(place.key, []).append(place)
    found: dict[str, list[tuple[float, float]]] = {}
    for spec, operation in profile.by_spec.items():
        times = [place.time_s.median for place in places.get(operation.op, ())]
        warm_s, cold_s = operation.warm.time_s.median, operation.cold.time_s.median
        if times and min(*times, warm_s, cold_s) > 0:
            in_step = sum(math.log(time_s / warm_s) for time_s in times) / len(times)
            found.setdefault(spec.kind, []).append((math.log(cold_s / warm_s), in_step))
    return found


def _line(pairs: Sequence[tuple[float, float]], offset: float, share: float) -> tuple[float, float]:
    """Line of least squares through the pairs, drawn towards an offset and a share."""
    x, y = np.array(pairs).T
    matrix = np.column_stack([np.ones_like(x), x])
    towards = np.diag([_OFFSET_WEIGHT, _SHARE_WEIGHT])
    found = np.linalg.solve(
        matrix.T @ matrix + towards, matrix.T @ y + towards @ np.array([offset, share])
    )
    return float(found[0]), float(found[1])


def _squares(pairs: Sequence[tuple[float, float]], offset: float, share: float) -> float:
    return math.fsum((y - offset - share * x) ** 2 for x, y in pairs)
