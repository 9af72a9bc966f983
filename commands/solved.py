"""Schedules from files, which anybody may have changed since the solver wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule


def read_valid(path: Path, graph_path: Path | None) -> tuple[CostedGraph, Schedule]:
    """Read a schedule and its costed graph, and check the schedule against the graph.

    Args:
        path: Path of the schedule.
        graph_path: Path of the graph; None if it is in the same directory as the schedule.

    Returns:
        The costed graph and the schedule, which may have no actions.

    Raises:
        InputError: A file is missing or invalid, or the schedule is not one of the graph.
    """
    from devices.errors import InputError
    from solver.problem.files import read_solved
    from solver.referee.referee import RefereeError, replay

    graph, schedule = read_solved(path, graph_path)
    if schedule.actions:
        try:
            replay(graph, schedule.actions, schedule.budget.covers)
        except RefereeError as error:
            raise InputError(f"{path}: not a valid schedule of {graph.name}: {error}") from None
    return graph, schedule
