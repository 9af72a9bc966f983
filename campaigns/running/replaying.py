"""Replay of a cell's schedule on its board."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.design.cells import Cell
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Beginning, Circumstances, Repetition, ReplayPlace
from devices.description import DeviceDescription
from replay.expectation import expected_step
from replay.run_report import run_report
from replay.runs import (
    Subject,
    planned_execution,
    replay_schedule,
    training_on,
    training_step_of,
)

_SEED = 0  # of initial values and samples: those of the command `run`
_STEPS_PER_DAY = 1000.0


@dataclass(frozen=True)
class ReplayJob:
    """One replay of a cell's schedule."""

    cell: Cell
    place: ReplayPlace
    description: DeviceDescription
    steps: int


def run_replay(job: ReplayJob, directory: CampaignDirectory, attempt: int) -> float:
    """Run a cell's schedule on its board, and keep the report.

    Args:
        job: What to run.
        directory: The campaign, in which the cell is solved.
        attempt: The number of the attempt, from 1.

    Returns:
        The time that it took, in seconds.

    Raises:
        JoulewrightError: The schedule cannot be run, or was not measured.
    """
    began = Beginning()
    graph, schedule = directory.schedule(job.cell)
    subject = Subject(job.description, training_step_of(graph), graph, schedule)
    planned_execution(subject)
    training = training_on(subject.step, None, job.steps, _SEED)
    expected = expected_step(graph, schedule)
    replayed = replay_schedule(subject, training, expected.time_s.median, lambda _activity: None)
    name = str(directory.schedule_file(job.cell).relative_to(directory.path))
    report = run_report(subject, name, replayed, expected, _SEED, _STEPS_PER_DAY)
    circumstances = Circumstances.since(began)
    repetition = Repetition.of(job.cell, job.place, report, circumstances, attempt=attempt)
    directory.keep_repetition(repetition, report)
    return circumstances.seconds
