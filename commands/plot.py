"""Command ``plot``: draw profiles and schedules."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from commands.arguments import add_graph_beside, add_json, add_results
from commands.command import Command
from commands.console import Console
from devices.errors import ExitCode, InputError
from devices.results import Results


@dataclass(frozen=True)
class PlotOptions:
    """A profile (name or path), a schedule, or both.

    ``graph`` is None if the graph's file lies beside the schedule.
    """

    profile: str | None
    schedule: Path | None
    graph: Path | None
    directory: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> PlotOptions:
        """Read the options.

        Raises:
            argparse.ArgumentError: No profile and no schedule is given, or a graph without a
                schedule.
        """
        if not (namespace.profile or namespace.schedule):
            raise ArgumentError(None, "plot needs --profile or --schedule")
        if namespace.graph and not namespace.schedule:
            raise ArgumentError(
                None, "--graph is the costed graph of a schedule; add --schedule, or leave it out"
            )
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
    parser.add_argument(
        "--profile", help="draw op costs and paging costs of this profile (name or path)"
    )
    parser.add_argument(
        "--schedule", type=Path, help="draw memory and stages of this schedule file"
    )
    add_graph_beside(parser)
    parser.add_argument("--directory", type=Path, help="directory for the pictures (results)")


def plot(options: PlotOptions, console: Console) -> int:
    """Draw the pictures and print their paths."""
    from devices.documents.document import require_writable
    from devices.library import resolve_profile
    from plots.pictures import draw_profile, draw_schedule
    from solver.files.solved import read_solved

    directory = options.directory or options.results.root
    require_writable(directory / "picture.png")
    pictures: list[Path] = []
    if options.profile is not None:
        profile = resolve_profile(options.profile, options.results.profiles)
        pictures += draw_profile(profile, directory)
    if options.schedule is not None:
        graph, schedule = read_solved(options.schedule, options.graph)
        if not schedule.actions:
            raise InputError(
                f"{options.schedule}: this file has no actions to draw: its status is"
                f" {schedule.status}"
            )
        pictures += draw_schedule(graph, schedule, directory, options.schedule.stem)
    console.document({"pictures": [str(picture) for picture in pictures]})
    for picture in pictures:
        console.result(str(picture))
    return ExitCode.DONE


PLOT = Command(_add_options, PlotOptions.of, plot)
