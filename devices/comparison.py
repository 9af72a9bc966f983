"""Comparison of two profiles: the figures that differ, among hundreds that could by chance.

A later run finds another median where nothing has changed. An interval of a profile says where one
later sitting lies. A later run's median is taken to deviate as much, though it is of several
sittings: they follow one another, and share what the hour brings. The difference of two medians is
then Student's t times the root of both squared spreads (Welch, with the degrees of freedom of
Satterthwaite), on a logarithmic scale.

A figure that was measured once has no interval. It is taken to deviate as the same figure of the
other profile does; if that has no interval either, nothing is known of their difference. Published
figures are exact. A cost in context whose interval states no degrees of freedom has that of one
sitting, as in earlier releases; between sittings it is taken to deviate as the operation by itself.

Of hundreds of figures, some differ by chance. Those are selected that keep the expected share of
false ones within 5 %, however the figures depend on one another (Benjamini and Yekutieli 2001,
theorem 1.3). Where nothing has changed, any is selected in at most 5 % of comparisons. The smallest
change that a figure still allows is the end of an interval whose coverage accounts for the
selection (Benjamini and Yekutieli 2005, *False discovery rate-adjusted multiple confidence
intervals*): it excludes "no change" for selected figures and for no other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from devices.operation import OpSpec
from devices.profile import (
    AffinePageCost,
    ComputeRates,
    Cost,
    DeviceProfile,
    Interval,
    StepCosts,
    StorageCosts,
)

Quantity: TypeAlias = Literal["time_s", "energy_j"]

FALSE_DISCOVERY_RATE = 0.05
"""Largest expected share of false differences among those that are found."""

POWER = 0.9
"""Probability with which the smallest visible change is found."""

# Degrees of freedom of an interval that does not state them: those of five blocks alone.
_UNSTATED_FREEDOM = 4.0

# Probability that five values of one run all lie below or above five of another by chance.
_APART_BY_CHANCE = 2 / math.comb(10, 5)

# Logarithm of the largest ratio that is told apart from an infinite one.
_WIDEST = 500.0


@dataclass(frozen=True)
class _Spread:
    """Scale of Student's t on a logarithmic scale, 0 for an exact figure, and its freedom."""

    scale: float
    freedom: float

    @classmethod
    def of(cls, interval: Interval) -> _Spread:
        """The spread of a positive interval."""
        from scipy.special import stdtrit

        freedom = interval.freedom or _UNSTATED_FREEDOM
        return cls(interval.half_log / float(stdtrit(freedom, 0.975)), freedom)

    def and_of(self, other: _Spread) -> _Spread:
        """The spread of a difference."""
        scale = math.hypot(self.scale, other.scale)
        if scale == 0:
            return self
        shares = ((each.scale / scale) ** 2 for each in (self, other))
        inverse = sum(
            share**2 / each.freedom for share, each in zip(shares, (self, other), strict=True)
        )
        return _Spread(scale, 1 / inverse)

    def reach(self, level: float) -> float:
        """Half width of an interval that misses with probability ``level``."""
        from scipy.special import stdtrit

        return min(_WIDEST, self.scale * -float(stdtrit(self.freedom, level / 2)))

    def visible(self, level: float) -> float:
        """Smallest change that a test at this level finds with the stated power, as a ratio."""
        from scipy.special import stdtrit

        missed = self.scale * float(stdtrit(self.freedom, POWER))
        return math.exp(min(_WIDEST, self.reach(level) + missed))


