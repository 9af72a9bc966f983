"""Time and energy of each step, from the records of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from devices.errors import MeasurementInvalid
from devices.plan import ExecutionPlan
from devices.replay import Counters, MeasuredStep, PowerSamples, ProcessMemory
from profiler.meters.base import MOST_UNCERTAIN_SHARE, PowerTrace, Void
from profiler.meters.readings import Readings, Response
from profiler.run.evaluate import PREEMPTION_LIMIT, evaluate
from profiler.run.trials import Trial
from profiler.script.windows import StepWindow
from replay.running.power import power_samples
from replay.running.records import ReplayRecords
from replay.running.script import Script

_PAUSED = "the step paused, so that the board's records of it could be read"


@dataclass(frozen=True)
class ReplayRecord:
    """Record of a run.

    Attributes:
        plan: the plan that was run.
        steps: the finished steps in order; ``time_s`` of each is its running time.
        elapsed_s: wall-clock time of each step; its running time if it paused.
        disturbed: by the number of a step, the reason why neither its time nor its energy counts.
            A training step cannot be repeated: the other steps are its repetitions.
        unmetered: by the number of a step, the reason why its energy is unknown.
        counters: the executor's counters over the steps; None if the run was interrupted.
        memory: memory of the process on a Linux board.
        power: samples of the meter for a picture.
        readings: all readings of the meter, or the reason why there are none; None without a meter.
        windows_ns: start and end of each step on the board's clock.
        paused: numbers of the steps that paused.
        losses: one for each step, if the plan has a loss.
        values: kept tensors after the last step, flat, by name; empty if the run was interrupted.
        gradients: those of the last step, if they were asked for, flat, by parameter.
        predictions: those of each step of an evaluation, flat.
    """

    plan: ExecutionPlan
    steps: tuple[MeasuredStep, ...]
    elapsed_s: tuple[float, ...]
    disturbed: Mapping[int, str]
    unmetered: Mapping[int, str]
    counters: Counters | None
    memory: ProcessMemory | None
    power: PowerSamples | None
    losses: tuple[float, ...]
    values: Mapping[str, NDArray[np.float32]]
    gradients: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    predictions: tuple[NDArray[np.float32], ...] = ()
    readings: Readings | Void | None = None
    windows_ns: tuple[tuple[int, int], ...] = ()
    paused: frozenset[int] = frozenset()

    @property
    def quiet(self) -> tuple[int, ...]:
        """Numbers of the undisturbed steps during which other programs took little processor time.

        A meter sees these programs, too, and so do the spans of actions.
        """
        least_share = 1.0 - PREEMPTION_LIMIT
        return tuple(
            number
            for number, step in enumerate(self.steps)
            if number not in self.disturbed and step.time_s >= least_share * self.elapsed_s[number]
        )

    @property
    def quiet_steps(self) -> tuple[MeasuredStep, ...]:
        return tuple(self.steps[number] for number in self.quiet)

    @property
    def sound_steps(self) -> tuple[MeasuredStep, ...]:
        return tuple(step for i, step in enumerate(self.steps) if i not in self.disturbed)


def replay_record(
    plan: ExecutionPlan,
    script: Script,
    records: ReplayRecords,
    dumped: bytes,
    trace: PowerTrace | None,
    *,
    throttled: tuple[int, int] | None,
    is_measured: bool,
    hindrance: str | None = None,
) -> ReplayRecord:
    """Evaluate the records of a run.

    Args:
        plan: the plan that was run.
        script: the lines that ran it.
        records: the board's records.
        dumped: losses and kept values, as the board returned them.
        trace: the meter's trace; None without a meter.
        throttled: as in :func:`~profiler.run.evaluate.evaluate`, and so is ``hindrance``.
        is_measured: whether the meter is an instrument.
    """
    windows = [record for record in records.results.windows if record.id < len(script.windows)]

    def trials(of: PowerTrace | None, is_measured: bool) -> list[Trial]:
        found = evaluate(
            windows,
            script.windows,
            of,
            is_measured=is_measured,
            start=records.results.start,
            throttled=throttled,
            hindrance=hindrance,
        )
        ids = (record.id for record in windows)
        return [
            trial
            for id_, trial in zip(ids, found, strict=True)
            if isinstance(script.windows[id_], StepWindow)
        ]

    ids = [w.id for w in windows if isinstance(script.windows[w.id], StepWindow)]
    timed, metered = trials(None, False), trials(trace, is_measured)
    if is_measured:  # the meter saw the pauses, too
        metered = [
            trial.model_copy(update={"energy_j": None, "void": _PAUSED})
            if id_ in records.paused
            else trial
            for id_, trial in zip(ids, metered, strict=True)
        ]
    response = None if trace is None else trace.response
    if response is not None:
        metered = [_with_sharp_ends(trial, response) for trial in metered]
    readings = None if trace is None else trace.readings()
    windows_ns = tuple((trial.start_ns, trial.end_ns) for trial in metered)
    steps = []
    for id_, trial in zip(ids, metered, strict=True):
        steps.append(
            MeasuredStep(
                time_s=trial.time_s,
                energy_j=None if trial.void is not None else trial.execution_energy_j(),
                spans=records.spans.get(id_, ()),
                checksums=records.probes.get(id_, ()),
            )
        )
    return ReplayRecord(
        plan=plan,
        steps=tuple(steps),
        elapsed_s=tuple(
            trial.time_s if id_ in records.paused else trial.length_s
            for id_, trial in zip(ids, metered, strict=True)
        ),
        disturbed={i: trial.void for i, trial in enumerate(timed) if trial.void is not None},
        unmetered={
            i: trial.void
            for i, trial in enumerate(metered)
            if trial.void is not None and timed[i].void is None
        },
        counters=_over_steps(records.counters),
        memory=records.memory,
        power=power_samples(None if isinstance(readings, Void) else readings, windows_ns),
        readings=readings,
        windows_ns=windows_ns,
        paused=frozenset(i for i, id_ in enumerate(ids) if id_ in records.paused),
        losses=script.losses(dumped),
        gradients=script.gradients(dumped),
        predictions=script.predictions(dumped),
        values=script.values(dumped),
    )


def _with_sharp_ends(trial: Trial, response: Response) -> Trial:
    """The trial of a step, void if its readings mix too much of what came before and after it.

    A reading whose ages spread by s misplaces up to s/2 of the difference in power at either end.
    """
    if trial.void is not None or response.spread_s / 2 <= MOST_UNCERTAIN_SHARE * trial.length_s:
        return trial
    return trial.model_copy(
        update={"energy_j": None, "void": response.too_long_for(trial.length_s)}
    )


def require_whole(board: str, record: ReplayRecord, script: Script, *, watched: bool) -> None:
    """Raise :class:`~devices.errors.MeasurementInvalid` if records of a whole run are missing."""
    plan = record.plan
    actions, probes = len(plan.actions) + len(plan.afterwards), len(plan.probes)
    expected = (actions, probes) if watched else (0, 0)
    steps = sum(isinstance(window, StepWindow) for window in script.windows)
    is_whole = (
        len(record.steps) == steps
        and all((len(s.spans), len(s.checksums)) == expected for s in record.steps)
        and len(record.losses) == script.count("loss")
        and len(record.gradients) == script.count("gradient")
        and len(record.predictions) == script.count("prediction")
        and len(record.values) == script.count("kept")
        and record.counters is not None
    )
    if not is_whole:
        raise MeasurementInvalid(f"{board}: the harness left incomplete records of {plan.name}")


def _over_steps(counters: tuple[Counters, ...]) -> Counters | None:
    """Counters after the last step, less the traffic of the initial values."""
    if len(counters) < 2:
        return None
    before, after = counters[0], counters[-1]
    return Counters(
        steps=after.steps,
        bytes_in=after.bytes_in - before.bytes_in,
        bytes_out=after.bytes_out - before.bytes_out,
        erased_blocks=after.erased_blocks - before.erased_blocks,
        touched_bytes=after.touched_bytes,
        transfer_ns=after.transfer_ns - before.transfer_ns,
    )
