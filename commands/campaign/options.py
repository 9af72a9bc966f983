"""Options of ``campaign``: its actions ``run``, ``status`` and ``compare``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from commands.arguments import add_json, add_results, count
from devices.results import Results


@dataclass(frozen=True)
class RunOptions:
    """Run the campaign of a file, or say what that would take.

    ``scheduler`` is the address of a Dask cluster that solves in place of ``jobs`` processes.
    """

    file: str
    jobs: int
    scheduler: str | None
    dry_run: bool
    results: Results


@dataclass(frozen=True)
class StatusOptions:
    """Show how far a campaign is."""

    name: str
    results: Results


CampaignOptions: TypeAlias = RunOptions | StatusOptions


def options_of(namespace: Namespace) -> CampaignOptions:
    """Read the options of the action that is named."""
    if namespace.action == "status":
        return StatusOptions(namespace.name, namespace.results)
    return RunOptions(
        file=namespace.file,
        jobs=namespace.jobs,
        scheduler=namespace.scheduler,
        dry_run=namespace.dry_run,
        results=namespace.results,
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the actions of ``campaign``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="run|status|compare")
    run = actions.add_parser("run", help="run a campaign, or go on with it")
    add_json(run)
    add_results(run)
    run.add_argument(
        "file",
        metavar="FILE",
        help="the campaign's file, or the name of one that comes with the project",
    )
    cores = os.cpu_count() or 1
    run.add_argument(
        "--jobs", type=count, default=cores, help=f"schedules searched at once ({cores})"
    )
    run.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address of a Dask scheduler whose cluster finds the schedules (none)",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print what is left to do and what it takes, without touching a board",
    )
    status = actions.add_parser("status", help="show how far a campaign is, while it runs or not")
    add_json(status)
    add_results(status)
    status.add_argument("name", metavar="NAME", help="name or directory of a campaign")


def campaign_directory(name: str, results: Results) -> Path:
    """The directory of a campaign that is named by its name or its path."""
    path = Path(name)
    return path if len(path.parts) > 1 or path.is_dir() else results.campaigns / name
