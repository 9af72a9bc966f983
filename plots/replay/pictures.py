"""All pictures of a replay."""

from __future__ import annotations

from pathlib import Path

from devices.replay import ReplayReport
from plots.replay.energies import energies_of_activities
from plots.replay.memory import replayed_memory
from plots.replay.power import replayed_power
from plots.replay.times import predicted_against_measured
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def draw_replay(
    graph: CostedGraph, schedule: Schedule, report: ReplayReport, directory: Path
) -> list[Path]:
    """Draw times and memory of a replay, and power and energies if they are known.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule that was replayed.
        report: Report of the replay.
        directory: Directory for the pictures.

    Returns:
        The files written.
    """
    pictures = [directory / "times.png", directory / "memory.png"]
    predicted_against_measured(report, pictures[0])
    replayed_memory(graph, schedule, report, pictures[1])
    if report.power is not None:
        pictures.append(directory / "power.png")
        replayed_power(report, pictures[-1])
    if report.activity_energies is not None:
        pictures.append(directory / "energies.png")
        energies_of_activities(report, pictures[-1])
    return pictures
