"""Training steps on a board that has execution plans in its program, under a meter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from devices.description import DeviceDescription
from devices.errors import (
    BoardCommandFailed,
    BoardUnreachable,
    JoulewrightError,
    MeasurementInvalid,
)
from devices.plan import ExecutionPlan
from devices.profile import Build, EnergySource, MeterRecord
from devices.replay import MeasuredReplay
from profiler.boards.base import Board, BoardFacts, RebootError, Wait
from profiler.boards.observed_run import ObservedRun, cool_down, sync_line
from profiler.meters.base import Meter
from profiler.meters.nominal import is_instrument
from profiler.run.options import ProfileOptions
from profiler.run.preview import idle_s, tail_s
from profiler.script.writer import Settings
from replay.running.failure import Blame, Recovered, ReplayFailed, blamed
from replay.running.measured import ReplayRecord, replay_record, require_whole
from replay.running.records import parse_replay
from replay.running.script import (
    Replayed,
    Script,
    Values,
    forgetting,
    recovering,
    training,
)

Progress: TypeAlias = Callable[[str], None]

_RECOVERY_EXPECTED_S = 5.0

# Which lines of a replay can go wrong beside a step.
_DURING = {
    "keep": "bringing the initial values to storage",
    "commit": "bringing the initial values to storage",
    "fetch": "reading what was trained from storage",
}


@dataclass
class ReplaySession:
    """``plans`` are those of the program on the board, by number. Opened by
    :func:`~replay.running.opening.open_replay`."""

    description: DeviceDescription
    board: Board
    meter: Meter | None
    plans: Sequence[ExecutionPlan]
    progress: Progress
    _left_behind: set[int] = field(default_factory=set)

    @property
    def build(self) -> Build:
        return self.board.build

    @property
    def facts(self) -> BoardFacts:
        return self.board.facts

    @property
    def energy_source(self) -> EnergySource | None:
        """An emulated board's seconds are emulated too, also where nobody counts joules."""
        if self.description.emulator is not None:
            return "emulated"
        return None if self.meter is None else self.meter.energy_source

    @property
    def meter_record(self) -> MeterRecord | None:
        """To be asked when the last step is over."""
        return None if self.meter is None else self.meter.record

    def run(
        self,
        plan: int,
        initial: Values,
        batches: Sequence[Values],
        *,
        steps: int,
        watched: bool,
        expected_step_s: float,
        wait: Wait = lambda _elapsed_s: None,
    ) -> ReplayRecord:
        """Train so many steps from ``initial``, which is what the plan keeps, by tensor, on the
        ``batches``, each the plan's inputs by tensor, again and again. ``watched``: every step with
        its checksums, and with spans of its actions, whose notes take time of their own.

        Raises :class:`~replay.running.failure.ReplayFailed` for a step that went wrong,
        :class:`ValueError` for values that are missing or of another size, and
        :class:`~devices.errors.JoulewrightError` for whatever else ends a run on a board; Ctrl-C
        leaves nothing running.
        """
        replayed = self._replayed(plan)
        script = training(replayed, initial, batches, steps=steps, watched=watched)
        cool_down(self.description, self.board, self.progress)
        if replayed.plan.pages:
            self._left_behind.add(plan)
        observed = ObservedRun(self.board, self.meter, self.description)
        try:
            outcome = observed.run(
                script.text,
                expected_s=steps * expected_step_s + 2 * replayed.settings.idle_s,
                wait=wait,
                data=script.data,
            )
        except RebootError as reboot:
            raise self._rebooted(replayed.plan, plan, script, reboot) from reboot
        records = parse_replay(outcome.results)
        record = replay_record(
            replayed.plan,
            script,
            records,
            outcome.dumped,
            observed.trace(records.results, outcome.samples),
            throttled=observed.throttled,
            is_measured=self.meter is not None and is_instrument(self.meter.record),
        )
        if isinstance(outcome.cut, BoardCommandFailed):
            blame = blamed(replayed.plan, script.text, str(outcome.cut))
            if blame is not None:
                raise self._failure(plan, blame, record) from outcome.cut
        if isinstance(outcome.cut, BoardUnreachable):
            self._left_behind.clear()  # out of reach
        if outcome.cut is not None:
            raise outcome.cut
        require_whole(self.board.name, record, script, watched=watched)
        self._left_behind.discard(plan)
        return record

    def last_complete_step(self, plan: int) -> tuple[int, dict[str, NDArray[np.float32]]]:
        """After a failure: the number of the last step of a plan that pages which is complete in
        the board's storage (0: the initial values), and what it has left, by tensor."""
        script = recovering(self._replayed(plan, metered=False))
        self._left_behind.add(plan)
        outcome = self.board.run_plan(
            script.text, expected_s=_RECOVERY_EXPECTED_S, wait=lambda _elapsed_s: None
        )
        if outcome.cut is not None:
            raise outcome.cut
        step = parse_replay(outcome.results).recovered_step
        values = script.values(outcome.dumped)
        if step is None or len(values) < len(script.dumped):
            raise MeasurementInvalid(
                f"{self.board.name}: the harness left incomplete records of what it recovered"
            )
        return step, values

    def measured(self, record: ReplayRecord, watched: ReplayRecord | None = None) -> MeasuredReplay:
        """For a report, without the steps that were disturbed; ``watched`` is a run besides, which
        contributes what it saw of single actions. Raises
        :class:`~devices.errors.MeasurementInvalid` if ``record`` has no other steps."""
        sound = record.sound_steps
        if not sound or record.counters is None:
            reason = next(iter(record.disturbed.values()), "it was cut off")
            raise MeasurementInvalid(
                f"{self.board.name}: no step of {record.plan.name} was measured undisturbed:"
                f" {reason}"
            )
        return MeasuredReplay(
            board=self.facts.identity,
            build=self.build,
            energy_source=self.energy_source,
            meter=self.meter_record,
            steps=sound + (() if watched is None else watched.sound_steps),
            counters=record.counters,
            memory=record.memory,
            power=record.power,
        )

    def tidy(self) -> None:
        """What a run that was cut off has left in the board's storage goes; a board that is gone
        keeps it until the next replay there."""
        for plan in self._left_behind:
            script = forgetting(self._replayed(plan, metered=False))
            if script is not None:
                with suppress(JoulewrightError):
                    self.board.run_plan(script, expected_s=0.0, wait=lambda _elapsed_s: None)
        self._left_behind.clear()

    def _failure(self, plan: int, blame: Blame, record: ReplayRecord) -> ReplayFailed:
        name, done = self.plans[plan].name, len(record.steps)
        during = _DURING.get(blame.word, f"step {done + 1}")
        if self.plans[plan].pages and blame.word in {"keep", "commit"}:
            remark, recovered = "Nothing was trained yet", None
        else:
            remark, recovered = self._what_is_left(plan)
        return ReplayFailed(
            f"{blame.sentence}. {remark}",
            record,
            recovered,
            operation=f"{self.board.name}: {name}: {during}",
        )

    def _rebooted(
        self, plan: ExecutionPlan, number: int, script: Script, reboot: RebootError
    ) -> ReplayFailed:
        """What the board had said before is lost with it."""
        nothing = replay_record(
            plan, script, parse_replay(""), b"", None, throttled=None, is_measured=False
        )
        try:
            self.board.prepare(self.progress)
        except JoulewrightError as error:
            remark, recovered = _not_read_back(error), None
        else:
            remark, recovered = self._what_is_left(number)
        return ReplayFailed(f"{reboot}. {plan.name}: {remark}", nothing, recovered)

    def _what_is_left(self, plan: int) -> tuple[str, Recovered | None]:
        """Of a run that ended in the middle, in words and values."""
        if not self.plans[plan].pages:
            return "What it trained was in RAM only, and is lost", None
        try:
            recovered = Recovered(*self.last_complete_step(plan))
        except JoulewrightError as error:
            return _not_read_back(error), None
        remark = (
            f"The parameters that step {recovered.step} has left are intact, and have been read"
            " back from the storage"
        )
        return remark, recovered

    def _replayed(self, index: int, *, metered: bool = True) -> Replayed:
        plan, meter, options = self.plans[index], self.meter, ProfileOptions()
        settings = Settings(
            min_window_s=0.0,
            idle_s=0.0,
            tail_s=0.0,
            first_executions={},
            sampler=None,
            storage_place=self.board.storage_place if plan.pages else None,
        )
        if metered and meter is not None and is_instrument(meter.record):
            settings = replace(
                settings,
                idle_s=idle_s(self.description, options),
                tail_s=tail_s(self.description, options),
                sampler=meter.sampler,
                marker=meter.marker,
                sync_line=sync_line(self.description),
            )
        return Replayed(
            index=index,
            plan=plan,
            storage=self.description.storage,
            settings=settings,
            is_firmware=self.description.firmware is not None,
        )


def _not_read_back(error: JoulewrightError) -> str:
    return f"What the last complete step has left could not be read back: {error}"
