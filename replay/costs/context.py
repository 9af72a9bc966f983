"""Costs of ops in their places of a training step, from sittings of watched steps.

In a loop of its own, an operation finds its operands in the caches, or none of them, and random
values in them. In a step, both depend on its place. A sitting is one process that runs some watched
steps. Sittings differ in all that a later run may differ in: process, addresses, data, and the
schedule, as what runs before an op depends on it. Their spread is therefore the error of a
prediction (:func:`~profiler.statistics.later_intervals`). Those of one pause between other
measurements count as one time.

The cost of an op in a sitting is the mean over its executions in a step (several where the schedule
recomputes it), of which the median over the steps: what executions of an op cost must add up to
their time in a step. What transfers beside an op took of the processor meanwhile does not count:
schedules count it with the transfers. Transfers have a law of their own, by size, which steps
correct for all page-ins, and for all page-outs (:mod:`replay.costs.transfers`).

Joules are seconds × the power of the op within the step (:mod:`replay.costs.power`). All ops share
the factor of this power, and so its error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from devices.profile import (
    DeviceProfile,
    Interval,
    PackedTensor,
    PlaceCost,
    PowerInContext,
    ProfiledNetwork,
    Sitting,
    StepCosts,
)
from devices.replay import MeasuredStep
from profiler.run.assembly import FEWEST_TRIALS
from profiler.statistics import later_intervals, later_variance
from replay.costs.power import power_in_context, product
from replay.costs.sittings import WatchedSitting, times_of
from replay.costs.transfers import by_themselves, processor_share, within_steps
from replay.running.measured import ReplayRecord
from solver.costing.situation import Situation

FEWEST_SITTINGS = 3


def step_costs(
    profile: DeviceProfile,
    network: ProfiledNetwork,
    keys: Mapping[str, str],
    sittings: Sequence[WatchedSitting],
    before: StepCosts | None = None,
    packed: tuple[PackedTensor, ...] = (),
    situations: Mapping[str, Situation] | None = None,
) -> StepCosts:
    """Costs of the ops of a step in their places.

    Args:
        profile: costs of transfers by themselves, and of operations, for their power.
        network: the network whose step was watched.
        keys: key of the operation that each op has its cost from.
        sittings: the sittings; each that counts for ops executed every op. Without any, only
            those of ``before`` count.
        before: costs from earlier sittings of the same step, which are counted too.
        packed: tensors whose zeros were counted; else those of ``before`` remain.
        situations: the situation of each op in the step; else those of ``before`` remain.
    """
    known_places = () if before is None else before.places
    # The same op may compute another operation where its parameters are in storage.
    earlier = {place.op: place for place in known_places if keys.get(place.op) == place.key}
    of_ops = [sitting.op_s for sitting in sittings if not sitting.only_transfers]
    executed: Sequence[Mapping[str, object]] = of_ops or [earlier]
    ops = [op for op in keys if all(op in own for own in executed)]
    values = [
        [*(earlier[op].sittings_s if op in earlier else ()), *(own[op] for own in of_ops)]
        for op in ops
    ]
    operations = {operation.op: operation for operation in profile.operations}
    known = () if before is None else before.sittings
    records = (*known, *(sitting.compared_with(profile) for sitting in sittings))
    in_steps = power_factor(records)
    times = times_of(each for each in records if not each.only_transfers)
    # An op that was not executed before has values of the last sittings only.
    own_times = [times[len(times) - len(own) :] for own in values]
    power: PowerInContext | None = None
    places = []
    for op, own, time_s in zip(ops, values, later_intervals(values, own_times), strict=True):
        source: PowerInContext | None = None
        power_w: Interval | None = None
        if (operation := operations.get(keys[op])) is not None:
            isolated = operation.isolated(profile.cost_basis)
            source, power_w = power_in_context(profile, isolated, in_steps)
        power = power or source
        places.append(
            PlaceCost(
                op=op,
                key=keys[op],
                time_s=time_s,
                energy_j=None if power_w is None else product(time_s, power_w),
                sittings_s=tuple(own),
                **(situations[op]._asdict() if situations else _situation(earlier.get(op))),
            )
        )
    correlation = _correlation(values, own_times, 0.0 if before is None else before.correlation)
    return StepCosts(
        network=network,
        sittings=records,
        power=power,
        correlation=correlation,
        energy_correlation=None
        if in_steps is None or power != "scaled to the steps"
        else _energy_correlation(places, correlation, in_steps),
        places=tuple(places),
        packed=packed or (() if before is None else before.packed),
    )


def _situation(place: PlaceCost | None) -> dict[str, Any]:
    return {} if place is None else {name: getattr(place, name) for name in Situation._fields}


def counting_steps(record: ReplayRecord) -> tuple[MeasuredStep, ...]:
    """Steps of a sitting that count: the undisturbed ones, or all on a board that is never quiet.

    On such a board a later run is disturbed too, and its median is taken over all steps.
    """
    undisturbed = record.quiet_steps
    return undisturbed if len(undisturbed) >= FEWEST_TRIALS else record.sound_steps


def with_step_costs(profile: DeviceProfile, costs: StepCosts) -> DeviceProfile:
    """The profile with costs in places of a step, in place of earlier ones of the same network.

    Transfers are corrected by all sittings of all networks, which also give the processor's share.
    """
    others = (each for each in profile.step_costs if each.network != costs.network)
    everything = (*others, costs)
    sittings = [sitting for step in everything for sitting in step.sittings]
    storage = profile.storage
    if storage is not None:
        read = within_steps(storage.read, [each for s in sittings for each in s.page_in])
        write = within_steps(storage.write, [each for s in sittings for each in s.page_out])
        storage = storage.model_copy(
            update={"read": read, "write": write, "processor_share": processor_share(sittings)}
        )
    return profile.changed(step_costs=everything, storage=storage)


def without_step_costs(profile: DeviceProfile) -> DeviceProfile:
    """The profile with costs by themselves only: as if no step had been watched."""
    return profile.changed(step_costs=(), storage=by_themselves(profile.storage))


def power_factor(sittings: Sequence[Sitting]) -> Interval | None:
    """Power of a step over that of its actions by themselves; None if no energy was measured."""
    metered = [each for each in sittings if each.power_factor is not None]
    factors = [each.power_factor for each in metered if each.power_factor is not None]
    return later_intervals([factors], [times_of(metered)])[0] if factors else None


def _correlation(
    values: Sequence[Sequence[float]], times: Sequence[Sequence[int]], known: float
) -> float:
    """Mean correlation of two ops over sittings, weighted by their spreads.

    It is that of the ops with the most sittings, and what is ``known`` of it where they are too
    few. The variance of a sum is (1 - ρ) Σσ² + ρ (Σσ)², which is solved for ρ.
    """
    most = max(map(len, values), default=0)
    longest = [own for own in values if len(own) == most]
    if most < FEWEST_SITTINGS or len(longest) == 1:
        return known
    when = next(each for each in times if len(each) == most)
    variances = [later_variance(own, when) for own in longest]
    apart = math.fsum(variances)
    together = math.fsum(map(math.sqrt, variances)) ** 2
    if together <= apart:
        return 0.0
    total = later_variance([math.fsum(own) for own in zip(*longest, strict=True)], when)
    return min(1.0, max(0.0, (total - apart) / (together - apart)))


def _energy_correlation(places: Sequence[PlaceCost], correlation: float, factor: Interval) -> float:
    """Mean correlation of the errors of two ops' joules, weighted by their widths.

    Joules are seconds × an op's own power × a factor that is the same for all ops. The covariance
    of two ops' joules is that of their common inputs (GUM, JCGM 100:2008, F.1.2.3): of the seconds
    with their ``correlation``, and of the factor with 1. Errors of own powers are independent.
    """
    known = [(place.energy_j, place.time_s) for place in places if place.energy_j is not None]
    energies_j = _over_pairs(energy_j.high - energy_j.low for energy_j, _ in known)
    times_j = _over_pairs(energy_j.median * _width(time_s) for energy_j, time_s in known)
    factors_j = _over_pairs(energy_j.median * _width(factor) for energy_j, _ in known)
    if energies_j <= 0:
        return correlation
    return min(1.0, max(0.0, (correlation * times_j + factors_j) / energies_j))


def _width(interval: Interval) -> float:
    """Width of an interval relative to its median."""
    return (interval.high - interval.low) / interval.median if interval.median else 0.0


def _over_pairs(widths: Iterable[float]) -> float:
    """Sum of the products of any two different ones of the widths."""
    values = list(widths)
    return math.fsum(values) ** 2 - math.fsum(width * width for width in values)
