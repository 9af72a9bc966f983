"""Power samples of a few steps of a replay, for a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from devices.replay import PowerSamples
from profiler.meters.readings import Readings

_FEWEST_SAMPLES = 40
_FEWEST_STEPS, _MOST_STEPS = 2, 12
_MOST_POINTS = 4000
_MARGIN = 0.05

_NS_PER_S = 1e9


def power_samples(
    readings: Readings | None, steps_ns: Sequence[tuple[int, int]]
) -> PowerSamples | None:
    """Power samples of two steps in the middle of a run; of more where two have few samples.

    Samples of fast instruments are averaged over equal numbers of samples.

    Args:
        readings: the meter's readings; None without any, as with a nominal power.
        steps_ns: start and end of each step, on the board's clock.

    Returns:
        The samples; None where no power was sampled.
    """
    if readings is None or not steps_ns:
        return None
    found = None
    for count in range(_FEWEST_STEPS, _MOST_STEPS + 1):
        first = max(0, (len(steps_ns) - count) // 2)
        shown = steps_ns[first : first + count]
        margin_ns = int(_MARGIN * (shown[-1][1] - shown[0][0]))
        samples = _samples(readings, shown[0][0], shown[-1][1], margin_ns)
        found = shown, samples
        if len(samples[0]) >= _FEWEST_SAMPLES:
            break
    assert found is not None
    shown, (times_s, power_w) = found
    if len(times_s) < 2:
        return None
    times_s, power_w = _averaged(times_s, power_w)
    return PowerSamples(
        time_s=tuple(times_s.tolist()),
        power_w=tuple(power_w.tolist()),
        step_starts_s=tuple((start - shown[0][0]) / _NS_PER_S for start, _ in shown),
        step_times_s=tuple((end - start) / _NS_PER_S for start, end in shown),
    )


_Samples = tuple[NDArray[np.float64], NDArray[np.float64]]


def _samples(readings: Readings, begin_ns: int, end_ns: int, margin_ns: int) -> _Samples:
    """Times in seconds after ``begin_ns``, and power in watts."""
    begin_s = (begin_ns - readings.origin_ns) / _NS_PER_S
    length_s, margin_s = (end_ns - begin_ns) / _NS_PER_S, margin_ns / _NS_PER_S
    times_s = readings.times_s - begin_s
    shown = (times_s >= -margin_s) & (times_s <= length_s + margin_s) & ~np.isnan(readings.power_w)
    return times_s[shown], readings.power_w[shown]


def _averaged(times_s: NDArray[np.float64], power_w: NDArray[np.float64]) -> _Samples:
    each = -(-len(times_s) // _MOST_POINTS)
    whole = len(times_s) // each * each
    return (
        times_s[:whole].reshape(-1, each).mean(axis=1),
        power_w[:whole].reshape(-1, each).mean(axis=1),
    )
