"""Files of a schedule: the schedule, and beside it its costed graph."""

from __future__ import annotations

import re
from pathlib import Path

from devices.documents.document import dump_json, read_json, write_atomically
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def graph_path(schedule: Path) -> Path:
    """Path of a schedule's costed graph, which lies beside it."""
    return schedule.with_name(f"{schedule.stem}.graph.json")


def file_stem(name: str) -> str:
    """A graph's name as the stem of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def read_solved(schedule: Path, graph: Path | None = None) -> tuple[CostedGraph, Schedule]:
    """A schedule and its graph; ``graph`` is its file where it does not lie beside the schedule.

    Raises :class:`~devices.documents.document.DocumentError`.
    """
    read = read_json(schedule, Schedule)
    return read_json(graph or graph_path(schedule), CostedGraph), read


def write_solved(path: Path, graph: CostedGraph, schedule: Schedule) -> None:
    """Write a schedule to ``path`` and its graph beside it. Raises :class:`OSError`."""
    write_atomically(graph_path(path), dump_json(graph))
    write_atomically(path, dump_json(schedule))
