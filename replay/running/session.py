"""Run training steps on a board with execution plans in its program, under a meter."""

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
from profiler.run.preview import idle_s, options_with, tail_s
from profiler.script.writer import Settings
from replay.running.failure import (
    FailedLine,
    ReplayFailed,
    Trained,
    find_failed_line,
    may_have_trained,
)
from replay.running.measured import ReplayRecord, replay_record, require_whole
from replay.running.records import parse_replay
from replay.running.script import (
    ReplayTarget,
    Values,
    clearing_script,
    recovery_script,
    training_script,
)

Progress: TypeAlias = Callable[[str], None]

_RECOVERY_EXPECTED_S = 5.0

_BEFORE_STEPS = {"frozen", "verify", "verify_rows", "freeze", "keep", "keep_rows", "commit"}

# Lines of a replay that can fail outside a step, and what they do.
_DURING = {
    "frozen": "writing the frozen values to storage",
    "verify": "verifying the frozen values in storage",
    "verify_rows": "verifying the frozen values in storage",
    "freeze": "writing the frozen values to storage",
    "keep": "writing the initial values to storage",
    "keep_rows": "writing the initial values to storage",
    "commit": "writing the initial values to storage",
    "fetch": "reading the trained values from storage",
    "fetch_rows": "reading the trained values from storage",
}


