"""How long a window must be for a meter to tell its energy: known before anything is reached."""

from __future__ import annotations

from devices import meters as described
from profiler.meters.base import MIN_SAMPLES

# Some samples more than it must be: a meter's rate is not exact.
_SAMPLES_PER_WINDOW = 1.3 * MIN_SAMPLES

# The ends of a window are known to half a sample's period at best, and may be wrong by one per cent
# of it (on_host.MOST_UNCERTAIN_SHARE) in all.
_PERIODS_BETWEEN_EDGES = 120.0

# A steady window's guards may take so much of it.
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
