"""Order of the replays of a board: randomised complete blocks, each with a control replay.

In every repetition, each schedule of the board runs once, in an order of its own. One of them, the
same in all repetitions, runs twice: a difference between it and its control is a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from campaigns.design.cells import Cell
from campaigns.keeping.directory import FilesOfCells, names_of_replays
from campaigns.keeping.records import ReplayPlace


def replays_in_order(
    cells: Iterable[Cell], control: Cell, repetitions: int, seed: int
) -> Iterator[tuple[Cell, ReplayPlace]]:
    """All replays of a board, in the order in which they are run.

    Args:
        cells: Cells of the board that have schedules, in any order.
        control: The one of them whose schedule runs twice in every repetition.
        repetitions: Number of repetitions.
        seed: Seed of the campaign.

    Yields:
        A cell and which of its replays; the same for the same arguments.
    """
    entries = [*((cell, False) for cell in sorted(cells, key=_hash)), (control, True)]
    for repetition in range(repetitions):
        shuffled = list(entries)
        Random(f"{seed} {control.board} {repetition}").shuffle(shuffled)  # noqa: S311
        for position, (cell, is_control) in enumerate(shuffled):
            yield (
                cell,
                ReplayPlace(repetition=repetition, control=is_control, position=position),
            )


def control_of(cells: Iterable[Cell], repetitions: int, seed: int, files: FilesOfCells) -> Cell:
    """The cell whose schedule runs twice in every repetition.

    It is drawn once. A campaign with more cells keeps the cell that has control replays: those of
    another cell would run long after its replays, and tell what changed on the board in between.

    Args:
        cells: Cells of a board that have schedules, at least one, in any order.
        repetitions: Number of repetitions.
        seed: Seed of the campaign.
        files: The files that exist. Among cells with equally many control replays, it is drawn.
    """
    controls = names_of_replays(repetitions, control=True)
    known = sorted(cells, key=_hash)
    finished = [len(controls & files.get(cell.hash, frozenset())) for cell in known]
    most = max(finished)
    drawn_from = [cell for cell, count in zip(known, finished, strict=True) if count == most]
    return Random(f"{seed} {drawn_from[0].board} control").choice(drawn_from)  # noqa: S311


def _hash(cell: Cell) -> str:
    return cell.hash
