"""Files of a schedule: the schedule itself, and its costed graph in the same directory."""

from __future__ import annotations

import re
from pathlib import Path

from devices.documents.document import dump_json, read_json, write_atomically
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def graph_path(schedule: Path) -> Path:
    """Path of the costed graph that belongs to the schedule at path ``schedule``."""
    return schedule.with_name(f"{schedule.stem}.graph.json")


def file_stem(name: str) -> str:
    """Convert the name of a graph to the stem of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def read_solved(schedule: Path, graph: Path | None = None) -> tuple[CostedGraph, Schedule]:
    """Read a schedule and its costed graph.

    Args:
        schedule: Path of the schedule.
        graph: Path of the costed graph; None if it is in the same directory as the schedule.

    Returns:
        The costed graph and the schedule.

    Raises:
        DocumentError: A file is missing or invalid.
    """
    read = read_json(schedule, Schedule)
    return read_json(graph or graph_path(schedule), CostedGraph), read


def write_solved(path: Path, graph: CostedGraph, schedule: Schedule) -> None:
    """Write a schedule to ``path`` and its costed graph to the same directory.

    Raises:
        OSError: A file cannot be written.
    """
    write_atomically(graph_path(path), dump_json(graph))
    write_atomically(path, dump_json(schedule))
