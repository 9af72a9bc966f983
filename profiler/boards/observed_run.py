"""One run of the harness with a meter: readings before and after it, and the power meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from devices.description import DeviceDescription
from devices.errors import JoulewrightError
from devices.meters import GpioSync, SteadySync
from profiler.boards.base import Board, Outcome, Wait
from profiler.boards.plan_data import NO_DATA, PlanData
from profiler.meters.base import BlockRecord, ClockReading, Meter, PowerTrace
from profiler.script.records import Results, parse_samples
from profiler.script.writer import MARKER_IDS, SyncLine
from profiler.transports.deadline import Deadline

_COOLING_POLL_S = 2.0


class ObservedRun:
    """One run of the harness with a meter, which begins to record when this object is made.

    Args:
        board: A prepared board.
        meter: The meter; None for none.
        description: Description of the board, for the meter's synchronisation.
    """

    def __init__(self, board: Board, meter: Meter | None, description: DeviceDescription) -> None:
        self._board = board
        self._meter = meter
        # Read only where nothing else ties the meter to the board.
        sync = getattr(description.meter, "sync", None)
        self._asks_clock = isinstance(sync, SteadySync)
        self._throttled_before = board.throttled()
        self._clock = self._read_clock()
        self.throttled: tuple[int, int] | None = None
        """Raspberry Pi's throttling bits before and after the run, where both are known."""
        if meter is not None:
            meter.begin()

    def run(self, plan: str, *, expected_s: float, wait: Wait, data: PlanData = NO_DATA) -> Outcome:
        """Run a plan as :meth:`~profiler.boards.base.Board.run_plan` does.

        What ends the command after the plan has ended costs only the readings taken then.
        """
        outcome = self._board.run_plan(plan, expected_s=expected_s, wait=wait, data=data)
        if outcome.cut is not None:
            return outcome
        try:
            throttled_after = self._board.throttled()
            self._clock += self._read_clock()
        except (JoulewrightError, KeyboardInterrupt) as cut:
            return replace(outcome, cut=cut)
        if self._throttled_before is not None and throttled_after is not None:
            self.throttled = self._throttled_before, throttled_after
        return outcome

    def trace(self, results: Results, outcome: Outcome) -> PowerTrace | None:
        """Power during the run; None without a meter.

        Args:
            results: Parsed records of the run.
            outcome: What the run left.

        Raises:
            JoulewrightError: The meter failed. For a run that was cut, its cut is raised instead.
        """
        meter = self._meter
        if meter is None:
            return None
        sources = 0 if meter.sampler is None else len(meter.sampler.sources)
        block = BlockRecord(
            windows_ns=tuple((record.start_ns, record.end_ns) for record in results.windows),
            markers_ns=tuple(
                record.start_ns for record in results.windows if record.id in MARKER_IDS
            ),
            samples=parse_samples(outcome.samples, sources),
            clock=self._clock,
        )
        try:
            return meter.finish(block)
        except JoulewrightError as error:
            if outcome.cut is None:
                raise
            raise outcome.cut from error

    def _read_clock(self) -> tuple[ClockReading, ...]:
        return (self._board.clock(),) if self._asks_clock else ()


def cool_down(description: DeviceDescription, board: Board, report: Callable[[str], None]) -> float:
    """Wait until the board is as cool as its description asks, or the limit is reached.

    Reaching the limit is no error: the windows record whether the board was slowed down, and the
    profile records its temperature.

    Returns:
        Seconds waited.
    """
    conditions = description.conditions
    cooldown = None if conditions is None else conditions.cooldown
    if cooldown is None:
        return 0.0
    deadline = Deadline(cooldown.limit_s)
    while not deadline.expired:
        temperature_c = board.temperature_c()
        if temperature_c is None or temperature_c <= cooldown.below_c:
            break
        report(f"cooling down: {temperature_c:.0f} °C, until {cooldown.below_c:.0f} °C")
        time.sleep(min(_COOLING_POLL_S, deadline.remaining_s))
    return cooldown.limit_s - deadline.remaining_s


def sync_line(description: DeviceDescription) -> SyncLine | None:
    """GPIO line that a Linux board toggles for synchronisation; None for firmware, which knows its
    own."""
    sync = getattr(description.meter, "sync", None)
    if not isinstance(sync, GpioSync) or sync.chip is None or sync.line is None:
        return None
    return SyncLine(str(sync.chip), sync.line)
