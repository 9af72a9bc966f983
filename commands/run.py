"""``run``: a schedule on its board, held against what was predicted."""

from __future__ import annotations

import io
import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.activity import Activity
from commands.console import Console, size
from devices.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from devices.plan import ExecutionPlan
    from devices.replay import ExpectedStep, ReplayReport
    from networks.data import Batches
    from networks.training import TrainingStep
    from replay.running.failure import Recovered
    from replay.runs import Replayed, Subject, Training

REPORT, SCHEDULE, GRAPH, VALUES = "replay.json", "schedule.json", "graph.json", "parameters.npz"
"""Files of a replay's directory."""

_RECOVERED = "recovered.npz"
"""Beside them, of a replay that failed."""

_GENERATED_BATCHES = 8


def run(arguments: Namespace, console: Console) -> int:
    from commands.replay_summary import summarise
    from commands.solve import graph_path
    from devices.description import load_description
    from devices.documents.document import read_json, write_atomically
    from replay.expectation import expected_step
    from replay.lowering.lowering import lower
    from replay.reporting.diagnosis import remedy
    from replay.running.failure import ReplayFailed
    from replay.runs import (
        Subject,
        Training,
        planned_workspace,
        replay_schedule,
        training_step_of,
    )
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

    description = load_description(arguments.device)
    schedule = read_json(arguments.schedule, Schedule)
    graph = read_json(arguments.graph or graph_path(arguments.schedule), CostedGraph)
    step = training_step_of(graph)
    subject = Subject(description, step, graph, schedule)
    training = Training(_batches(arguments, step), arguments.steps, arguments.seed)
    # Before anything is built: a schedule that cannot be run, a directory that cannot be made.
    planned = lower(step, graph, schedule, planned_workspace(step, graph))
    if arguments.dry_run:
        _announce(console, subject, training, planned)
        return ExitCode.DONE
    name = f"{description.name}-{arguments.schedule.stem}"
    directory = arguments.out or arguments.results.replays / name
    directory.mkdir(parents=True, exist_ok=True)
    expected = expected_step(graph, schedule)
    try:
        with Activity(console) as activity:
            replayed = replay_schedule(subject, training, expected.time_s.median, activity)
    except ReplayFailed as failure:
        if failure.recovered is not None:
            _keep(console, directory / _RECOVERED, failure.recovered)
        raise
    report = _report(arguments, subject, replayed, expected)
    # What was measured is told also where it cannot be written.
    console.document(report.model_dump(mode="json", by_alias=True, exclude_none=True))
    summarise(console, report)
    for name, document in ((SCHEDULE, schedule), (GRAPH, graph), (REPORT, report)):
        text = document.model_dump_json(by_alias=True, exclude_none=True, indent=1)
        write_atomically(directory / name, text + "\n")
    write_atomically(directory / VALUES, _npz(replayed.timed.values))
    pictures = _pictures(subject, report, directory)
    advice = remedy(report.diagnosis, description.name, str(directory))
    if advice is not None:
        console.result(advice)
    console.result(f"\nreplay    {directory / REPORT}\nvalues    {directory / VALUES}")
    for picture in pictures:
        console.result(f"picture   {picture}")
    if all(check.identical for check in report.values):
        return ExitCode.DONE
    console.say("error: the schedule changed values, which it must never do: this is a defect")
    return ExitCode.INTERNAL_ERROR


def _batches(arguments: Namespace, step: TrainingStep) -> Batches:
    from networks.data import generated_batches, load_batches

    if arguments.batches is not None:
        return load_batches(arguments.batches, step)
    return generated_batches(step, _GENERATED_BATCHES * step.batch, arguments.seed)


def _keep(console: Console, path: Path, recovered: Recovered) -> None:
    """What the last complete step of a replay that failed has left. That it failed is told in any
    case."""
    from devices.documents.document import write_atomically

    try:
        write_atomically(path, _npz(recovered.values))
    except OSError as error:
        console.say(f"error: {path}: {error.strerror}")
    else:
        console.say(f"after step {recovered.step}: {path}")


def _report(
    arguments: Namespace, subject: Subject, replayed: Replayed, expected: ExpectedStep
) -> ReplayReport:
    from profiler.statistics import median_interval
    from replay.reporting.report import ReportHead, replay_report

    origin = subject.graph.origin
    head = ReportHead(
        device=subject.description.name,
        schedule=str(arguments.schedule),
        origin={} if origin is None else origin.model_dump(),
        storage=subject.description.storage,
    )
    report = replay_report(
        head,
        expected,
        replayed.plan,
        replayed.measured,
        replayed.checks,
        arguments.steps_per_day,
    )
    unscheduled = replayed.unscheduled
    times_s = [] if unscheduled is None else [step.time_s for step in unscheduled.sound_steps]
    losses = (loss if math.isfinite(loss) else None for loss in replayed.timed.losses)
    return report.model_copy(
        update={
            "losses": tuple(losses),
            "unscheduled_s": median_interval(times_s, arguments.seed) if times_s else None,
            "limits": (*report.limits, *_limits(subject, replayed)),
        }
    )


def _limits(subject: Subject, replayed: Replayed) -> list[str]:
    said = []
    origin, device = subject.graph.origin, subject.description.name
    if origin is None or origin.kernels_sha256 is None:
        said.append("costs are published figures: nothing ties them to the kernels that ran")
    elif origin.profile != device:
        said.append(f"costs are those of {origin.profile}, and this is {device}")
    if not replayed.checks:
        said.append(
            "values were compared with nothing: the step with nothing scheduled does not fit into"
            " the board's free memory"
        )
    disturbed = replayed.timed.disturbed
    if disturbed:
        said.append(f"{len(disturbed)} steps do not count: {next(iter(disturbed.values()))}")
    unmetered = replayed.timed.unmetered
    if unmetered:
        reason = next(iter(unmetered.values()))
        said.append(f"the energy of {len(unmetered)} steps is not known: {reason}")
    return said


def _npz(values: Mapping[str, NDArray[np.float32]]) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **dict(values))  # type: ignore[arg-type]
    return buffer.getvalue()


def _pictures(subject: Subject, report: ReplayReport, directory: Path) -> list[Path]:
    from plots.replay.memory import replayed_memory
    from plots.replay.power import replayed_power
    from plots.replay.times import predicted_against_measured

    pictures = [directory / "times.png", directory / "memory.png"]
    predicted_against_measured(report, pictures[0])
    replayed_memory(subject.graph, subject.schedule, report, pictures[1])
    if report.power is not None:
        pictures.append(directory / "power.png")
        replayed_power(report, pictures[-1])
    return pictures


def _announce(console: Console, subject: Subject, training: Training, plan: ExecutionPlan) -> None:
    """What would be done; no board is asked."""
    from profiler.building.store_layout import store_layout

    description = subject.description
    written = 0
    if plan.pages and description.storage is not None:
        written = store_layout(plan, description.storage).written_bytes
    console.document(
        {
            "device": description.name,
            "steps": training.steps,
            "arena_bytes": plan.arena_bytes,
            "actions": len(plan.actions),
            "written_bytes_a_step": written,
            "flashes_firmware": description.firmware is not None,
        }
    )
    console.result(
        f"{description.name}: {training.steps} steps of {plan.name}, watched, and as many again"
        f" unwatched, in an arena of {plan.arena_bytes} bytes ({len(plan.actions)} actions);"
        " before them, where there is RAM for it, a few of a debug build"
    )
    if description.firmware is not None:
        console.result("a firmware with the plan in it is put on the board, and stays there")
    if plan.pages:
        console.result(f"storage: {size(written)} are written a step, besides the initial values")
