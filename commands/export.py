"""Command ``export``: write a schedule as a C project or as a trace."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from commands.arguments import (
    add_graph_beside,
    add_json,
    add_results,
    add_updates,
    count,
    seed,
)
from commands.command import Command
from commands.console import Console
from devices.documents.readable import size
from devices.errors import ExitCode, InputError
from devices.results import Results
from networks.rates import RateSchedule

if TYPE_CHECKING:
    from devices.profile import DeviceProfile
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

_Format: TypeAlias = Literal["c", "perfetto"]


@dataclass(frozen=True)
class ProjectTarget:
    """A C project for a board, or for any board where ``device`` is None.

    ``seed`` determines initial values and generated samples. ``learning_rate``, ``momentum`` and
    ``weight_decay`` are None for the optimizer's own; the rate follows ``rate_schedule`` over
    ``steps`` steps (None: constant).
    """

    device: str | None
    seed: int
    learning_rate: float | None
    rate_schedule: RateSchedule | None
    momentum: float | None
    weight_decay: float | None
    steps: int


@dataclass(frozen=True)
class TraceTarget:
    """A trace of the schedule, and of the measurements in the directory ``run``, if given."""

    run: Path | None


@dataclass(frozen=True)
class ExportOptions:
    """Schedule to export, and format; ``graph`` is None if its file lies beside the schedule."""

    schedule: Path
    graph: Path | None
    target: ProjectTarget | TraceTarget
    out: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> ExportOptions:
        """Read the options.

        Raises:
            InputError: An option belongs to the other format.
        """
        return cls(
            schedule=namespace.schedule,
            graph=namespace.graph,
            target=_target(namespace),
            out=namespace.out,
            results=namespace.results,
        )


# Options of a C project, with their values unless they are given.
_OF_PROJECT: Mapping[str, object] = {
    "device": None,
    "seed": 0,
    "learning_rate": None,
    "rate_schedule": None,
    "momentum": None,
    "weight_decay": None,
    "steps": None,
}


def _target(namespace: Namespace) -> ProjectTarget | TraceTarget:
    chosen: _Format = namespace.format
    if chosen == "perfetto":
        values = vars(namespace)
        given = [name for name, default in _OF_PROJECT.items() if values[name] != default]
        for name in given:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for --format c only; leave it out for a trace")
        return TraceTarget(namespace.run)
    if namespace.run is not None:
        raise InputError("--run is for --format perfetto only; leave it out for a C project")
    if (namespace.rate_schedule is None) != (namespace.steps is None):
        raise InputError("--rate-schedule and --steps belong together; give both, or neither")
    return ProjectTarget(
        namespace.device,
        namespace.seed,
        namespace.learning_rate,
        namespace.rate_schedule,
        namespace.momentum,
        namespace.weight_decay,
        namespace.steps or 1,
    )


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    parser.add_argument(
        "--schedule", type=Path, required=True, help="schedule file that solve has written"
    )
    add_graph_beside(parser)
    parser.add_argument(
        "--format",
        choices=get_args(_Format),
        required=True,
        help="c: a project with executor, kernels, plan and an example program that trains;"
        " perfetto: a trace of ops, transfers and memory",
    )
    parser.add_argument(
        "--device",
        help="c: board that determines compiler and storage (any board, with 512-byte pages)",
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIRECTORY",
        help="perfetto: directory of a run; the trace then has its measurements too",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="directory to write to (c: results/export/SCHEDULE; perfetto: results/export)",
    )
    parser.add_argument(
        "--seed",
        type=seed,
        default=_OF_PROJECT["seed"],
        help="c: seed of initial values and generated samples (0)",
    )
    add_updates(parser, prefix="c: ")
    parser.add_argument(
        "--steps",
        type=count,
        help="c: number of steps of --rate-schedule; later steps have the rate of the last",
    )


def export(options: ExportOptions, console: Console) -> int:
    """Write the C project or the trace."""
    from devices.documents.document import require_writable
    from solver.files.solved import read_solved

    require_writable((options.out or options.results.exports) / "file")
    graph, schedule = read_solved(options.schedule, options.graph)
    match options.target:
        case TraceTarget():
            return _export_trace(options, options.target, console, graph, schedule)
        case ProjectTarget():
            return _export_project(options, options.target, console, graph, schedule)


def _export_trace(
    options: ExportOptions,
    target: TraceTarget,
    console: Console,
    graph: CostedGraph,
    schedule: Schedule,
) -> int:
    from devices.documents.document import write_atomically
    from plots.perfetto import perfetto_trace
    from replay.directory import read_report_of

    if not schedule.actions:
        raise InputError(
            f"{options.schedule}: this file has no actions to export: its status is"
            f" {schedule.status}"
        )
    report = None if target.run is None else read_report_of(target.run, graph, schedule)
    trace = perfetto_trace(graph, schedule, report)
    path = (options.out or options.results.exports) / f"{options.schedule.stem}.trace.json"
    write_atomically(path, json.dumps(trace))
    console.document({"files": [str(path)]})
    console.result(f"trace     {path}")
    console.say("open it at https://ui.perfetto.dev, or in Chrome at chrome://tracing")
    return ExitCode.DONE


def _export_project(
    options: ExportOptions,
    target: ProjectTarget,
    console: Console,
    graph: CostedGraph,
    schedule: Schedule,
) -> int:
    from devices.description import load_description
    from profiler.building.store_layout import expected_written_bytes
    from replay.export.directory import write_project
    from replay.export.project import Updates, schedule_project

    description = None if target.device is None else load_description(target.device)
    profile = _profile(graph, options.results)
    exported = schedule_project(
        graph,
        schedule,
        options.schedule.name,
        profile,
        description,
        target.seed,
        Updates(
            target.learning_rate,
            target.rate_schedule,
            target.steps,
            momentum=target.momentum,
            weight_decay=target.weight_decay,
        ),
    )
    plan, project = exported.plan, exported.project
    directory = options.out or options.results.exports / options.schedule.stem
    write_project(project.files, directory)
    footprint, layout = project.footprint, project.layout
    console.document(
        {
            "directory": str(directory),
            "files": sorted(project.files),
            "arena_bytes": plan.arena_bytes,
            "plan_ram_bytes": footprint.ram_bytes,
            "plan_flash_bytes": footprint.flash_bytes,
            "storage_bytes": layout.least_scratch_bytes,
            "written_bytes_a_step": expected_written_bytes(plan, layout),
        }
    )
    console.result(f"project   {directory}: {len(project.files)} files; begin with README.md")
    if exported.blas:
        console.result("BLAS      OpenBLAS, as profiled: to build, install libopenblas-dev")
    console.result(
        f"RAM       {size(plan.arena_bytes)} for arena, {size(footprint.ram_bytes)} for plan"
    )
    console.result(f"flash     {size(footprint.flash_bytes)} for tables, besides the code")
    if plan.pages:
        console.result(
            f"storage   {size(layout.least_scratch_bytes)} at least, in pages of"
            f" {layout.page_bytes} bytes"
        )
    return ExitCode.DONE


def _profile(graph: CostedGraph, results: Results) -> DeviceProfile | None:
    """Return the graph's profile; None if the graph names none or it is not on this computer.

    Raises :class:`DocumentError` for a damaged profile.
    """
    from devices.library import NoProfile, resolve_profile

    if graph.origin is None:
        return None
    try:
        return resolve_profile(graph.origin.profile, results.profiles)
    except NoProfile:
        return None


EXPORT = Command(_add_options, ExportOptions.of, export)
