"""How far a campaign is, by board, read from its directory while it runs or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import Design
from campaigns.keeping.directory import (
    CampaignDirectory,
    FilesOfCells,
    count_replays,
    final_failure,
    has_failures,
    is_solved,
)
from campaigns.keeping.progress import BoardProgress, CampaignProgress, read_progress
from campaigns.keeping.records import Failure
from devices.claims.claim import user_of
from devices.claims.owner import Owner


@dataclass(frozen=True)
class BoardStatus:
    """How far a board is.

    ``solved`` of ``cells`` have been searched for a schedule, ``finished`` of at most ``replays``
    have been run; both are the files that are there. ``replays`` are those of cells with a
    schedule, and of cells that are not solved yet. ``progress`` is what the running campaign says
    of the board, None if it does not run or the board is a profile.
    """

    board: str
    cells: int
    solved: int
    replays: int
    finished: int
    progress: BoardProgress | None


@dataclass(frozen=True)
class CampaignStatus:
    """How far a campaign is. ``runner`` is the process that runs it, None if none does.

    ``failures`` are the boards under a condition at whose profile the last attempt failed, and the
    cells that the campaign gave up on.
    """

    name: str
    runner: Owner | None
    boards: tuple[BoardStatus, ...]
    solving: tuple[str, ...]
    failures: tuple[tuple[str, Failure], ...]


def read_status(path: Path) -> CampaignStatus:
    """Read how far a campaign is.

    Args:
        path: The directory of the campaign.

    Raises:
        DocumentError: The directory is not that of a campaign, or a file in it is damaged.
    """
    directory = CampaignDirectory(path)
    design, files = directory.design(), directory.files()
    runner = user_of(path)
    progress = (read_progress(path) if runner is not None else None) or CampaignProgress(boards=())
    told = {board.board: board for board in progress.boards}
    boards = dict.fromkeys(setting.board for setting in design.settings)
    return CampaignStatus(
        name=design.name,
        runner=runner,
        boards=tuple(_board(directory, design, files, board, told.get(board)) for board in boards),
        solving=progress.solving,
        failures=tuple(_failures(directory, design, files)),
    )


def _board(
    directory: CampaignDirectory,
    design: Design,
    files: FilesOfCells,
    board: str,
    told: BoardProgress | None,
) -> BoardStatus:
    cells = [cell for cell in design.cells if cell.board == board]
    names = [files.get(cell.hash, frozenset()) for cell in cells]
    is_run = any(setting.is_run for setting in design.settings if setting.board == board)
    run = sum(
        is_run and (not is_solved(found) or directory.has_schedule(cell, found))
        for cell, found in zip(cells, names, strict=True)
    )
    return BoardStatus(
        board=board,
        cells=len(cells),
        solved=sum(map(is_solved, names)),
        replays=design.repetitions * (run + 1) if run else 0,
        finished=count_replays(names, design.repetitions) if is_run else 0,
        progress=told,
    )


def _failures(
    directory: CampaignDirectory, design: Design, files: FilesOfCells
) -> list[tuple[str, Failure]]:
    found: list[tuple[str, Failure]] = []
    unsolved = {
        design.setting_of(cell).name
        for cell in design.cells
        if not is_solved(files.get(cell.hash, frozenset()))
    }
    for setting in design.settings:
        failures = directory.failures_since_profile(setting.name) if setting.is_run else ()
        if failures and setting.name in unsolved:
            found.append((f"profile of {setting.name}", failures[-1]))
    for cell in design.cells:
        names = files.get(cell.hash, frozenset())
        if has_failures(names):
            failure = final_failure(directory.failures(cell), names, design.repetitions_of(cell))
            if failure is not None:
                found.append((str(cell), failure))
    return found
