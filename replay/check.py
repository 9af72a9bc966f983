"""Check of a profile: how many of its intervals hold what is measured again (``check/1``).

Everything is measured anew: another process, other addresses and data, another time. A figure is
one cost of the profile; a trial is its value in one sitting of the check. An interval of 95 %
should hold 95 % of the trials.

Trials of one sitting deviate together, as when the whole board is slower. Their number would then
overstate what is known of the coverage, so that it is divided by the design effect: the variance of
the sittings' coverages over that of independent trials (Kish 1965, *Survey Sampling*, section 8.2).
Weights by time reduce the number likewise, to (Σw)² / Σw². The interval of the coverage is Wilson's
(1927) for this number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from devices.documents.document import StrictModel
from devices.operation import OpSpec
from devices.profile import DeviceProfile, EnergySource, Interval, StepCosts
from devices.quantities import Count, Fraction, Label, NonNegative, WholeNumber
from profiler.run.table import TrialTable
from profiler.script.windows import CACHE_STATES, OpWindow

CLAIM = 0.95
"""Share of later sittings that an interval of a profile claims to hold."""

_NORMAL_QUANTILE = 1.959964


class Coverage(StrictModel):
    """Share of trials that their intervals hold, with its own 95 % interval."""

    trials: Count
    held: WholeNumber
    share: Fraction
    low: Fraction
    high: Fraction

    @property
    def is_clearly_below_the_claim(self) -> bool:
        return self.high < CLAIM


class CheckedFigure(StrictModel):
    """One cost: its interval in the profile, and what the check measured in each sitting."""

    what: Label
    kind: Label
    profile: Interval
    sittings_s: tuple[NonNegative, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.sittings_s)

    @property
    def difference(self) -> float:
        """Relative difference of the median; 0 for a figure of zero."""
        return self.median_s / self.profile.median - 1 if self.profile.median else 0.0


class CheckReport(StrictModel):
    """Result of a check.

    ``overall`` and ``kinds`` count every trial once; ``by_time`` weights each with its time.
    ``difference`` is the median size of the relative differences. ``unchecked`` counts the
    operations of the profile that were not measured again.
    """

    end_marked: ClassVar[bool] = True

    schema_: Annotated[Literal["check/1"], Field(alias="schema")] = "check/1"
    device: Label
    profile_created: str | None
    checked: str
    energy_source: EnergySource
    overall: Coverage
    by_time: Coverage
    kinds: Mapping[str, Coverage]
    difference: NonNegative
    unchecked: WholeNumber
    figures: tuple[CheckedFigure, ...]


@dataclass(frozen=True)
class _Trial:
    sitting: int
    held: bool
    weight: float


def operation_figures(
    profile: DeviceProfile, specs: Iterable[OpSpec], table: TrialTable
) -> list[CheckedFigure]:
    """Warm and cold costs of operations that were measured again, with a value for each block."""
    found = []
    for spec in specs:
        for state in CACHE_STATES:
            values = table.values(OpWindow(spec, state).label, lambda trial: trial.time_s)
            if values:
                interval = profile.by_spec[spec].isolated(state).time_s
                found.append(
                    CheckedFigure(
                        what=f"{state} {spec.key}",
                        kind=spec.kind,
                        profile=interval,
                        sittings_s=tuple(values),
                    )
                )
    return found


def place_figures(profile: DeviceProfile, again: StepCosts) -> list[CheckedFigure]:
    """Costs in places of a step that was watched again, with a value for each sitting."""
    return [
        CheckedFigure(
            what=f"in its place {place.op}",
            kind=f"in place: {OpSpec.parse(place.key).kind}",
            profile=profile.place[place.op, place.key].time_s,
            sittings_s=place.sittings_s,
        )
        for place in again.places
        if (place.op, place.key) in profile.place
    ]


def check_report(
    profile: DeviceProfile,
    device: str,
    checked: str,
    figures: Sequence[CheckedFigure],
    unchecked: int,
) -> CheckReport:
    """Compare what was measured again with the profile's intervals.

    Args:
        profile: the checked profile.
        device: the board's name.
        checked: date and time of the check.
        figures: the figures that were measured again, at least one.
        unchecked: number of the profile's operations that were not.
    """
    kinds = sorted({figure.kind for figure in figures})
    return CheckReport(
        device=device,
        profile_created=profile.created,
        checked=checked,
        energy_source=profile.energy_source,
        overall=coverage(figures, lambda _figure: 1.0),
        by_time=coverage(figures, lambda figure: figure.profile.median),
        kinds={
            kind: coverage([f for f in figures if f.kind == kind], lambda _figure: 1.0)
            for kind in kinds
        },
        difference=statistics.median(abs(figure.difference) for figure in figures),
        unchecked=unchecked,
        figures=tuple(figures),
    )


def coverage(
    figures: Sequence[CheckedFigure], weight: Callable[[CheckedFigure], float]
) -> Coverage:
    """Weighted share of trials that lie in their figures' intervals."""
    trials = [
        _Trial(sitting, figure.profile.low <= value <= figure.profile.high, weight(figure))
        for figure in figures
        for sitting, value in enumerate(figure.sittings_s)
    ]
    if not any(trial.weight for trial in trials):
        trials = [_Trial(trial.sitting, trial.held, 1.0) for trial in trials]
    total = math.fsum(trial.weight for trial in trials)
    share = min(1.0, _held(trials) / total)
    effective = total**2 / math.fsum(trial.weight**2 for trial in trials)
    effective = max(1.0, effective / _design_effect(trials, share, effective))
    low, high = wilson(share, effective)
    return Coverage(
        trials=len(trials),
        held=sum(trial.held for trial in trials),
        share=share,
        low=low,
        high=high,
    )


