"""All pictures of a profile and of a schedule."""

from __future__ import annotations

from pathlib import Path

from devices.profile import DeviceProfile
from plots.arena import arena
from plots.memory_timeline import memory_timeline
from plots.operation_costs import operation_costs
from plots.robustness import robustness
from plots.schedule_matrix import schedule_matrix
from plots.storage_costs import storage_costs
from solver.files.solved import file_stem
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule


def draw_profile(profile: DeviceProfile, directory: Path) -> list[Path]:
    """Draw the costs of operations and of storage, as far as the profile has them.

    Args:
        profile: Profile to draw.
        directory: Directory for the pictures, whose names start with the profile's name.

    Returns:
        The files written.
    """
    pictures, stem = [], file_stem(profile.name)
    if profile.operations:
        pictures.append(directory / f"{stem}-operations.png")
        operation_costs(profile, pictures[-1])
    if profile.storage is not None:
        pictures.append(directory / f"{stem}-storage.png")
        storage_costs(profile, pictures[-1])
    return pictures


def draw_schedule(graph: CostedGraph, schedule: Schedule, directory: Path, stem: str) -> list[Path]:
    """Draw memory and stages, and addresses and robustness if the schedule has them.

    Args:
        graph: Graph of the schedule.
        schedule: Schedule with actions.
        directory: Directory for the pictures.
        stem: Start of the pictures' names.

    Returns:
        The files written.
    """
    pictures = [directory / f"{stem}-memory.png", directory / f"{stem}-stages.png"]
    memory_timeline(graph, schedule, pictures[0])
    schedule_matrix(graph, schedule, pictures[1])
    if schedule.arena_bytes is not None:
        pictures.append(directory / f"{stem}-addresses.png")
        arena(graph, schedule, pictures[-1])
    if schedule.robustness is not None:
        pictures.append(directory / f"{stem}-robustness.png")
        robustness(schedule, pictures[-1])
    return pictures
