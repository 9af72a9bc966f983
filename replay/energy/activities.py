"""Energies of the activities of watched steps: single operations, transfers, and what is between.

Powers are found by :mod:`replay.energy.regression`. Activities with the same cost key are one: the
executions of an operation have one mean power, wherever they are in the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from devices.plan import Action, Move, Probe, Select
from devices.profile import EnergySource, Interval
from devices.replay import (
    BESIDE,
    ActivityEnergies,
    ActivityEnergy,
    MeasuredStep,
    OtherActivity,
    OutsideActivity,
)
from profiler.meters.base import NEGATIVE_POWER, Void
from profiler.meters.readings import Readings, Response
from replay.energy.design import Spans
from replay.energy.regression import FEWEST_BLOCKS, GroupPower, NotSeparable, separate
from replay.reporting.timing import ScheduledActions, is_asynchronous
from replay.running.measured import ReplayRecord

MOST_BLOCKS = 40

_WIDTHS_A_BLOCK = 4.0
"""Least length of a block of steps, in lengths of what a reading remembers: readings that share
power lie in one block, all but a few."""

_NS_PER_S = 1e9


def activity_energies(
    record: ReplayRecord,
    actions: ScheduledActions,
    cost_keys: Mapping[int, str],
    source: EnergySource,
) -> ActivityEnergies:
    """Energies of the activities of a run of watched steps.

    Args:
        record: the run.
        actions: the actions of its plan.
        cost_keys: cost key of each action of the schedule, by its index.
        source: where the readings come from.

    Raises:
        NotSeparable: they cannot be known; the message says why.
    """
    readings, response = usable_readings(record)
    used = [number for number in record.quiet if record.steps[number].spans]
    if used and record.paused.issuperset(used):
        raise NotSeparable("the board paused in every step, so that its records could be read")
    used = [number for number in used if number not in record.paused]
    tiles = [
        [*_tiles(actions, record.steps[number], cost_keys, seconds_of(record, readings, number))]
        for number in used
    ]
    spans = stacked(tiles, used, response)
    found = separate(readings, response, spans)
    return ActivityEnergies(
        energy_source=source,
        steps=len(used),
        blocks=found.blocks,
        readings=found.readings,
        shift_s=found.shift_s,
        condition=found.condition,
        activities=tuple(_energy(group) for group in found.groups),
    )


def usable_readings(record: ReplayRecord) -> tuple[Readings, Response]:
    """The readings of a run and their response. Raises :class:`NotSeparable` without one."""
    readings = record.readings
    if readings is None:
        raise NotSeparable("the board has no meter")
    if isinstance(readings, Void):
        raise NotSeparable(readings.reason)
    if readings.response is None:
        raise NotSeparable(
            "the description of the meter does not say what a reading is a mean of: add"
            " integration_s to it, or bandwidth_hz for an instrument"
        )
    if (sound_w := readings.power_w[readings.sound]).size and sound_w.mean() < 0:
        raise NotSeparable(NEGATIVE_POWER)
    return readings, readings.response


class Tile(NamedTuple):
    """A span of an activity, in seconds on the time base of the readings."""

    activity: str
    start_s: float
    end_s: float
    beside: bool = False


def stacked(steps: Sequence[Sequence[Tile]], numbers: Sequence[int], response: Response) -> Spans:
    """Stack the spans of steps, in blocks of consecutive ones.

    The time between two consecutive steps is an activity, ``outside``.

    Args:
        steps: the spans of each step; of those that run alone, each begins where the one before it
            ends.
        numbers: numbers of the steps. Between steps that are not consecutive, others ran.
        response: what a reading of the meter is a mean of.

    Raises:
        NotSeparable: there are too few steps, or they are too short together.
    """
    if len(steps) < FEWEST_BLOCKS:
        raise NotSeparable(f"{len(steps)} steps were undisturbed, {FEWEST_BLOCKS} are needed")
    starts_s = [tiles[0].start_s for tiles in steps]
    ends_s = [max(tile.end_s for tile in tiles if not tile.beside) for tiles in steps]
    total_s = ends_s[-1] - starts_s[0]
    least_s = _WIDTHS_A_BLOCK * response.width_s
    if total_s < FEWEST_BLOCKS * least_s:
        raise NotSeparable(
            f"{len(steps)} steps took {total_s:.2g} s together, and a meter whose readings remember"
            f" {response.width_s * 1e3:.2g} ms needs {FEWEST_BLOCKS * least_s:.2g} s: raise --steps"
        )
    count = min(MOST_BLOCKS, len(steps), int(total_s / least_s))
    edges = np.linspace(0, len(steps), count + 1).round().astype(int)
    flat: list[Tile] = []
    blocks: list[int] = []
    for place, tiles in enumerate(steps):
        flat += tiles
        if place + 1 < len(steps) and numbers[place + 1] == numbers[place] + 1:
            outside: OutsideActivity = "outside"
            flat.append(Tile(outside, ends_s[place], starts_s[place + 1]))
        block = int(np.searchsorted(edges, place, side="right")) - 1
        blocks += [block] * (len(flat) - len(blocks))
    names = tuple(dict.fromkeys(tile.activity for tile in flat))
    indices = {name: index for index, name in enumerate(names)}
    return Spans(
        activities=names,
        activity=np.array([indices[tile.activity] for tile in flat]),
        start_s=np.array([tile.start_s for tile in flat]),
        end_s=np.array([tile.end_s for tile in flat]),
        beside=np.array([tile.beside for tile in flat]),
        block=np.array(blocks),
        blocks_s=np.array([*(starts_s[edge] for edge in edges[:-1]), ends_s[-1]]),
        steps=np.diff(edges),
    )


def seconds_of(record: ReplayRecord, readings: Readings, number: int) -> tuple[float, float]:
    """Start and end of a step, on the time base of the readings."""
    start_ns, end_ns = record.windows_ns[number]
    origin_ns = readings.origin_ns
    return (start_ns - origin_ns) / _NS_PER_S, (end_ns - origin_ns) / _NS_PER_S


def _tiles(
    actions: ScheduledActions,
    step: MeasuredStep,
    cost_keys: Mapping[int, str],
    begins_and_ends_s: tuple[float, float],
) -> Iterator[Tile]:
    """Spans of a step's activities, without a gap between those that run alone."""
    plan = actions.plan
    begin_s, end_s = begins_and_ends_s
    waits = (*actions.first_waits, *(False for _ in plan.afterwards))
    now_s = begin_s
    for number, (action, span) in enumerate(
        zip((*plan.actions, *plan.afterwards), step.spans, strict=True)
    ):
        name = "copies" if number >= len(plan.actions) else _activity(action, cost_keys)
        starts_s = begin_s + span.start_s
        if is_asynchronous(action):
            yield Tile(name + BESIDE, starts_s, starts_s + span.time_s, beside=True)
            continue
        idle: OtherActivity = "wait" if waits[number] else "between"
        if starts_s > now_s:
            yield Tile(idle, now_s, starts_s)
            now_s = starts_s
        if starts_s + span.time_s > now_s:
            yield Tile(name, now_s, starts_s + span.time_s)
            now_s = starts_s + span.time_s
    if end_s > now_s:
        rest: OtherActivity = "between"
        yield Tile(rest, now_s, end_s)


def _activity(action: Action, cost_keys: Mapping[int, str]) -> str:
    if action.schedule_index is not None and action.schedule_index in cost_keys:
        return cost_keys[action.schedule_index]
    other: OtherActivity = "between"
    match action.does:
        case Move():
            other = "move"
        case Probe():
            other = "probe"
        case Select():
            other = "rows"
    return other


def _energy(group: GroupPower) -> ActivityEnergy:
    return ActivityEnergy(
        activities=group.activities,
        time_s=group.time_s,
        power_w=positive_interval(group.power_w, group.half_w),
        energy_j=positive_interval(group.energy_j, group.half_j),
    )


def positive_interval(mean: float, half: float) -> Interval:
    """An interval of something that cannot be negative."""
    return Interval(median=max(0.0, mean), low=max(0.0, mean - half), high=max(0.0, mean + half))