def _held(trials: Iterable[_Trial]) -> float:
    return math.fsum(trial.weight for trial in trials if trial.held)


def _design_effect(trials: Sequence[_Trial], share: float, effective: float) -> float:
    """Variance of the share, from its differences between sittings, over that of single trials.

    At least 1, and 1 for a single sitting, which shows no differences.
    """
    sittings = sorted({trial.sitting for trial in trials})
    if len(sittings) < 2 or share in {0.0, 1.0}:
        return 1.0
    shares = []
    for sitting in sittings:
        own = [trial for trial in trials if trial.sitting == sitting]
        shares.append(_held(own) / (math.fsum(trial.weight for trial in own) or 1.0))
    between = statistics.variance(shares) / len(sittings)
    return max(1.0, between * effective / (share * (1 - share)))


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion."""
    z = _NORMAL_QUANTILE
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = (
        z / (1 + z**2 / trials) * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def stratified(
    profile: DeviceProfile, cost_s: Callable[[OpSpec], float], limit_s: float
) -> list[OpSpec]:
    """Operations to measure again within a limit: of every kind in turn, spread over its durations.

    Args:
        profile: the profile.
        cost_s: predicted seconds of measuring an operation again.
        limit_s: most seconds in all; at least one operation is chosen.
    """
    kinds: dict[str, list[OpSpec]] = {}
    for spec in profile.by_spec:
        kinds.setdefault(spec.kind, []).append(spec)
    queues = [
        _spread(sorted(own, key=lambda spec: _time_s(profile, spec))) for own in kinds.values()
    ]
    chosen: list[OpSpec] = []
    left_s = limit_s
    for position in range(max(map(len, queues))):
        for queue in queues:
            if position < len(queue) and (not chosen or cost_s(queue[position]) <= left_s):
                chosen.append(queue[position])
                left_s -= cost_s(queue[position])
    return chosen


def _time_s(profile: DeviceProfile, spec: OpSpec) -> float:
    return profile.by_spec[spec].cold.time_s.median


def _spread(ordered: list[OpSpec]) -> list[OpSpec]:
    """An order whose beginnings are spread evenly: the middle, then the middles of the halves."""
    found, stretches = [], [(0, len(ordered))]
    for low, high in stretches:
        if low < high:
            middle = (low + high) // 2
            found.append(ordered[middle])
            stretches += [(low, middle), (middle + 1, high)]
    return found
