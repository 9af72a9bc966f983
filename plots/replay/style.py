"""Parts shared by all pictures of a replay: groups of actions, their colours, and formats."""

from __future__ import annotations

from collections.abc import Mapping

from devices.profile import Interval
from devices.replay import ReplayedAction, ReplayReport
from plots.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    energy_words,
    engineering,
)

# Colours in the order of the legend.
COLORS: Mapping[str, str] = {
    "forward": BLUE,
    "backward": SKY,
    "update": PURPLE,
    "recompute": ORANGE,
    "page out": VERMILION,
    "page in": GREEN,
}

# Sums over all groups have colours that no group has.
PREDICTED, MEASURED = "#C4C4C4", INK


def group(action: ReplayedAction) -> str:
    """Group of an action, a key of :data:`COLORS`."""
    if action.what == "compute":
        return action.phase or "forward"
    return action.what.replace("_", " ")


def with_interval(interval: Interval, unit: str) -> str:
    """Format a median with its interval, such as ``12.3 ms (12.1 ms to 12.6 ms)``."""
    median = engineering(interval.median, unit)
    if interval.is_exact:
        return median
    ends = engineering(interval.low, unit), engineering(interval.high, unit)
    return f"{median} ({ends[0]} to {ends[1]})"


def signed_percent(fraction: float) -> str:
    """Format a fraction as percentage, such as ``+4.2 %``; zero has no sign."""
    text = f"{abs(100 * fraction):.1f} %"
    return text if text == "0.0 %" else f"{'+' if fraction > 0 else '−'}{text}"


def whole_percent(value: float) -> str:
    """Format a percentage without decimals, such as ``+4 %``; zero has no sign."""
    return "0 %" if abs(value) < 0.5 else f"{'+' if value > 0 else '−'}{abs(value):.0f} %"


def step_line(report: ReplayReport) -> str:
    """Line with predicted and measured time of a step, and the difference."""
    times = report.time_s
    difference = "" if times.difference is None else f": {signed_percent(times.difference)}"
    verdict = "outside the 95 % intervals" if times.beyond else "within the 95 % intervals"
    return (
        f"step: predicted {with_interval(times.predicted, 's')},"
        f" {report.board_word} {with_interval(times.measured, 's')}{difference}, {verdict}"
    )


def energy_source_line(report: ReplayReport) -> str:
    """Line with the sources of the predicted and the measured energy."""
    predicted = energy_words(report.predicted_energy_source)
    source = report.measured_energy_source
    measured = energy_words(source)
    if report.energy_j is None and source != "emulated":
        measured = "no energy"
    if predicted == measured:
        return f"profile and replay: {measured}"
    return f"profile: {predicted}; replay: {measured}"
