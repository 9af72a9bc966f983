"""Cells and replays of a campaign that are left to do, by the names of the files that exist.

Nothing that searches or measures is imported here, so that a finished campaign is recognised
quickly.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from campaigns.design.cells import Cell, Design
from campaigns.keeping.directory import (
    CampaignDirectory,
    FilesOfCells,
    has_replay,
    is_solved,
    names_of_replays,
)
from campaigns.keeping.records import ReplayPlace
from campaigns.running.order import control_of, replays_in_order


def with_other_values(directory: CampaignDirectory, design: Design) -> list[str]:
    """Cells of which a replay, control replays included, has changed values: a defect.

    They are found in the campaign's table of replays, as it was written last.
    """
    file = directory.tables / "replays.csv"
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as table:
        rows = csv.DictReader(table)
        hashes = {row["hash"] for row in rows if row["values_identical"] == "False"}
    return [str(cell) for cell in design.cells if cell.hash in hashes]


@dataclass(frozen=True)
class Replays:
    """The replays of a board: how many there are, and those that are not finished, in order."""

    count: int
    missing: tuple[tuple[Cell, ReplayPlace], ...]


def is_finished(
    directory: CampaignDirectory, design: Design, seed: int, files: FilesOfCells
) -> bool:
    """Whether every cell is solved and every schedule was run as often as asked.

    Args:
        directory: The campaign.
        design: Its cells.
        seed: Its seed.
        files: The files that exist.

    Raises:
        DocumentError: A file of the campaign is damaged.
    """
    if not all(is_solved(files.get(cell.hash, frozenset())) for cell in design.cells):
        return False
    by_board: dict[str, list[Cell]] = {}
    for cell in design.cells:
        if design.setting_of(cell).is_run:
            by_board.setdefault(cell.board, []).append(cell)
    return not any(
        replays_of(directory, cells, design.repetitions, seed, files).missing
        for cells in by_board.values()
    )


def replays_of(
    directory: CampaignDirectory,
    cells: Sequence[Cell],
    repetitions: int,
    seed: int,
    files: FilesOfCells,
) -> Replays:
    """The replays of a board whose cells are solved.

    Raises:
        DocumentError: A file of the campaign is damaged.
    """
    known = [
        cell for cell in cells if directory.has_schedule(cell, files.get(cell.hash, frozenset()))
    ]
    if not known:
        return Replays(0, ())
    count = repetitions * (len(known) + 1)
    control = control_of(known, repetitions, seed, files)
    if _are_run(known, control, repetitions, files):
        return Replays(count, ())
    missing = (
        (cell, place)
        for cell, place in replays_in_order(known, control, repetitions, seed)
        if not has_replay(files.get(cell.hash, frozenset()), place)
    )
    return Replays(count, tuple(missing))


def _are_run(cells: Sequence[Cell], control: Cell, repetitions: int, files: FilesOfCells) -> bool:
    """Whether no replay is missing, without the order in which they are run."""
    runs, controls = (names_of_replays(repetitions, control=again) for again in (False, True))
    return controls <= files.get(control.hash, frozenset()) and all(
        runs <= files.get(cell.hash, frozenset()) for cell in cells
    )
