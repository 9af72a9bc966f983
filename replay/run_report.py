"""Report of a run: measured figures compared with predicted ones."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devices.replay import ExpectedStep, ReplayReport
from profiler.statistics import median_interval
from replay.reporting.report import ReportHead, replay_report
from replay.runs import Replayed, Subject


def run_report(
    subject: Subject,
    schedule: str,
    replayed: Replayed,
    expected: ExpectedStep,
    seed: int,
    steps_per_day: float,
) -> ReplayReport:
    """Join the records of a run with its prediction.

    Args:
        subject: the schedule that was run, and its board.
        schedule: name of the schedule's file.
        replayed: the records of the run.
        expected: the prediction, from :func:`~replay.expectation.expected_step`.
        seed: the training's seed; it also seeds the bootstrap interval of unscheduled steps.
        steps_per_day: for the wear of the storage.

    Returns:
        The report. Its ``limits`` say what restricts the comparison.

    Raises:
        ValueError: the plan that was run is of another schedule.
        MeasurementInvalid: no step was watched.
    """
    origin = subject.graph.origin
    head = ReportHead(
        device=subject.description.name,
        schedule=schedule,
        origin={} if origin is None else origin.stated,
        storage=subject.description.storage,
    )
    report = replay_report(
        head, expected, replayed.plan, replayed.measured, replayed.checks, steps_per_day
    )
    unscheduled = replayed.unscheduled
    times_s = [] if unscheduled is None else [step.time_s for step in unscheduled.sound_steps]
    losses = (loss if math.isfinite(loss) else None for loss in replayed.timed.losses)
    return report.model_copy(
        update={
            "losses": tuple(losses),
            "unscheduled_s": median_interval(times_s, seed) if times_s else None,
            "limits": (*report.limits, *_limits(subject, replayed)),
        }
    )


def _limits(subject: Subject, replayed: Replayed) -> Iterator[str]:
    origin, device = subject.graph.origin, subject.description.name
    if origin is None or origin.kernels_sha256 is None:
        yield "costs are published figures, which were not measured with the kernels that ran"
    elif origin.profile != device:
        yield f"costs are those of {origin.profile}, but the schedule ran on {device}"
    if subject.step.whole is not None and subject.reference is subject.step:
        yield (
            "values were compared with those of the same slices, not of whole layers: a BLAS"
            " promises no order of its sums"
        )
    if not replayed.checks:
        yield (
            "values were not compared: the unscheduled step does not fit into the board's free"
            " memory"
        )
    disturbed = replayed.timed.disturbed
    if disturbed:
        yield f"{len(disturbed)} steps were left out: {next(iter(disturbed.values()))}"
    unmetered = replayed.timed.unmetered
    if unmetered:
        reason = next(iter(unmetered.values()))
        yield f"the energy of {len(unmetered)} steps is unknown: {reason}"
