"""Check of a campaign's records against the files that they summarise.

Tables, comparisons and reports are made from the records of cells and replays. A record holds what
a reader of the schedule or of the replay's report finds, who checks every figure of those.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from campaigns.design.cells import Cell
from campaigns.keeping.records import Repetition, ReplayPlace, SolvedCell
from devices.documents.document import StrictModel
from devices.documents.unlike import unlike
from devices.errors import InputError
from devices.replay import ReplayReport
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def require_summary_of_schedule(
    cell: Cell, file: Path, record: SolvedCell, graph: CostedGraph, schedule: Schedule
) -> None:
    """Require that the record of a cell states what its schedule and graph do.

    Args:
        cell: The cell.
        file: File of the record.
        record: The record.
        graph: Graph of the cell's schedule.
        schedule: The schedule, whose figures are checked.

    Raises:
        InputError: It states something else; the message names the first.
    """
    asked = replace(record.asked, cell=cell)
    remade = SolvedCell.of(asked, graph, schedule, record.circumstances)
    _require_same(file, record, remade, "its schedule")


def require_summary_of_replay(
    cell: Cell, place: ReplayPlace, file: Path, record: Repetition, report: ReplayReport
) -> None:
    """Require that the record of a replay states what its report does.

    Args:
        cell: The cell.
        place: Which replay of the cell it is.
        file: File of the record.
        record: The record.
        report: The report, whose figures are checked.

    Raises:
        InputError: It states something else; the message names the first.
    """
    placed = place.model_copy(update={"position": record.position})
    remade = Repetition.of(cell, placed, report, record.circumstances, attempt=record.attempt)
    _require_same(file, record, remade, "its report")


def _require_same(file: Path, record: StrictModel, remade: StrictModel, by: str) -> None:
    for value in unlike(record.model_dump(mode="json"), remade.model_dump(mode="json")):
        raise InputError(f"{file}: states {value.path} {value.stated}; {by} has {value.found}")
