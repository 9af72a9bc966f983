"""Replay of a cell's schedule on its board."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.design.cells import Cell
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Beginning, Circumstances, Repetition, ReplayPlace
from campaigns.running.places import at_place
from devices.description import DeviceDescription
from replay.run_report import run_schedule


@dataclass(frozen=True)
class ReplayJob:
    """One replay of a cell's schedule. ``labgrid_place`` is that of its board."""

    cell: Cell
    place: ReplayPlace
    description: DeviceDescription
    steps: int
    labgrid_place: str | None = None


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
    name = str(directory.schedule_file(job.cell).relative_to(directory.path))
    with at_place(job.labgrid_place):
        report = run_schedule(job.description, graph, schedule, job.steps, name=name)
    circumstances = Circumstances.since(began)
    repetition = Repetition.of(job.cell, job.place, report, circumstances, attempt=attempt)
    directory.keep_repetition(repetition, report)
    return circumstances.seconds
