"""Entry point of ``run``: run a schedule on its board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commands.command import Command
from commands.console import Console, Status
from commands.run.options import RunOptions, add_options
from devices.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from networks.training import TrainingStep
    from replay.evaluation import HeldOutSamples
    from replay.running.failure import Trained
    from replay.runs import Subject, Training


def run(options: RunOptions, console: Console) -> int:
    """Run a schedule and report; the exit code is 1 if the schedule changed values."""
    from commands.run.summary import announce
    from devices.claims.claim import sole_user
    from devices.description import load_description
    from devices.documents.document import require_writable
    from replay.evaluation import HeldOutSamples
    from replay.runs import Subject, planned_execution, training_on, training_step_of
    from solver.files.solved import read_solved

    description = load_description(options.device)
    graph, schedule = read_solved(options.schedule, options.graph)
    step = training_step_of(graph)
    step = step.updating_with(
        learning_rate=options.learning_rate,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
    )
    subject = Subject(description, step, graph, schedule)
    training = training_on(
        subject.step,
        options.samples,
        options.steps,
        options.seed,
        gradients=options.gradients is not None,
        rate_schedule=options.rate_schedule,
        earlier=options.earlier,
    )
    held_out = (
        None
        if options.held_out is None
        else HeldOutSamples.read(options.held_out, training_step_of(graph, plain=True))
    )
    if options.gradients is not None:
        require_writable(options.gradients)
    # Fail before anything is built if the schedule cannot run or the directory cannot be used.
    planned = planned_execution(subject)
    if options.dry_run:
        announce(console, description, options.steps, planned)
        return ExitCode.DONE
    name = f"{description.name}-{options.schedule.stem}"
    directory = options.out or options.results.replays / name
    with sole_user(directory):
        return _run(options, subject, training, held_out, directory, console)


def _run(
    options: RunOptions,
    subject: Subject,
    training: Training,
    held_out: HeldOutSamples | None,
    directory: Path,
    console: Console,
) -> int:
    from commands.run.summary import summarise
    from devices.documents.document import write_atomically
    from networks.training.slicing import joined
    from replay.directory import MODEL, REPORT, VALUES, WEIGHTS, StoredRun, has_trained_model
    from replay.expectation import expected_step
    from replay.gradients import gradients_file
    from replay.reporting.diagnosis import remedy
    from replay.run_report import run_report
    from replay.running.failure import ReplayFailed, Trained
    from replay.runs import replay_schedule

    description, graph, schedule = subject.description, subject.graph, subject.schedule
    expected = expected_step(graph, schedule)
    trained: list[Trained] = []
    try:
        with console.status() as status:
            progress = _shown_by(status)
            # Before training, so that a file or a computer that cannot be used costs no training.
            first = training.first_values(subject.step)
            before = held_out and held_out.score(joined(subject.step, first), progress)
            expected_s = expected.time_s.median
            replayed = replay_schedule(subject, training, expected_s, progress, trained.append)
            progress("computing the report")
            report = run_report(
                subject, str(options.schedule), replayed, expected, training, options.steps_per_day
            )
    except BaseException as error:
        if isinstance(error, ReplayFailed) and error.recovered is not None:
            trained.append(error.recovered)
        if trained:
            last = max(trained, key=lambda each: each.step)
            steps = training.steps_before + last.step
            _keep(console, directory, Trained(steps, last.values), subject.step)
        raise
    try:
        if held_out and before:
            values = joined(subject.step, {**first, **replayed.timed.values})
            with console.status() as status:
                after = held_out.score(values, _shown_by(status))
            report = report.model_copy(update={"held_out": held_out.scores(before, after)})
    finally:  # also if the trained network cannot be evaluated, or nothing can be written
        try:
            StoredRun(directory, report, schedule, graph).write(replayed.timed.values, subject.step)
        finally:
            try:
                if options.gradients is not None:
                    batch = training.batch(training.steps - 1)
                    content = gradients_file(subject.step, replayed.gradients, batch)
                    write_atomically(options.gradients, content)
            finally:
                console.document(report.model_dump(mode="json", by_alias=True, exclude_none=True))
                summarise(console, report)
    advice = remedy(report.diagnosis, description.reference, str(directory))
    if advice is not None:
        console.result(advice)
    console.result(f"\nreplay    {directory / REPORT}\nvalues    {directory / VALUES}")
    if subject.step.file is not None:
        console.result(f"weights   {directory / WEIGHTS}")
    if has_trained_model(subject.step):
        console.result(f"model     {directory / MODEL}")
    if options.gradients is not None:
        here = description.firmware and " (computed on this computer, with the board's arithmetic)"
        console.result(f"gradients {options.gradients}{here or ''}")
    are_identical = all(check.identical for check in report.values)
    if not are_identical:
        console.say(
            f"error: {options.schedule}: the schedule changed values, which is a defect of"
            f" Joulewright; please report it with {directory / REPORT}"
        )
    # Imported only now: importing matplotlib earlier would slow the run down.
    from plots.replay.pictures import draw_replay

    for picture in draw_replay(graph, schedule, report, directory):
        console.result(f"picture   {picture}")
    return ExitCode.DONE if are_identical else ExitCode.INTERNAL_ERROR


def _shown_by(status: Status) -> Callable[[str], None]:
    from commands.wording import COMPILING

    return lambda what: status.show(what, passing=what.startswith(COMPILING))


def _keep(console: Console, directory: Path, recovered: Trained, step: TrainingStep) -> None:
    """Keep the values that the last complete step of a replay without a report has left.

    If they cannot be written, print an error; the caller reports the failure itself.
    """
    from replay.directory import RECOVERED, keep_recovered

    path = directory / RECOVERED
    try:
        keep_recovered(directory, recovered, step)
    except OSError as error:
        console.say(f"error: {path}: {error.strerror}")
    else:
        console.say(f"values after step {recovered.step}: {path}")


RUN = Command(add_options, RunOptions.of, run)