@dataclass(frozen=True)
class Difference:
    """One figure of both profiles.

    ``what`` is an operation's key with its cache state (or "in context"), an op with its network,
    a transfer with its size, or a part of a law: a FLOP, a transfer's fixed part, a byte of it. The
    intervals are in seconds or joules, as ``quantity`` states.
    ``published`` says which of the two are published: without an interval, these are exact.
    """

    what: str
    quantity: Quantity
    first: Interval
    second: Interval
    published: tuple[bool, bool] = (False, False)

    @property
    def ratio(self) -> float:
        """Second median over the first; infinite if the first is zero."""
        if self.first.median == 0:
            return math.inf if self.second.median else 1.0
        return self.second.median / self.first.median

    @property
    def _change(self) -> float:
        """Logarithm of the ratio of positive medians, also of one too large or too small."""
        return math.log(self.second.median) - math.log(self.first.median)

    @cached_property
    def spread(self) -> _Spread | None:
        """Spread of the ratio's logarithm; None if an interval reaches zero."""
        if self.first.low == 0 or self.second.low == 0:
            return None
        one, other = _Spread.of(self.first), _Spread.of(self.second)
        if one.scale == 0 and not self.published[0]:
            one = other
        elif other.scale == 0 and not self.published[1]:
            other = one
        return one.and_of(other)

    @cached_property
    def is_known(self) -> bool:
        """Whether an interval says how much the figures deviate by chance."""
        if self.spread is not None and self.spread.scale > 0:
            return True
        if self.first.high == self.second.high == 0:
            return True
        intervals = zip((self.first, self.second), self.published, strict=True)
        return all(is_exact or each.low < each.high for each, is_exact in intervals)

    @cached_property
    def p_value(self) -> float:
        """Probability of such a difference between runs of the same thing.

        It is 1 for figures of which that is not known. Figures that have no logarithm differ if
        their intervals are disjoint.
        """
        if self.spread is None or self.spread.scale == 0:
            apart = self.first.high < self.second.low or self.second.high < self.first.low
            if not apart or not self.is_known:
                return 1.0
            return 0.0 if all(self.published) else _APART_BY_CHANCE
        from scipy.special import stdtr

        deviation = abs(self._change) / self.spread.scale
        return 2 * float(stdtr(self.spread.freedom, -deviation))

    def least_ratio(self, level: float) -> float:
        """Ratio nearest to 1 in the interval that misses with probability ``level``."""
        if self.spread is None or self.spread.scale == 0:
            return self.ratio if self.p_value < level else 1.0
        least = max(0.0, abs(self._change) - self.spread.reach(level))
        return math.exp(math.copysign(min(_WIDEST, least), self._change))


