"""A run and its report: measured figures compared with predicted ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from devices.description import DeviceDescription
from devices.profile import BoardIdentity
from devices.replay import ActivityEnergies, ExpectedStep, ReplayReport, StepsTogether
from networks.training.step import TrainingStep
from profiler.meters.base import Void
from profiler.statistics import median_interval
from replay.energy.activities import activity_energies
from replay.energy.regression import NotSeparable
from replay.energy.together import steps_together
from replay.expectation import expected_step
from replay.reporting.report import ReportHead, have_energies, replay_report
from replay.reporting.timing import ScheduledActions
from replay.running.measured import ReplayRecord
from replay.runs import (
    STEPS_PER_DAY,
    Replayed,
    Subject,
    Training,
    planned_execution,
    replay_schedule,
    training_on,
    training_step_of,
)
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def run_schedule(
    description: DeviceDescription,
    graph: CostedGraph,
    schedule: Schedule,
    steps: int = 10,
    *,
    seed: int = 0,
    name: str | None = None,
    step: TrainingStep | None = None,
    progress: Callable[[str], None] = lambda _activity: None,
    require_board: Callable[[BoardIdentity], None] = lambda _board: None,
) -> ReplayReport:
    """Train steps by a schedule on its board, with generated samples, and compare.

    Args:
        description: The board.
        graph: The costed graph that the schedule was found for.
        schedule: The schedule.
        steps: Number of steps, each of which is also run watched, action by action.
        seed: Seed of the samples and of the initial values.
        name: Name of the schedule in the report; None for that of its graph.
        step: Training step of the graph; None to build it from what the graph was made from.
        progress: Called with one line for each activity.
        require_board: Called with the identity of the board before anything runs on it; raises if
            it is the wrong one.

    Returns:
        Measured figures beside predicted ones, and whether every value has the bits of the
        unscheduled step.

    Raises:
        InputError: The graph does not say what it was made from.
        JoulewrightError: The schedule cannot be run on the board, or was not measured.
    """
    step = training_step_of(graph) if step is None else step
    subject = Subject(description, step, graph, schedule)
    planned_execution(subject)  # fails before anything is built if the schedule cannot run
    training = training_on(subject.step, None, steps, seed)
    expected = expected_step(graph, schedule)
    replayed = replay_schedule(
        subject, training, expected.time_s.median, progress, require_board=require_board
    )
    return run_report(subject, name or graph.name, replayed, expected, training, STEPS_PER_DAY)


def run_report(
    subject: Subject,
    schedule: str,
    replayed: Replayed,
    expected: ExpectedStep,
    training: Training,
    steps_per_day: float,
) -> ReplayReport:
    """Join the records of a run with its prediction.

    Args:
        subject: the schedule that was run, and its board.
        schedule: name of the schedule's file.
        replayed: the records of the run.
        expected: the prediction, from :func:`~replay.expectation.expected_step`.
        training: what was run.
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
    notes: list[str] = []
    measured = replace(replayed.measured, together=_together(replayed.timed, notes))
    energies = _activity_energies(replayed, expected, notes)
    report = replay_report(head, expected, replayed.plan, measured, replayed.checks, steps_per_day)
    unscheduled = replayed.unscheduled
    times_s = [] if unscheduled is None else [step.time_s for step in unscheduled.sound_steps]
    losses = (loss if math.isfinite(loss) else None for loss in replayed.timed.losses)
    return report.model_copy(
        update={
            "trained_steps": len(replayed.timed.steps),
            "steps_before": training.steps_before or None,
            "losses": tuple(losses),
            "unscheduled_s": median_interval(times_s) if times_s else None,
            "activity_energies": energies,
            "limits": (*report.limits, *_limits(subject, replayed), *replayed.notes, *notes),
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
    if subject.step.unrolled:
        yield (
            "recurrent layers are unrolled, in the unscheduled step too: sums over all steps of a"
            " sequence are made in another order than in one layer"
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


def _together(timed: ReplayRecord, notes: list[str]) -> StepsTogether | None:
    """Energy of steps together, if too few have one of their own; a note says so, or why not."""
    energies_j = [step.energy_j for step in timed.sound_steps]
    has_meter = not isinstance(timed.readings, Void | None)
    if not has_meter or have_energies(energies_j):
        return None
    try:
        together = steps_together(timed)
    except NotSeparable as reason:
        notes.append(f"the energy of the steps together is unknown: {reason}")
        return None
    notes.append(
        f"the energy of a step is the mean of {together.steps} steps together:"
        f" {energies_j.count(None)} of {len(energies_j)} steps have none of their own"
    )
    return together


def _activity_energies(
    replayed: Replayed, expected: ExpectedStep, notes: list[str]
) -> ActivityEnergies | None:
    """Energies of single operations; a note says why there are none."""
    source = replayed.measured.energy_source
    if source is None or isinstance(replayed.watched.readings, Void | None):
        return None
    actions = ScheduledActions.of(replayed.plan, expected.actions)
    cost_keys = {action.schedule_index: action.cost_key for action in expected.actions}
    try:
        return activity_energies(replayed.watched, actions, cost_keys, source)
    except NotSeparable as reason:
        notes.append(f"the energies of single operations are unknown: {reason}")
        return None
