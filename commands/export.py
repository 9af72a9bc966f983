"""``export``: a schedule for others to use, as a C project or as a trace."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from commands.arguments import add_graph_beside, add_json, add_results
from commands.command import Command
from commands.console import Console
from devices.documents.readable import size
from devices.errors import ExitCode, InputError
from devices.results import Results

if TYPE_CHECKING:
    from devices.profile import DeviceProfile
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

_Format: TypeAlias = Literal["c", "perfetto"]


@dataclass(frozen=True)
class ProjectTarget:
    """A C project for a board (any, where none is named); ``seed`` is that of initial values and
    generated samples."""

    device: str | None
    seed: int


@dataclass(frozen=True)
class TraceTarget:
    """A trace; of what ``run``, a run's directory, measured, too."""

    run: Path | None


@dataclass(frozen=True)
class ExportOptions:
    """``graph`` is the schedule's, where it does not lie beside it."""

    schedule: Path
    graph: Path | None
    target: ProjectTarget | TraceTarget
    out: Path | None
    results: Results

    @classmethod
    def of(cls, namespace: Namespace) -> ExportOptions:
        """Raises :class:`InputError` for an option of the other format."""
        return cls(
            schedule=namespace.schedule,
            graph=namespace.graph,
            target=_target(namespace),
            out=namespace.out,
            results=namespace.results,
        )


def _target(namespace: Namespace) -> ProjectTarget | TraceTarget:
    chosen: _Format = namespace.format
    if chosen == "perfetto":
        if namespace.device is not None:
            raise InputError("--device is for --format c: a trace is for no board in particular")
        return TraceTarget(namespace.run)
    if namespace.run is not None:
        raise InputError("--run is for --format perfetto: a C project holds no measurements")
    return ProjectTarget(namespace.device, namespace.seed)


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_results(parser)
    parser.add_argument("--schedule", type=Path, required=True)
    add_graph_beside(parser)
    parser.add_argument(
        "--format",
        choices=get_args(_Format),
        required=True,
        help="c: a project with executor, kernels and plan, and an example that trains; perfetto: a"
        " trace of ops, transfers and memory",
    )
    parser.add_argument(
        "--device",
        help="c: the board whose storage and compiler it is for (any: pages of 512 bytes)",
    )
    parser.add_argument(
        "--run", type=Path, metavar="DIRECTORY", help="perfetto: what this run measured, too"
    )
    parser.add_argument("--out", type=Path, metavar="DIRECTORY", help="c: results/export/SCHEDULE")
    parser.add_argument(
        "--seed", type=int, default=0, help="c: of initial values and generated samples (0)"
    )


def export(options: ExportOptions, console: Console) -> int:
    """Write the project or the trace."""
    from solver.problem.files import read_solved

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
    from solver.referee.referee import RefereeError

    if not schedule.actions:
        raise InputError(f"{options.schedule}: has no actions: it is {schedule.status}")
    report = None if target.run is None else read_report_of(target.run, graph, schedule)
    try:
        trace = perfetto_trace(graph, schedule, report)
    except RefereeError as error:
        raise InputError(f"{options.schedule}: is no schedule of {graph.name}: {error}") from error
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
    from replay.export.directory import write_project
    from replay.export.project import schedule_project

    description = None if target.device is None else load_description(target.device)
    profile = _profile(graph, options.results)
    exported = schedule_project(
        graph, schedule, options.schedule.name, profile, description, target.seed
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
            "written_bytes_a_step": layout.written_bytes,
        }
    )
    console.result(f"project   {directory}: {len(project.files)} files; begin with README.md")
    if exported.blas:
        console.result("BLAS      OpenBLAS, as profiled: building it takes libopenblas-dev")
    console.result(
        f"RAM       {size(plan.arena_bytes)} of arena, {size(footprint.ram_bytes)} of the plan"
    )
    console.result(f"flash     {size(footprint.flash_bytes)} of tables, besides the code")
    if plan.pages:
        console.result(
            f"storage   {size(layout.least_scratch_bytes)} at least, in pages of"
            f" {layout.page_bytes} bytes"
        )
    return ExitCode.DONE


def _profile(graph: CostedGraph, results: Results) -> DeviceProfile | None:
    """None where it is not on this computer, or the graph does not say which it is."""
    from devices.documents.document import DocumentError
    from devices.library import resolve_profile

    if graph.origin is None:
        return None
    try:
        return resolve_profile(graph.origin.profile, results.profiles)
    except DocumentError:
        return None


EXPORT = Command(_add_options, ExportOptions.of, export)
