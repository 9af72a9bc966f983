"""Least length of a window with which a meter can measure its energy."""

from __future__ import annotations

from devices import meters as described
from profiler.meters.base import MIN_SAMPLES

# With a margin, since a meter's rate is not exact.
_SAMPLES_PER_WINDOW = 1.3 * MIN_SAMPLES

# The ends of a window are known to half a sample period at best, and their error may be at most one
# per cent of its length (on_host.MOST_UNCERTAIN_SHARE).
_PERIODS_BETWEEN_EDGES = 120.0

# Largest share of a window that the guards of steady synchronisation may take.
_MOST_GUARD_SHARE = 0.5


def least_window_s(meter: described.Meter) -> float:
    least_s = _SAMPLES_PER_WINDOW / meter.rate_hz
    if isinstance(meter, described.NvmlMeter):
        return max(least_s, 2 * meter.average_s)
    sync = getattr(meter, "sync", None)
    if isinstance(sync, described.SteadySync):
        return max(least_s / (1 - _MOST_GUARD_SHARE), 2 * sync.guard_s / _MOST_GUARD_SHARE)
    if sync is not None:
        return _PERIODS_BETWEEN_EDGES / meter.rate_hz
    return least_s
