"""Made-up trials of windows, as a board would record them."""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.meters.base import PowerTrace, Reading
from profiler.run.evaluate import evaluate
from profiler.run.trials import Trial
from profiler.script.records import WindowRecord
from profiler.script.windows import OpWindow, Window
from tests.support.boards.measuring import SMALL

WARM = OpWindow(SMALL, "warm")


@dataclass
class SteadyMeter:
    """A trace that gives the same reading for every window and records which were asked for."""

    reading: Reading = 1.0
    asked: list[tuple[int, int]] = field(default_factory=list)
    response: None = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        return self.energy_j(start_ns, end_ns)

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        self.asked.append((start_ns, end_ns))
        return self.reading


def record(**changes: int) -> WindowRecord:
    """A record of a window, with changed fields."""
    fields = {
        "id": 0,
        "executions": 10,
        "start_ns": 1_000_000,
        "end_ns": 2_000_000,
        "tail_end_ns": 2_000_000,
        "running_ns": 1_000_000,
        "frequency_before_khz": 0,
        "frequency_after_khz": 0,
        "temperature_mc": 0,
        "tries": 1,
    }
    return WindowRecord(**fields | changes)


def trial(
    window: Window = WARM,
    meter: PowerTrace | None = None,
    *,
    is_measured: bool = True,
    throttled: tuple[int, int] | None = None,
    **changes: int,
) -> Trial:
    """A trial of one window, evaluated from its record."""
    (found,) = evaluate(
        [record(**changes)],
        [window],
        meter,
        is_measured=is_measured,
        start=None,
        throttled=throttled,
    )
    return found
