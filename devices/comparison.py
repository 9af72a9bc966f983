"""Comparison of two profiles: the figures that differ beyond their intervals.

Two figures differ if their intervals do not overlap. This is stricter than a test at 95 %: of
measurements of the same quantity, about one in 180 pairs has disjoint confidence intervals
(Schenker and Gentleman 2001), and fewer have disjoint intervals of a later sitting. If neither
figure has an interval, any difference counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.operation import OpSpec
from devices.profile import Cost, DeviceProfile, Interval, StorageCosts

Quantity: TypeAlias = Literal["time_s", "energy_j"]


@dataclass(frozen=True)
class Difference:
    """One figure of both profiles.

    ``what`` is an operation's key with its cache state (or "in context"), or a transfer with its
    size. The intervals are in seconds or joules, as ``quantity`` states.
    """

    what: str
    quantity: Quantity
    first: Interval
    second: Interval

    @property
    def ratio(self) -> float:
        """Second median over the first; infinite if the first is zero."""
        if self.first.median == 0:
            return math.inf if self.second.median else 1.0
        return self.second.median / self.first.median

    @property
    def is_beyond_intervals(self) -> bool:
        return self.first.high < self.second.low or self.second.high < self.first.low

    @property
    def least_ratio(self) -> float:
        """Ratio nearest to 1 that the intervals allow; 1 if they overlap."""
        if not self.is_beyond_intervals:
            return 1.0
        near, far = self.first, self.second
        numerator, denominator = (
            (far.low, near.high) if far.low > near.high else (far.high, near.low)
        )
        return numerator / denominator if denominator else math.inf


@dataclass(frozen=True)
class ProfileComparison:
    """Result of comparing two profiles.

    ``figures`` are all that both profiles have. ``only_first`` and ``only_second`` are keys of
    operations that only one profile has. ``circumstances`` lists differing conditions of the
    measurements as (condition, value in the first, value in the second).
    """

    figures: tuple[Difference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    circumstances: tuple[tuple[str, str, str], ...]

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Figures that differ beyond their intervals, the largest ratio first."""
        beyond = [figure for figure in self.figures if figure.is_beyond_intervals]
        return tuple(sorted(beyond, key=_size, reverse=True))


def compare(first: DeviceProfile, second: DeviceProfile) -> ProfileComparison:
    """Compare all costs that two profiles have in common.

    Args:
        first: Profile that ratios are relative to.
        second: Profile to compare with it.

    Returns:
        All common figures, the operations of only one profile, and differing conditions.
    """
    one, other = first.by_spec, second.by_spec
    figures: list[Difference] = []
    for spec in one:
        if spec in other:
            figures += _of_operation(spec, first, second)
    if first.idle_power_w is not None and second.idle_power_w is not None:
        # Power in watts, as joules over one second.
        figures.append(
            Difference("idle for 1 s", "energy_j", first.idle_power_w, second.idle_power_w)
        )
    if first.storage is not None and second.storage is not None:
        figures += _of_storage(first.storage, second.storage)
    return ProfileComparison(
        figures=tuple(figures),
        only_first=tuple(spec.key for spec in one if spec not in other),
        only_second=tuple(spec.key for spec in other if spec not in one),
        circumstances=tuple(_circumstances(first, second)),
    )


def _size(difference: Difference) -> float:
    ratio = difference.ratio
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _of_operation(
    spec: OpSpec, first: DeviceProfile, second: DeviceProfile
) -> Iterator[Difference]:
    one, other = first.by_spec[spec], second.by_spec[spec]
    if one.warm == one.cold and other.warm == other.cold:
        yield from _of_cost(spec.key, one.warm, other.warm)
    else:
        yield from _of_cost(f"warm {spec.key}", one.warm, other.warm)
        yield from _of_cost(f"cold {spec.key}", one.cold, other.cold)
    if one.in_context is not None and other.in_context is not None:
        yield from _of_cost(f"in context {spec.key}", one.in_context, other.in_context)


def _of_cost(what: str, one: Cost, other: Cost) -> Iterator[Difference]:
    yield Difference(what, "time_s", one.time_s, other.time_s)
    if one.energy_j is not None and other.energy_j is not None:
        yield Difference(what, "energy_j", one.energy_j, other.energy_j)


def _of_storage(one: StorageCosts, other: StorageCosts) -> Iterator[Difference]:
    for name in ("read", "write", "erase"):
        first, second = getattr(one, name), getattr(other, name)
        if first is None or second is None:
            continue
        sizes = {point.bytes: point for point in second.sweep}
        for point in first.sweep:
            match = sizes.get(point.bytes)
            if match is None:
                continue
            what = f"{name} of {point.bytes} bytes"
            yield Difference(what, "time_s", point.time_s, match.time_s)
            if point.energy_j is not None and match.energy_j is not None:
                yield Difference(what, "energy_j", point.energy_j, match.energy_j)


def _circumstances(first: DeviceProfile, second: DeviceProfile) -> Iterator[tuple[str, str, str]]:
    def described(profile: DeviceProfile) -> dict[str, str]:
        # Free memory changes from one moment to the next, and costs do not depend on it.
        board = profile.board.model_dump(exclude={"available_bytes"})
        conditions: dict[str, object] = {
            "energy_source": profile.energy_source,
            "costs that are used": profile.cost_words,
            **{f"board.{key}": value for key, value in board.items()},
        }
        if profile.build is not None:
            build = profile.build.model_dump()
            conditions |= {f"build.{key}": value for key, value in build.items()}
        if profile.meter is not None:
            meter = profile.meter.model_dump()
            conditions |= {f"meter.{key}": value for key, value in meter.items()}
        return {key: _text(value) for key, value in conditions.items()}

    one, other = described(first), described(second)
    for key in dict.fromkeys((*one, *other)):
        if one.get(key, "–") != other.get(key, "–"):
            yield key, one.get(key, "–"), other.get(key, "–")


def _text(value: object) -> str:
    if value is None:
        return "–"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
