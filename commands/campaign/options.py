"""Options of ``campaign``: its actions ``run``, ``status`` and ``compare``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from commands.arguments import add_json, add_results, count, fraction
from commands.campaign.sharing import (
    PackOptions,
    ReportOptions,
    SharingOptions,
    UnpackOptions,
)
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


@dataclass(frozen=True)
class CompareOptions:
    """Compare two campaigns, or two levels, each stated as the user wrote it."""

    first: str
    second: str
    margin: float
    results: Results


CampaignOptions: TypeAlias = RunOptions | StatusOptions | CompareOptions | SharingOptions

_MARGIN = 0.02


def options_of(namespace: Namespace) -> CampaignOptions:
    """Read the options of the action that is named."""
    if namespace.action == "status":
        return StatusOptions(namespace.name, namespace.results)
    if namespace.action == "compare":
        return CompareOptions(
            namespace.first, namespace.second, namespace.margin, namespace.results
        )
    if namespace.action == "report":
        return ReportOptions(namespace.name, namespace.out, namespace.results)
    if namespace.action == "pack":
        return PackOptions(namespace.name, namespace.out, namespace.results)
    if namespace.action == "unpack":
        return UnpackOptions(namespace.archive, namespace.out, namespace.results)
    return RunOptions(
        file=namespace.file,
        jobs=namespace.jobs,
        scheduler=namespace.scheduler,
        dry_run=namespace.dry_run,
        results=namespace.results,
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the actions of ``campaign``."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="run|status|compare|report|pack|unpack"
    )
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

    compare = actions.add_parser("compare", help="compare two campaigns, or two levels of one")
    add_json(compare)
    add_results(compare)
    for name in ("first", "second"):
        compare.add_argument(
            name,
            metavar=name.upper(),
            help="name or directory of a campaign, or NAME:LEVEL for the cells of one level, such"
            " as a condition or a method",
        )
    compare.add_argument(
        "--margin",
        type=fraction,
        default=_MARGIN,
        metavar="X",
        help=f"largest change at which two count as the same, as a fraction ({_MARGIN})",
    )
    report = actions.add_parser("report", help="write the report of a campaign, one HTML file")
    pack = actions.add_parser("pack", help="write a campaign and its report to one archive")
    unpack = actions.add_parser("unpack", help="unpack an archive that another lab has packed")
    _add_sharing(report, pack, unpack)


def _add_sharing(report: ArgumentParser, pack: ArgumentParser, unpack: ArgumentParser) -> None:
    for parser in (report, pack, unpack):
        add_json(parser)
        add_results(parser)
    for parser in (report, pack):
        parser.add_argument("name", metavar="NAME", help="name or directory of a campaign")
    unpack.add_argument("archive", type=Path, metavar="ARCHIVE", help="file that pack has written")
    for parser, metavar, default in (
        (report, "FILE", "report.html in the campaign's directory"),
        (pack, "FILE", "NAME.campaign.zip beside the campaign's directory"),
        (unpack, "DIRECTORY", "the campaign's name among the other campaigns"),
    ):
        parser.add_argument("--out", type=Path, metavar=metavar, help=f"what to write ({default})")
