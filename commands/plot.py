"""``plot``: pictures of profiles and schedules."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import Console
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.profile import DeviceProfile


def plot(arguments: Namespace, console: Console) -> int:
    from devices.library import resolve_profile

    directory = arguments.directory or arguments.results.root
    pictures: list[Path] = []
    if arguments.profile is not None:
        profile = resolve_profile(arguments.profile, arguments.results.profiles)
        pictures += plot_profile(profile, directory)
    if arguments.schedule is not None:
        pictures += plot_schedule(arguments.schedule, arguments.graph, directory)
    console.document({"pictures": [str(picture) for picture in pictures]})
    for picture in pictures:
        console.result(str(picture))
    return ExitCode.DONE


def plot_profile(profile: DeviceProfile, directory: Path) -> list[Path]:
    from plots.operation_costs import operation_costs
    from plots.storage_costs import storage_costs

    pictures = []
    if profile.operations:
        pictures.append(directory / f"{profile.name}-operations.png")
        operation_costs(profile, pictures[-1])
    if profile.storage is not None:
        pictures.append(directory / f"{profile.name}-storage.png")
        storage_costs(profile, pictures[-1])
    return pictures


def plot_schedule(schedule_path: Path, graph_path: Path | None, directory: Path) -> list[Path]:
    from commands.solve import graph_path as beside
    from devices.documents.document import read_json
    from plots.arena import arena
    from plots.memory_timeline import memory_timeline
    from plots.robustness import robustness
    from plots.schedule_matrix import schedule_matrix
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

    schedule = read_json(schedule_path, Schedule)
    graph = read_json(graph_path or beside(schedule_path), CostedGraph)
    memory = directory / f"{schedule_path.stem}-memory.png"
    stages = directory / f"{schedule_path.stem}-stages.png"
    memory_timeline(graph, schedule, memory)
    schedule_matrix(graph, schedule, stages)
    pictures = [memory, stages]
    if schedule.arena_bytes is not None:
        pictures.append(directory / f"{schedule_path.stem}-addresses.png")
        arena(graph, schedule, pictures[-1])
    if schedule.robustness is not None:
        pictures.append(directory / f"{schedule_path.stem}-robustness.png")
        robustness(schedule, pictures[-1])
    return pictures
