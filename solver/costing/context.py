"""Cost of an operation in a step, from its costs in a loop with warm and with cold caches.

In a step, an operation finds some of its operands in the caches. How many bytes of them the caches
have lost since their last use is known (:mod:`solver.costing.situation`): with that share ``lost``,
an operation costs ``kept = warm + 0.75 · lost · (cold - warm)``. Where steps were watched, the cost
in a step is ``call · (1 + 5 · code_lost) + kept · exp(offset + share · log(cold / kept))``. The
call is what an executor adds to every operation; it takes longer where the caches have lost the
kernel's instructions. Offset and share are those of the kind, drawn towards those of all kinds, and
these towards zero (ridge regression). The offset is that of other data: zeros, on processors that
add them faster. Ops that overwrite an operand, other than by themselves, have lines of their own,
since they move fewer bytes. The share is what else is lost, or all of it where a profile does not
say how much: in profiles of earlier releases, with which nothing else counts as lost.

The residuals of watched operations give the interval, moderated by those of all kinds (Smyth 2004).
That of the call, and of what is lost, are added to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from devices.profile import DeviceProfile, Interval, PlaceCost
from solver.costing.law import Estimate
from solver.costing.situation import Situation

# Fewest distinct operations that have to be watched.
_FEWEST = 6

# Weight of the common offset and share in those of a kind, in operations; and of zero in these.
_OFFSET_WEIGHT = 2.0
_SHARE_WEIGHT = 2.0

# Weight of the variance of all kinds in that of one, in operations.
_VARIANCE_WEIGHT = 3.0

# Part of the difference between cold and warm that operands cost which have left the caches, and
# its standard deviation. Set on the watched steps of eight networks on one computer, as are the
# figures of a call (docs/benchmarks/cost-model.md); most is lost in ResNet-18 and a transformer.
_OF_LOST = 0.75
_OF_LOST_DEVIATION = 0.25

# Seconds of a call that are tried, as shares of the shortest watched operation.
_CALLS = tuple(number / 20 for number in range(20))

# What a call takes more, relative to it, where the caches have lost the kernel's instructions. And
# standard deviations of a call, relative to it, where nothing and where all is lost.
_FETCHED = 5.0
_CALL_DEVIATION, _FETCHED_DEVIATION = 0.3, 0.6

# Least part of the time in a step that is an operation's own, whatever a call takes.
_LEAST_OWN = 0.05

_NORMAL_QUANTILE = 1.959964


class _Watched(NamedTuple):
    """Seconds of a watched operation: by itself with what is kept, with nothing, and in a step."""

    kept_s: float
    cold_s: float
    in_step_s: float
    code_lost: float

    def called_s(self, call_s: float) -> float:
        """Seconds of its call, of which ``call_s`` are without fetching instructions again."""
        return min(_called(call_s, self.code_lost), (1.0 - _LEAST_OWN) * self.in_step_s)

    def error(self, call_s: float, offset: float, share: float) -> float:
        """Logarithm of the cost in a step over what a line says."""
        alone_s = self.kept_s * math.exp(offset + share * math.log(self.cold_s / self.kept_s))
        return math.log(self.in_step_s / (_called(call_s, self.code_lost) + alone_s))


@dataclass(frozen=True)
class _Line:
    offset: float
    share: float
    deviation: float


@dataclass(frozen=True)
class Context:
    """Costs in steps from warm and cold ones. Without watched steps, the profile's cache state.

    Lines are for ops that overwrite an operand (True) and for others. ``says_lost`` is False if the
    profile does not say what its watched ops had lost.
    """

    common: Mapping[bool, _Line]
    of_kind: Mapping[tuple[str, bool], _Line]
    call_s: float
    is_watched: bool
    says_lost: bool = False

    @classmethod
    def of(cls, profile: DeviceProfile) -> Context:
        watched = _watched(profile)
        if sum(map(len, watched.values())) < _FEWEST:
            share = 0.0 if profile.cost_basis == "warm" else 1.0
            line = _Line(0.0, share, 0.0)
            return cls({False: line, True: line}, {}, 0.0, is_watched=False)
        shortest_s = min(pair.in_step_s for pairs in watched.values() for pair in pairs)
        tried = [_fitted(watched, share * shortest_s) for share in _CALLS]
        found = min(tried, key=lambda each: each[0])[1]
        return replace(found, says_lost=_says_lost(profile))

    def in_step(
        self,
        kind: str,
        warm: Estimate,
        cold: Estimate,
        situation: Situation,
        power_w: float = 1.0,
    ) -> Estimate:
        """Cost in a step of an operation of this kind.

        Args:
            kind: the operation's kind.
            warm: its seconds, or joules, with its operands in the caches.
            cold: the same without.
            situation: that of an op of the step.
            power_w: joules of a call's second; 1 for seconds.
        """
        lost, overwrites, code_lost = situation if self.says_lost else _like_any(situation)
        line = self.of_kind.get((kind, overwrites), self.common[overwrites])
        if not self.is_watched:
            half = abs(1.0 - line.share) * warm.half + abs(line.share) * cold.half
            return Estimate(warm.log + line.share * (cold.log - warm.log), half)
        warm_s, cold_s = math.exp(warm.log), math.exp(cold.log)
        of_cold = _OF_LOST * lost
        kept_s = _kept(warm_s, cold_s, lost)
        alone_s = kept_s * math.exp(line.offset + line.share * (cold.log - math.log(kept_s)))
        call_s = _called(self.call_s, code_lost) * power_w
        total_s = call_s + alone_s
        half_kept = ((1.0 - of_cold) * warm_s * warm.half + of_cold * cold_s * cold.half) / kept_s
        half = abs(1.0 - line.share) * half_kept + abs(line.share) * cold.half
        deviation = math.hypot(
            line.deviation,
            _OF_LOST_DEVIATION * lost * (cold_s - warm_s) / kept_s * alone_s / total_s,
            (_CALL_DEVIATION + code_lost * (_FETCHED_DEVIATION - _CALL_DEVIATION))
            * call_s
            / total_s,
        )
        return Estimate(
            math.log(total_s), math.hypot(half * alone_s / total_s, _NORMAL_QUANTILE * deviation)
        )


def _kept(warm: float, cold: float, lost: float) -> float:
    """Cost of an operation by itself whose operands the caches have ``lost`` in part."""
    return warm + _OF_LOST * lost * (cold - warm)


def _called(call: float, code_lost: float) -> float:
    """Cost of a call of a kernel whose instructions the caches have lost in part."""
    return call * (1.0 + _FETCHED * code_lost)


def _like_any(situation: Situation) -> Situation:
    """The situation without what was lost, for lines that say it of all ops alike."""
    return Situation(overwrites=situation.overwrites)


def _says_lost(profile: DeviceProfile) -> bool:
    """Whether a profile states for all watched ops what the caches had lost. Those of earlier
    releases do not."""
    return all(place.code_lost is not None for place in profile.place.values())


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


def _watched(profile: DeviceProfile) -> dict[tuple[str, bool], list[_Watched]]:
    """Watched operations, by kind and whether they overwrite an operand.

    An operation with several such places counts once, with the mean of their logarithms.
    """
    places: dict[tuple[str, bool], list[PlaceCost]] = {}
    says_lost = _says_lost(profile)
    for place in profile.place.values():
        own = place if says_lost else place.model_copy(update={"lost": None, "code_lost": None})
        places.setdefault((place.key, bool(place.overwrites)), []).append(own)
    found: dict[tuple[str, bool], list[_Watched]] = {}
    for spec, operation in profile.by_spec.items():
        warm_s, cold_s = operation.warm.time_s.median, operation.cold.time_s.median
        for overwrites in (False, True):
            alike = places.get((operation.op, overwrites), ())
            if alike and min(warm_s, cold_s, *(place.time_s.median for place in alike)) > 0:
                watched = _of_places(alike, warm_s, cold_s)
                found.setdefault((spec.kind, overwrites), []).append(watched)
    return found


def _of_places(places: Sequence[PlaceCost], warm_s: float, cold_s: float) -> _Watched:
    return _Watched(
        _middle(_kept(warm_s, cold_s, place.lost or 0.0) for place in places),
        cold_s,
        _middle(place.time_s.median for place in places),
        math.fsum(place.code_lost or 0.0 for place in places) / len(places),
    )


def _middle(values: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def _fitted(
    watched: Mapping[tuple[str, bool], Sequence[_Watched]], call_s: float
) -> tuple[float, Context]:
    """Lines with a call of so many seconds, and the sum of the sizes of their errors."""
    alike = {
        side: [
            each for (_, overwrites), own in watched.items() for each in own if overwrites == side
        ]
        for side in (False, True)
    }
    common = {False: _line(alike[False], call_s, 0.0, 0.0)}
    common[True] = _line(alike[True], call_s, *common[False])
    lines = {kind: _line(own, call_s, *common[kind[1]]) for kind, own in watched.items()}
    errors = {
        kind: [each.error(call_s, *lines[kind]) for each in own] for kind, own in watched.items()
    }
    squares = {kind: math.fsum(error**2 for error in own) for kind, own in errors.items()}
    count = sum(map(len, watched.values()))
    within = math.fsum(squares.values()) / count
    of_common = math.fsum(
        each.error(call_s, *common[side]) ** 2 for side, own in alike.items() for each in own
    )
    deviation = math.sqrt(of_common / count)
    return math.fsum(abs(error) for own in errors.values() for error in own), Context(
        {side: _Line(*line, deviation) for side, line in common.items()},
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
    called_s = np.array([each.called_s(call_s) for each in watched])
    without_s = np.array([each.in_step_s for each in watched]) - called_s
    kept_s = np.array([each.kept_s for each in watched])
    weights = without_s / (without_s + called_s)
    y = np.log(without_s / kept_s)
    x = np.log(np.array([each.cold_s for each in watched]) / kept_s)
    matrix = np.column_stack([np.ones_like(x), x]) * weights[:, None]
    towards = np.diag([_OFFSET_WEIGHT, _SHARE_WEIGHT])
    found = np.linalg.solve(
        matrix.T @ matrix + towards, matrix.T @ (weights * y) + towards @ np.array([offset, share])
    )
    return float(found[0]), float(found[1])