@dataclass(frozen=True)
class VisibleChange:
    """Smallest changes that would have been found, as ratios above 1.

    They differ from figure to figure: the smallest, the median and the largest of them.
    """

    smallest: float
    median: float
    largest: float


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

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Figures that differ, the largest ratio first."""
        if not self.figures:
            return ()
        from scipy.stats import false_discovery_control

        adjusted = false_discovery_control([each.p_value for each in self.figures], method="by")
        found = [
            figure
            for figure, value in zip(self.figures, adjusted.tolist(), strict=True)
            if value <= FALSE_DISCOVERY_RATE
        ]
        return tuple(sorted(found, key=_size, reverse=True))

    @cached_property
    def unknown(self) -> int:
        """Number of figures of which it is not known whether they differ."""
        return sum(not figure.is_known for figure in self.figures)

    def least_ratio(self, figure: Difference) -> float:
        """Ratio nearest to 1 that a figure allows; 1 if it does not differ."""
        return figure.least_ratio(self._level(len(self.differences)))

    def visible(self, changed: int) -> VisibleChange | None:
        """Smallest changes that would have been found if so many figures had changed alike.

        None if no figure has a spread.
        """
        level = self._level(changed)
        spreads = [each.spread for each in self.figures if each.spread is not None]
        found = [spread.visible(level) for spread in spreads if spread.scale > 0]
        if not found:
            return None
        return VisibleChange(min(found), statistics.median(found), max(found))

    def _level(self, found: int) -> float:
        """Level at which single figures are tested if so many are found."""
        count = len(self.figures)
        dependence = math.fsum(1 / rank for rank in range(1, count + 1))
        return FALSE_DISCOVERY_RATE * max(found, 1) / (max(count, 1) * max(dependence, 1.0))


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
    if first.rates is not None and second.rates is not None:
        figures += _of_cost("a FLOP", _of_flop(first.rates), _of_flop(second.rates))
    figures += _of_steps(first.step_costs, second.step_costs)
    if first.storage is not None and second.storage is not None:
        figures += _of_storage(first.storage, second.storage)
    published = (first.energy_source == "published", second.energy_source == "published")
    return ProfileComparison(
        figures=tuple(replace(figure, published=published) for figure in figures),
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
        yield from _of_cost(
            f"in context {spec.key}",
            _of_a_later_sitting(one.in_context, one.isolated(first.cost_basis)),
            _of_a_later_sitting(other.in_context, other.isolated(second.cost_basis)),
        )


def _of_a_later_sitting(within: Cost, isolated: Cost) -> Cost:
    """A cost in context, with the intervals of what a later sitting finds.

    One that states no degrees of freedom is within one sitting.
    """
    if within.time_s.freedom is not None:
        return within
    energy_j = within.energy_j and _widened(within.energy_j, isolated.energy_j or isolated.time_s)
    time_s = _widened(within.time_s, isolated.time_s)
    return Cost(time_s=time_s, energy_j=energy_j, trials=within.trials)


def _widened(within: Interval, between: Interval) -> Interval:
    """An interval within one sitting, with the relative spread between sittings.

    It is exact if that spread is not known.
    """
    if between.is_exact or min(within.low, between.low) == 0:
        return Interval.exact(within.median)
    half = min(_WIDEST, math.hypot(within.half_log, between.half_log))
    return Interval(
        median=within.median,
        low=within.median * math.exp(-half),
        high=within.median * math.exp(half),
        freedom=between.freedom,
    )


def _of_cost(what: str, one: Cost, other: Cost) -> Iterator[Difference]:
    yield Difference(what, "time_s", one.time_s, other.time_s)
    if one.energy_j is not None and other.energy_j is not None:
        yield Difference(what, "energy_j", one.energy_j, other.energy_j)


def _of_flop(rates: ComputeRates) -> Cost:
    return _exact(1 / rates.flop_per_s, 1 / rates.flop_per_j)


def _exact(time_s: float, energy_j: float | None) -> Cost:
    return Cost(
        time_s=Interval.exact(time_s),
        energy_j=None if energy_j is None else Interval.exact(energy_j),
        trials=1,
    )


def _of_steps(first: Sequence[StepCosts], second: Sequence[StepCosts]) -> Iterator[Difference]:
    """Times of ops in their places. Their joules are these times × the power of all steps."""
    for step in first:
        for match in second:
            if match.network != step.network:
                continue
            places = {place.op: place for place in match.places}
            for place in step.places:
                if (other := places.get(place.op)) is not None and other.key == place.key:
                    what = f"{place.op} in a step of {step.network.model}"
                    yield Difference(what, "time_s", place.time_s, other.time_s)


def _of_storage(one: StorageCosts, other: StorageCosts) -> Iterator[Difference]:
    """Transfers of the measured sizes, by its law for a profile without any; else the laws."""
    for name in ("read", "write", "erase"):
        first, second = getattr(one, name), getattr(other, name)
        if first is None or second is None:
            continue
        units_bytes = [
            (name == "erase" and each.erase_block_bytes) or each.page_bytes for each in (one, other)
        ]
        laws = [_Law(*each) for each in zip((first, second), units_bytes, strict=True)]
        sizes = {point.bytes for point in (*first.sweep, *second.sweep)}
        if not sizes:
            yield from _of_cost(f"{name}, fixed part", *(law.fixed for law in laws))
            yield from _of_cost(f"{name}, per byte", *(law.per_byte for law in laws))
        costs, others = (law.transfers(sizes) for law in laws)
        for size_bytes, cost in costs.items():
            if size_bytes in others:
                yield from _of_cost(f"{name} of {size_bytes} bytes", cost, others[size_bytes])


@dataclass(frozen=True)
class _Law:
    """Costs of transfers in units of pages or erase blocks."""

    law: AffinePageCost
    unit_bytes: int

    @property
    def fixed(self) -> Cost:
        return _exact(self.law.fixed_s, self.law.fixed_j)

    @property
    def per_byte(self) -> Cost:
        law, unit_bytes = self.law, self.unit_bytes
        each_j = None if law.per_page_j is None else law.per_page_j / unit_bytes
        return _exact(law.per_page_s / unit_bytes, each_j)

    def transfers(self, sizes: Iterable[int]) -> dict[int, Cost]:
        """Costs of the measured sizes, or of ``sizes`` by the law if none was measured."""
        if self.law.sweep:
            return {
                point.bytes: Cost(time_s=point.time_s, energy_j=point.energy_j, trials=1)
                for point in self.law.sweep
            }
        return {
            size_bytes: _exact(*self.law.alone(math.ceil(size_bytes / self.unit_bytes)))
            for size_bytes in sorted(sizes)
        }


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
