"""Replay of a cell's schedule on its board."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.design.cells import Cell, NetworkLevel
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Beginning, Circumstances, Repetition, ReplayPlace
from campaigns.running.places import at_place
from devices.description import DeviceDescription
from replay.run_report import run_schedule
from replay.runs import training_step_of


@dataclass(frozen=True)
class ReplayJob:
    """One replay of a cell's schedule.

    ``network`` is that of the cell, with its file as it lies now. ``labgrid_place`` is that of its
    board.
    """

    cell: Cell
    place: ReplayPlace
    description: DeviceDescription
    network: NetworkLevel
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
    step = training_step_of(graph.with_model_at(job.network.model, job.network.sha256))
    name = str(directory.schedule_file(job.cell).relative_to(directory.path))
    with at_place(job.labgrid_place):
        report = run_schedule(job.description, graph, schedule, job.steps, name=name, step=step)
    circumstances = Circumstances.since(began)
    repetition = Repetition.of(job.cell, job.place, report, circumstances, attempt=attempt)
    directory.keep_repetition(repetition, report)
    return circumstances.seconds
