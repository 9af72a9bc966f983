"""Cost of an operation in a step, from its costs in a loop with warm and with cold caches.

In a step, an operation finds some of its operands in the caches. How many bytes of them the caches
have lost since their last use is known (:mod:`solver.costing.residency`): with that share ``lost``,
an operation costs ``kept = warm + 0.75 · lost · (cold - warm)``. Where steps were watched, the cost
in a step is ``call + kept · exp(offset + share · log(cold / kept))``. The call is what an executor
adds to every operation. Offset and share are those of the kind, drawn towards those of all kinds,
and these towards zero (ridge regression). The offset is that of other data: zeros, on processors
that add them faster. The share is what else is lost, or all of it where a profile does not say how
much: in profiles of earlier releases.

The residuals of watched operations give the interval, moderated by those of all kinds (Smyth 2004).
That of the call, and of what is lost, are added to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from devices.profile import DeviceProfile, Interval, PlaceCost
from solver.costing.law import Estimate

# Fewest distinct operations that have to be watched.
_FEWEST = 6

# Weight of the common offset and share in those of a kind, in operations; and of zero in these.
_OFFSET_WEIGHT = 2.0
_SHARE_WEIGHT = 2.0

# Weight of the variance of all kinds in that of one, in operations.
_VARIANCE_WEIGHT = 3.0

# Part of the difference between cold and warm that operands cost which have left the caches, and
# its standard deviation: those of ResNet-18 and a transformer on a computer, of which the caches
# lose most (benchmarks/cost_model). Next to the caches are those of other processors, and the
# hardware fetches ahead.
_OF_LOST = 0.75
_OF_LOST_DEVIATION = 0.25

# Seconds of a call that are tried, as shares of the shortest watched operation.
_CALLS = tuple(number / 20 for number in range(20))

# Standard deviation of a call, relative to it.
_CALL_DEVIATION = 0.3

_NORMAL_QUANTILE = 1.959964


class _Watched(NamedTuple):
    """Seconds of a watched operation: by itself with what is kept, with nothing, and in a step."""

    kept_s: float
    cold_s: float
    in_step_s: float

    def error(self, call_s: float, offset: float, share: float) -> float:
        """Logarithm of the cost in a step over what a line says."""
        alone_s = self.kept_s * math.exp(offset + share * math.log(self.cold_s / self.kept_s))
        return math.log(self.in_step_s / (call_s + alone_s))


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
    call_s: float
    is_watched: bool

    @classmethod
    def of(cls, profile: DeviceProfile) -> Context:
        watched = _watched(profile)
        if sum(map(len, watched.values())) < _FEWEST:
            share = 0.0 if profile.cost_basis == "warm" else 1.0
            return cls(_Line(0.0, share, 0.0), {}, 0.0, is_watched=False)
        shortest_s = min(pair.in_step_s for pairs in watched.values() for pair in pairs)
        tried = [_fitted(watched, share * shortest_s) for share in _CALLS]
        return min(tried, key=lambda each: each[0])[1]

    def in_step(
        self, kind: str, warm: Estimate, cold: Estimate, lost: float, power_w: float = 1.0
    ) -> Estimate:
        """Cost in a step of an operation of this kind.

        Args:
            kind: the operation's kind.
            warm: its seconds, or joules, with its operands in the caches.
            cold: the same without.
            lost: share of the bytes of its operands that have left the caches.
            power_w: joules of a call's second; 1 for seconds.
        """
        line = self.of_kind.get(kind, self.common)
        if not self.is_watched:
            half = abs(1.0 - line.share) * warm.half + abs(line.share) * cold.half
            return Estimate(warm.log + line.share * (cold.log - warm.log), half)
        warm_s, cold_s = math.exp(warm.log), math.exp(cold.log)
        of_cold = _OF_LOST * lost
        kept_s = _kept(warm_s, cold_s, lost)
        alone_s = kept_s * math.exp(line.offset + line.share * (cold.log - math.log(kept_s)))
        call_s = self.call_s * power_w
        total_s = call_s + alone_s
        half_kept = ((1.0 - of_cold) * warm_s * warm.half + of_cold * cold_s * cold.half) / kept_s
        half = abs(1.0 - line.share) * half_kept + abs(line.share) * cold.half
        deviation = math.hypot(
            line.deviation,
            _OF_LOST_DEVIATION * lost * (cold_s - warm_s) / kept_s * alone_s / total_s,
            _CALL_DEVIATION * call_s / total_s,
        )
        return Estimate(
            math.log(total_s), math.hypot(half * alone_s / total_s, _NORMAL_QUANTILE * deviation)
        )


def _kept(warm: float, cold: float, lost: float) -> float:
    """Cost of an operation by itself whose operands the caches have ``lost`` in part."""
    return warm + _OF_LOST * lost * (cold - warm)


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


def _watched(profile: DeviceProfile) -> dict[str, list[_Watched]]:
    """Watched operations, by kind.

    An operation with several places counts once, with the mean of their logarithms.
    """
    places: dict[str, list[PlaceCost]] = {}
    for place in profile.place.values():
        places.setdefault(place.key, []).append(place)
    found: dict[str, list[_Watched]] = {}
    for spec, operation in profile.by_spec.items():
        own = places.get(operation.op, ())
        warm_s, cold_s = operation.warm.time_s.median, operation.cold.time_s.median
        if own and min(warm_s, cold_s, *(place.time_s.median for place in own)) > 0:
            found.setdefault(spec.kind, []).append(_of_places(own, warm_s, cold_s))
    return found


def _of_places(places: Sequence[PlaceCost], warm_s: float, cold_s: float) -> _Watched:
    kept_s = [_kept(warm_s, cold_s, place.lost or 0.0) for place in places]
    return _Watched(_middle(kept_s), cold_s, _middle(place.time_s.median for place in places))


def _middle(values: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def _fitted(watched: Mapping[str, Sequence[_Watched]], call_s: float) -> tuple[float, Context]:
    """Lines with a call of so many seconds, and the sum of the sizes of their errors."""
    everything = [each for own in watched.values() for each in own]
    common = _line(everything, call_s, 0.0, 0.0)
    lines = {kind: _line(own, call_s, *common) for kind, own in watched.items()}
    errors = {
        kind: [each.error(call_s, *lines[kind]) for each in own] for kind, own in watched.items()
    }
    squares = {kind: math.fsum(error**2 for error in own) for kind, own in errors.items()}
    within = math.fsum(squares.values()) / len(everything)
    of_common = math.fsum(each.error(call_s, *common) ** 2 for each in everything)
    return math.fsum(abs(error) for own in errors.values() for error in own), Context(
        _Line(*common, math.sqrt(of_common / len(everything))),
        {
            kind: _Line(
                *line,
                math.sqrt(
                    (_VARIANCE_WEIGHT * within + squares[kind])
                    / (_VARIANCE_WEIGHT + len(watched[kind]))
                    * (1 + 1 / len(watched[kind]))
                ),
            )
            for kind, line in lines.items()
        },
        call_s,
        is_watched=True,
    )


def _line(
    watched: Sequence[_Watched], call_s: float, offset: float, share: float
) -> tuple[float, float]:
    """Line of least squares through watched operations, drawn towards an offset and a share.

    What an operation takes without the call is the less certain, the more the call is of it.
    """
    without_s = np.array([each.in_step_s - call_s for each in watched])
    kept_s = np.array([each.kept_s for each in watched])
    weights = without_s / (without_s + call_s)
    y = np.log(without_s / kept_s)
    x = np.log(np.array([each.cold_s for each in watched]) / kept_s)
    matrix = np.column_stack([np.ones_like(x), x]) * weights[:, None]
    towards = np.diag([_OFFSET_WEIGHT, _SHARE_WEIGHT])
    found = np.linalg.solve(
        matrix.T @ matrix + towards, matrix.T @ (weights * y) + towards @ np.array([offset, share])
    )
    return float(found[0]), float(found[1])