@dataclass
class ReplaySession:
    """An open board with plans, made by :func:`~replay.running.opening.open_replay`.

    Attributes:
        description: the board's description.
        board: the open board.
        meter: the open meter; None without one.
        plans: the plans in the board's program, by number.
        progress: called with one line for each phase.
    """

    description: DeviceDescription
    board: Board
    meter: Meter | None
    plans: Sequence[ExecutionPlan]
    progress: Progress
    _plans_to_clear: set[int] = field(default_factory=set)

    @property
    def build(self) -> Build:
        return self.board.build

    @property
    def facts(self) -> BoardFacts:
        return self.board.facts

    @property
    def energy_source(self) -> EnergySource | None:
        """Source of energies; "emulated" on an emulated board also without a meter."""
        if self.description.emulator is not None:
            return "emulated"
        return None if self.meter is None else self.meter.energy_source

    @property
    def meter_record(self) -> MeterRecord | None:
        """The meter's record; complete only when the last step is over."""
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
        gradients: bool = False,
        rates: Sequence[float] | None = None,
        steps_before: int = 0,
        wait: Wait = lambda _elapsed_s: None,
        keep: Callable[[Trained], None] = lambda _left: None,
    ) -> ReplayRecord:
        """Run training steps. Ctrl-C leaves nothing running on the board.

        Args:
            plan: number of the plan.
            initial: initial values of the tensors that the plan keeps.
            batches: the plan's inputs, by tensor; used in order, from the first again after the
                last.
            steps: number of steps.
            watched: take checksums and spans of actions in every step, which takes extra time.
            expected_step_s: predicted time of a step, for time limits.
            gradients: return the gradients of the last step, which takes extra time; a Linux board
                can.
            rates: learning rates of the steps, of which the last holds for all later ones; None for
                that of the plan.
            steps_before: steps of earlier runs, after which the seeds of dropout go on.
            wait: called while the board works, with the seconds elapsed.
            keep: called with the values after the last step as soon as they are on this computer,
                and after Ctrl-C with those that the last complete step of a paging plan has left in
                the board's storage, which is cleared when the session ends.

        Raises:
            ReplayFailed: a step failed.
            ValueError: values are missing or of another size.
            JoulewrightError: anything else ended the run.
        """
        target = self._target(plan)
        script = training_script(
            target,
            initial,
            batches,
            steps=steps,
            watched=watched,
            gradients=gradients,
            rates=rates,
            steps_before=steps_before,
        )
        cool_down(self.description, self.board, self.progress)
        if target.plan.pages:
            self._plans_to_clear.add(plan)
        observed = ObservedRun(self.board, self.meter, self.description)
        outcome = observed.run(
            script.text,
            expected_s=steps * expected_step_s + 2 * target.settings.idle_s,
            wait=wait,
            data=script.data,
        )
        values = script.values(outcome.dumped)
        has_ended = len(values) == script.count("kept")
        if has_ended and values:  # the meter may still fail, or the board be lost
            keep(Trained(steps, values))
        records = parse_replay(outcome.results)
        if isinstance(outcome.cut, RebootError):
            unmetered = replay_record(
                target.plan,
                script,
                records,
                outcome.dumped,
                None,
                throttled=None,
                is_measured=False,
            )
            is_trained = has_ended and bool(values)
            raise self._rebooted(
                plan, unmetered, outcome.cut, is_trained=is_trained
            ) from outcome.cut
        try:
            trace = observed.trace(records.results, outcome)
        except BaseException as error:
            if error is not outcome.cut:
                raise
            trace = None  # the meter has failed, too
        record = replay_record(
            target.plan,
            script,
            records,
            outcome.dumped,
            trace,
            throttled=observed.throttled,
            is_measured=self.meter is not None and is_instrument(self.meter.record),
            hindrance=outcome.hindrance,
        )
        if isinstance(outcome.cut, BoardCommandFailed):
            failed = find_failed_line(target.plan, script.text, str(outcome.cut))
            if failed is not None:
                raise self._failure(plan, failed, record) from outcome.cut
            # What was measured may be lost, or too little to tell.
            has_trained = bool(record.steps) or may_have_trained(str(outcome.cut))
            if target.plan.pages and has_trained:
                remark, recovered = self._what_is_left(plan, record)
                raise ReplayFailed(f"{outcome.cut}. {remark}", record, recovered) from outcome.cut
        if isinstance(outcome.cut, BoardUnreachable):
            self._plans_to_clear.clear()  # out of reach
        if isinstance(outcome.cut, KeyboardInterrupt) and target.plan.pages and not has_ended:
            self.progress("reading back the values of the last complete step")
            _, recovered = self._what_is_left(plan, record)
            if recovered is not None and recovered.step > 0:
                keep(recovered)
        if outcome.cut is not None:
            raise outcome.cut
        require_whole(self.board.name, record, script, watched=watched)
        if not target.plan.is_frozen:
            self._plans_to_clear.discard(plan)
        return record

    def last_complete_step(self, plan: int) -> tuple[int, dict[str, NDArray[np.float32]]]:
        """Read the last complete step of a paging plan from the board's storage, after a failure.

        Returns:
            The step's number (0: the initial values), and its values, flat, by tensor.

        Raises:
            JoulewrightError: the storage could not be read.
        """
        script = recovery_script(self._target(plan, metered=False))
        self._plans_to_clear.add(plan)
        outcome = self.board.run_plan(
            script.text, expected_s=_RECOVERY_EXPECTED_S, wait=lambda _elapsed_s: None
        )
        if outcome.cut is not None:
            raise outcome.cut
        step = parse_replay(outcome.results).recovered_step
        values = script.values(outcome.dumped)
        if step is None or len(values) < script.count("kept"):
            raise MeasurementInvalid(
                f"{self.board.name}: the harness left incomplete records of the recovered values"
            )
        return step, values

    def measured(self, record: ReplayRecord, watched: ReplayRecord | None = None) -> MeasuredReplay:
        """Collect the undisturbed steps for a report.

        Args:
            record: the run whose times and energies count.
            watched: another run, for the times of single actions.

        Raises:
            ReplayFailed: a run has no undisturbed step, or was interrupted. The error has the
                values that ``record`` has trained.
        """
        sound, counters = record.sound_steps, record.counters
        for run in (record,) if watched is None else (record, watched):
            if not run.sound_steps or run.counters is None:
                reason = next(iter(run.disturbed.values()), "the run was interrupted")
                raise ReplayFailed(
                    f"{self.board.name}: no step of {run.plan.name} was measured undisturbed:"
                    f" {reason}",
                    record,
                    Trained(len(record.steps), record.values) if record.values else None,
                )
        assert counters is not None, "a run without them was interrupted"
        return MeasuredReplay(
            board=self.facts.identity,
            build=self.build,
            energy_source=self.energy_source,
            meter=self.meter_record,
            steps=sound + (() if watched is None else watched.sound_steps),
            counters=counters,
            memory=record.memory,
            power=record.power,
        )

    def tidy(self) -> None:
        """Clear what runs have left in the board's storage: frozen values, interrupted runs.

        A board that cannot be reached keeps it until its next replay.
        """
        for plan in self._plans_to_clear:
            script = clearing_script(self._target(plan, metered=False))
            if script is not None:
                with suppress(JoulewrightError):
                    self.board.run_plan(script, expected_s=0.0, wait=lambda _elapsed_s: None)
        self._plans_to_clear.clear()

    def _failure(self, plan: int, failed: FailedLine, record: ReplayRecord) -> ReplayFailed:
        name, done = self.plans[plan].name, len(record.steps)
        during = _DURING.get(failed.word, f"step {done + 1}")
        if self.plans[plan].pages and failed.word in _BEFORE_STEPS:
            remark, recovered = "No step had been trained", None
        else:
            remark, recovered = self._what_is_left(plan, record)
        return ReplayFailed(
            f"{failed.sentence}. {remark}",
            record,
            recovered,
            operation=f"{self.board.name}: {name}: {during}",
        )

    def _rebooted(
        self, plan: int, record: ReplayRecord, reboot: RebootError, *, is_trained: bool
    ) -> ReplayFailed:
        """Error for a board that rebooted during a run, or before it.

        ``is_trained`` says that the values after the last step were received.
        """
        try:
            self.board.prepare(self.progress)
        except JoulewrightError as error:
            remark, recovered = _not_read_back(error), None
        else:
            remark, recovered = self._what_is_left(plan, record)
        if is_trained:
            remark = "The values after the last step were received"
        return ReplayFailed(f"{reboot}. {record.plan.name}: {remark}", record, recovered)

    def _what_is_left(self, plan: int, record: ReplayRecord) -> tuple[str, Trained | None]:
        """Values of the last complete step, if they can be read, and a sentence about them.

        A microcontroller's storage still holds a step of an earlier run until this one has written
        its initial values. It is told from the steps of this run by its number.
        """
        if not self.plans[plan].pages:
            return "The trained values were only in RAM and are lost", None
        try:
            recovered = Trained(*self.last_complete_step(plan))
        except JoulewrightError as error:
            return _not_read_back(error), None
        done = len(record.steps)
        own = (done, done + 1) if done else (0,)
        if self.description.firmware is not None and recovered.step not in own:
            return "The storage holds no step of this run", None
        remark = (
            f"The parameters after step {recovered.step} are intact and were read from the storage"
        )
        return remark, recovered

    def _target(self, index: int, *, metered: bool = True) -> ReplayTarget:
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
            options = options_with(meter.record, self.description, options)
            settings = replace(
                settings,
                idle_s=idle_s(self.description, options),
                tail_s=tail_s(self.description, options),
                sampler=meter.sampler,
                marker=meter.marker,
                sync_line=sync_line(self.description),
            )
        return ReplayTarget(
            index=index,
            plan=plan,
            storage=self.description.storage,
            settings=settings,
            is_firmware=self.description.firmware is not None,
        )


def _not_read_back(error: JoulewrightError) -> str:
    return f"The values of the last complete step could not be read: {error}"
