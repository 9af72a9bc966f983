"""Least length of a window with which a meter can measure its energy."""

from __future__ import annotations

from devices import meters as described
from profiler.meters.base import MIN_SAMPLES

# With a margin, since a meter's rate is not exact.
_SAMPLES_PER_WINDOW = 1.3 * MIN_SAMPLES

# The ends of a window are known to half a sample period at best, and their error may be at most one
# per cent of its length (base.MOST_UNCERTAIN_SHARE).
_PERIODS_BETWEEN_EDGES = 120.0

# Largest share of a window that the guards of steady synchronisation may take.
_MOST_GUARD_SHARE = 0.5


def least_window_s(meter: described.Meter, remembered_s: float | None = None) -> float:
    """Least length of a window, of which a part as long as a reading remembers is left out; at
    least as much remains.

    Args:
        meter: The meter.
        remembered_s: Age of the oldest power in a reading, as the open meter states it; None where
            that is not known. What the description says is then used.
    """
    if isinstance(meter, described.NvmlMeter):
        return max(_SAMPLES_PER_WINDOW / meter.rate_hz, 2 * meter.average_s)
    if remembered_s is None:
        remembered_s = 2 * (getattr(meter, "integration_s", None) or 0.0)
    return _sampled_s(meter) + 2 * remembered_s


def _sampled_s(meter: described.Meter) -> float:
    """Least length in which enough samples lie, and whose ends are known well enough."""
    least_s = _SAMPLES_PER_WINDOW / meter.rate_hz
    sync = getattr(meter, "sync", None)
    if isinstance(sync, described.SteadySync):
        return max(least_s / (1 - _MOST_GUARD_SHARE), 2 * sync.guard_s / _MOST_GUARD_SHARE)
    if sync is not None:
        return _PERIODS_BETWEEN_EDGES / meter.rate_hz
    return least_s
