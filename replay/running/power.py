"""Power samples of a few steps of a replay, for a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from devices.replay import PowerSamples
from profiler.meters.base import PowerTrace
from profiler.meters.on_host import RecordedPower
from profiler.meters.trace import EnergyCounter, SampledPower

_FEWEST_SAMPLES = 40
_FEWEST_STEPS, _MOST_STEPS = 2, 12
_MOST_POINTS = 4000
_MARGIN = 0.05

_NS_PER_S = 1e9


def power_samples(
    trace: PowerTrace | None, steps_ns: Sequence[tuple[int, int]]
) -> PowerSamples | None:
    """Power samples of two steps in the middle of a run; of more where two have few samples.

    Samples of fast instruments are averaged over equal numbers of samples.

    Args:
        trace: the meter's trace.
        steps_ns: start and end of each step, on the board's clock.

    Returns:
        The samples; None where no power was sampled, as with a nominal power.
    """
    if trace is None or not steps_ns:
        return None
    found = None
    for count in range(_FEWEST_STEPS, _MOST_STEPS + 1):
        first = max(0, (len(steps_ns) - count) // 2)
        shown = steps_ns[first : first + count]
        margin_ns = int(_MARGIN * (shown[-1][1] - shown[0][0]))
        samples = _samples(trace, shown[0][0], shown[-1][1], margin_ns)
        if samples is None:
            return None
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


def _samples(trace: PowerTrace, begin_ns: int, end_ns: int, margin_ns: int) -> _Samples | None:
    """Times in seconds after ``begin_ns``, and power in watts."""
    low_ns, high_ns = begin_ns - margin_ns, end_ns + margin_ns
    match trace:
        case SampledPower():
            inside = (trace.times_ns >= low_ns) & (trace.times_ns <= high_ns)
            return (trace.times_ns[inside] - begin_ns) / _NS_PER_S, trace.power_w[inside]
        case EnergyCounter():
            return _power_between_readings(trace, low_ns, high_ns, begin_ns)
        case RecordedPower():
            capture = trace.capture
            part = capture.around(trace.clock.at(low_ns), trace.clock.at(high_ns))
            times_s = capture.time_s(np.arange(part.start, part.stop))
            power_w = np.asarray(capture.power_w[part], dtype=np.float64)
            arrived = ~np.isnan(power_w)
            return (times_s - trace.clock.at(begin_ns))[arrived], power_w[arrived]
    return None


def _power_between_readings(
    trace: EnergyCounter, low_ns: int, high_ns: int, begin_ns: int
) -> _Samples:
    """Mean power between two readings, placed at the midpoint of their times."""
    inside = (trace.times_ns >= low_ns) & (trace.times_ns <= high_ns)
    times_s = (trace.times_ns[inside] - begin_ns) / _NS_PER_S
    rises_j = np.diff(trace.counter_j[inside])
    rises_j = np.where(rises_j < 0, rises_j + trace.range_j, rises_j)
    return (times_s[1:] + times_s[:-1]) / 2, rises_j / np.diff(times_s)


def _averaged(times_s: NDArray[np.float64], power_w: NDArray[np.float64]) -> _Samples:
    each = -(-len(times_s) // _MOST_POINTS)
    whole = len(times_s) // each * each
    return (
        times_s[:whole].reshape(-1, each).mean(axis=1),
        power_w[:whole].reshape(-1, each).mean(axis=1),
    )
