"""Energy of steps that are too short for the meter each, from many of them together."""

from __future__ import annotations

from devices.replay import StepsTogether
from replay.energy.activities import (
    Tile,
    positive_interval,
    seconds_of,
    stacked,
    usable_readings,
)
from replay.energy.regression import NotSeparable, separate
from replay.running.measured import ReplayRecord

_STEP = "step"

# Largest share of time between steps whose power need not be known.
_MOST_OUTSIDE = 0.1


def steps_together(record: ReplayRecord) -> StepsTogether:
    """Mean energy of a step, from readings in which steps and the time between them mix.

    Where the two cannot be told apart, and a small share of the time is between steps, the power
    meanwhile is taken to lie between none and twice the mean, and the interval is widened by that.
    Time in which other programs had the processor is left out in proportion, as it is of a single
    step's energy.

    Args:
        record: a run.

    Raises:
        NotSeparable: it cannot be known; the message says why.
    """
    readings, response = usable_readings(record)
    numbers = record.quiet
    steps = [[Tile(_STEP, *seconds_of(record, readings, number))] for number in numbers]
    found = separate(readings, response, stacked(steps, numbers, response))
    elapsed_s = sum(record.elapsed_s[number] for number in numbers)
    running = min(1.0, sum(record.steps[number].time_s for number in numbers) / elapsed_s)
    for group in found.groups:
        if group.activities == (_STEP,):
            return StepsTogether(
                positive_interval(running * group.energy_j, running * group.half_j), len(steps)
            )
    (both,) = found.groups
    step_s = sum(tile.end_s - tile.start_s for (tile,) in steps) / len(steps)
    outside = 1 - step_s / both.time_s
    if outside > _MOST_OUTSIDE:
        raise NotSeparable(
            "what the board draws in a step cannot be told from what it draws between two steps,"
            f" which is {outside:.0%} of the time"
        )
    energy_j = running * step_s * both.power_w
    half_j = running * step_s * both.half_w + energy_j * outside / (1 - outside)
    return StepsTogether(positive_interval(energy_j, half_j), len(steps))
