"""``plot``: pictures of profiles and schedules."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from commands.arguments import add_graph_beside, add_json, add_results
from commands.command import Command
from commands.console import Console
from devices.errors import ExitCode
from devices.results import Results


@dataclass(frozen=True)
class PlotOptions:
    """A profile (name or path), a schedule, or both. ``graph`` is the schedule's, where it does not
    lie beside it."""

    profile: str | None
    schedule: Path | None
    graph: Path | None
    directory: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> PlotOptions:
        """Raises :class:`argparse.ArgumentError` where nothing is to be drawn."""
        if not (namespace.profile or namespace.schedule):
            raise ArgumentError(None, "plot needs --profile or --schedule")
        return cls(
            profile=namespace.profile,
            schedule=namespace.schedule,
            graph=namespace.graph,
            directory=namespace.directory,
            results=namespace.results,
        )


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    parser.add_argument("--profile", help="op costs and paging costs of a profile")
    parser.add_argument("--schedule", type=Path, help="memory and stages of a schedule")
    add_graph_beside(parser)
    parser.add_argument("--directory", type=Path, help="for the pictures (results)")


def plot(options: PlotOptions, console: Console) -> int:
    """Draw, and name the files."""
    from devices.library import resolve_profile
    from plots.pictures import draw_profile, draw_schedule
    from solver.problem.files import read_solved

    directory = options.directory or options.results.root
    pictures: list[Path] = []
    if options.profile is not None:
        profile = resolve_profile(options.profile, options.results.profiles)
        pictures += draw_profile(profile, directory)
    if options.schedule is not None:
        graph, schedule = read_solved(options.schedule, options.graph)
        pictures += draw_schedule(graph, schedule, directory, options.schedule.stem)
    console.document({"pictures": [str(picture) for picture in pictures]})
    for picture in pictures:
        console.result(str(picture))
    return ExitCode.DONE


PLOT = Command(_add_options, PlotOptions.of, plot)
