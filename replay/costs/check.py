"""Check of a profile: how many of its intervals hold what is measured again (``check/1``).

Everything is measured anew: another process, other addresses and data, another time. A figure is
one cost of the profile; a trial is its value in one sitting of the check. An interval of 95 %
should hold 95 % of the trials (:mod:`replay.costs.coverage`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from devices.documents.document import StrictModel
from devices.operation import OpSpec
from devices.profile import DeviceProfile, EnergySource, StepCosts
from devices.quantities import Label, NonNegative, WholeNumber
from profiler.run.table import TrialTable
from profiler.script.windows import CACHE_STATES, OpWindow
from replay.costs.coverage import CheckedFigure, CheckedGroup, Coverage, coverage
from replay.costs.sittings import times_of


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


def operation_figures(
    profile: DeviceProfile, specs: Iterable[OpSpec], table: TrialTable
) -> CheckedGroup:
    """Warm and cold costs of operations that were measured again, with a value for each block."""
    found, sittings = [], []
    for spec in specs:
        for state in CACHE_STATES:
            trials = dict(sorted(table.valid(OpWindow(spec, state).label).items()))
            if trials:
                sittings.append(tuple(trials))
                interval = profile.by_spec[spec].isolated(state).time_s
                found.append(
                    CheckedFigure(
                        what=f"{state} {spec.key}",
                        kind=spec.kind,
                        profile=interval,
                        sittings_s=tuple(trial.time_s for trial in trials.values()),
                    )
                )
    return CheckedGroup(tuple(found), sittings=tuple(sittings))


def place_figures(costs: StepCosts, again: StepCosts) -> CheckedGroup:
    """Costs in places of a step that was watched again, with a value for each sitting."""
    known = {(place.op, place.key): place for place in costs.places}
    pairs = [
        (before, place)
        for place in again.places
        if (before := known.get((place.op, place.key))) is not None
    ]
    figures = [
        CheckedFigure(
            what=f"in its place {place.op}",
            kind=f"in place: {OpSpec.parse(place.key).kind}",
            profile=before.time_s,
            sittings_s=place.sittings_s,
        )
        for before, place in pairs
    ]
    times = times_of(costs.sittings_of_ops)
    return CheckedGroup.of(figures, [before.sittings_s for before, _ in pairs], times)


def check_report(
    profile: DeviceProfile,
    device: str,
    checked: str,
    groups: Sequence[CheckedGroup],
    unchecked: int,
) -> CheckReport:
    """Compare what was measured again with the profile's intervals.

    Args:
        profile: the checked profile.
        device: the board's name.
        checked: date and time of the check.
        groups: the figures that were measured again, at least one.
        unchecked: number of the profile's operations that were not.
    """
    figures = tuple(figure for group in groups for figure in group.figures)
    kinds = sorted({figure.kind for figure in figures})
    return CheckReport(
        device=device,
        profile_created=profile.created,
        checked=checked,
        energy_source=profile.energy_source,
        overall=coverage(groups),
        by_time=coverage(groups, lambda figure: figure.profile.median),
        kinds={kind: coverage([group.of_kind(kind) for group in groups]) for kind in kinds},
        difference=statistics.median(abs(figure.difference) for figure in figures),
        unchecked=unchecked,
        figures=figures,
    )


def stratified(
    profile: DeviceProfile,
    specs: Iterable[OpSpec],
    cost_s: Callable[[OpSpec], float],
    limit_s: float,
) -> list[OpSpec]:
    """Operations to measure again within a limit: of every kind in turn, spread over its durations.

    Args:
        profile: the profile.
        specs: operations of the profile, at least one.
        cost_s: predicted seconds of measuring an operation again.
        limit_s: most seconds in all; at least one operation is chosen.
    """
    kinds: dict[str, list[OpSpec]] = {}
    for spec in specs:
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
