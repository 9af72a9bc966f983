"""Replay of a cell's schedule on its board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from campaigns.design.cells import Cell, NetworkLevel
from campaigns.keeping.directory import CampaignDirectory
from campaigns.keeping.records import Beginning, Circumstances, Repetition, ReplayPlace
from campaigns.running.places import at_place
from devices.description import DeviceDescription
from devices.documents.document import read_yaml
from devices.errors import RequestRefused
from devices.profile import BoardIdentity, DeviceProfile
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
        RequestRefused: The board is not the one that the cell was profiled or run on.
        JoulewrightError: The schedule cannot be run, or was not measured.
    """
    began = Beginning()
    graph, schedule = directory.schedule(job.cell)
    step = training_step_of(graph.with_model_at(job.network.model, job.network.sha256))
    name = str(directory.schedule_file(job.cell).relative_to(directory.path))
    with at_place(job.labgrid_place):
        report = run_schedule(
            job.description,
            graph,
            schedule,
            job.steps,
            name=name,
            step=step,
            require_board=partial(_require_board_of_cell, job, directory),
        )
    circumstances = Circumstances.since(began)
    repetition = Repetition.of(job.cell, job.place, report, circumstances, attempt=attempt)
    directory.keep_repetition(repetition, report)
    return circumstances.seconds


def _require_board_of_cell(
    job: ReplayJob, directory: CampaignDirectory, board: BoardIdentity
) -> None:
    """Raise :class:`RequestRefused` if a cell was profiled, or run before, on another board.

    Its profile may be older than the kernel or the card of the board. Its replays may not: they are
    repetitions of one measurement.
    """
    solved = directory.solved(job.cell)
    if solved is not None and solved.profile is not None:
        profile = read_yaml(directory.path / solved.profile, DeviceProfile)
        _require_same(
            ("model", "serial", "cpu"),
            profile.board,
            board,
            f"{job.description.name}: {solved.profile}, the profile of the cell, is of another"
            " board",
            remedy="connect that board again, or give this one a description with another name",
        )
    finished = directory.finished_replay(job.cell)
    if finished is not None:
        # A firmware has the plan of its schedule in it; its kernels are part of the cell's hash.
        varying = set() if job.description.firmware is None else {"kernel"}
        _require_same(
            [each for each in BoardIdentity.model_fields if each not in varying],
            finished.board.lasting,
            board.lasting,
            f"{job.description.name}: the other repetitions of the cell are of another board, or of"
            " this one in another state",
            remedy="restore that state, or run the campaign under another name",
        )


def _require_same(
    names: Iterable[str], before: BoardIdentity, now: BoardIdentity, sentence: str, *, remedy: str
) -> None:
    """Raise :class:`RequestRefused` if boards differ in a property that both of them state."""
    for name in names:
        old, new = getattr(before, name), getattr(now, name)
        if None not in (old, new) and old != new:
            raise RequestRefused(
                f"{sentence}: its {name} was {old}, and is {new} now", remedy=remedy
            )
