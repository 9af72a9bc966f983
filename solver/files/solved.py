"""Files of a schedule: the schedule itself, and its costed graph in the same directory."""

from __future__ import annotations

import re
from pathlib import Path

from devices.documents.document import dump_json, read_json, write_atomically
from devices.errors import InputError
from solver.files.figures import wrong_figures
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def graph_path(schedule: Path) -> Path:
    """Path of the costed graph that belongs to the schedule at path ``schedule``."""
    return schedule.with_name(f"{schedule.stem}.graph.json")


def file_stem(name: str) -> str:
    """Convert the name of a graph to the stem of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def read_solved(
    schedule: Path | str, graph: Path | str | None = None
) -> tuple[CostedGraph, Schedule]:
    """Read a schedule and its costed graph, and check every figure that the schedule states.

    Args:
        schedule: Path of the schedule.
        graph: Path of the costed graph; None if it is in the same directory as the schedule.

    Returns:
        The costed graph and the schedule.

    Raises:
        DocumentError: A file is missing or invalid.
        InputError: The schedule is not one of the graph, its actions are not valid, or it states a
            figure that its actions do not have.
    """
    read = read_json(schedule, Schedule)
    costed = read_json(graph or graph_path(Path(schedule)), CostedGraph)
    require_true_figures(costed, read, str(schedule))
    return costed, read


def require_true_figures(graph: CostedGraph, schedule: Schedule, source: str) -> None:
    """Check every figure that a schedule states against the referee's replay of its actions.

    Args:
        graph: The schedule's costed graph.
        schedule: The schedule.
        source: Name of the schedule in error messages.

    Raises:
        InputError: A figure is wrong; the message names the first.
    """
    for sentence in wrong_figures(graph, schedule):
        raise InputError(f"{source}: {sentence}")


def write_solved(path: Path, graph: CostedGraph, schedule: Schedule) -> None:
    """Write a schedule to ``path`` and its costed graph to the same directory.

    Raises:
        OSError: A file cannot be written.
    """
    write_atomically(graph_path(path), dump_json(graph))
    write_atomically(path, dump_json(schedule))
