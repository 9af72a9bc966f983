"""Order of the replays of a board: randomised complete blocks, each with a control replay.

In every repetition, each schedule of the board runs once, in an order of its own. One of them, the
same in all repetitions, runs twice: a difference between it and its control is a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from campaigns.design.cells import Cell
from campaigns.keeping.records import ReplayPlace


def replays_in_order(
    cells: Iterable[Cell], board: str, repetitions: int, seed: int
) -> Iterator[tuple[Cell, ReplayPlace]]:
    """All replays of a board, in the order in which they are run.

    Args:
        cells: Cells of the board that have schedules, in any order.
        board: Name of the board.
        repetitions: Number of repetitions.
        seed: Seed of the campaign.

    Yields:
        A cell and which of its replays; the same for the same arguments.
    """
    known = sorted(cells, key=_hash)
    if not known:
        return
    entries = [*((cell, False) for cell in known), (control_of(known, board, seed), True)]
    for repetition in range(repetitions):
        shuffled = list(entries)
        Random(f"{seed} {board} {repetition}").shuffle(shuffled)  # noqa: S311
        for position, (cell, is_control) in enumerate(shuffled):
            yield (
                cell,
                ReplayPlace(repetition=repetition, control=is_control, position=position),
            )


def control_of(cells: Iterable[Cell], board: str, seed: int) -> Cell:
    """The cell whose schedule runs twice in every repetition.

    Args:
        cells: Cells of the board that have schedules, at least one, in any order.
        board: Name of the board.
        seed: Seed of the campaign.
    """
    known = sorted(cells, key=_hash)
    return Random(f"{seed} {board} control").choice(known)  # noqa: S311


def _hash(cell: Cell) -> str:
    return cell.hash
