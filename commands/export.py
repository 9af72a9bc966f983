"""``export``: a schedule for others to use, as a C project or as a trace."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from commands.console import Console, si, size
from commands.solve import graph_path
from devices.errors import ExitCode, InputError

if TYPE_CHECKING:
    from devices.description import DeviceDescription, Storage
    from devices.plan import ExecutionPlan
    from devices.profile import DeviceProfile
    from devices.results import Results
    from networks.training import TrainingStep
    from replay.export.export import Compilation, Provenance
    from replay.export.tables import TrainingData
    from solver.problem.graph import CostedGraph, Origin
    from solver.problem.schedule import Schedule

_BATCHES = 8
_PAGE_BYTES = 512  # the block of an SD card, where no board says otherwise


def export(arguments: Namespace, console: Console) -> int:
    from devices.documents.document import read_json
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Schedule

    schedule = read_json(arguments.schedule, Schedule)
    graph = read_json(arguments.graph or graph_path(arguments.schedule), CostedGraph)
    if arguments.format == "perfetto":
        return _export_trace(arguments, console, graph, schedule)
    return _export_project(arguments, console, graph, schedule)


# --- perfetto -------------------------------------------------------------------------------------


def _export_trace(
    arguments: Namespace, console: Console, graph: CostedGraph, schedule: Schedule
) -> int:
    from commands.run import REPORT, SCHEDULE
    from devices.documents.document import read_json, write_atomically
    from devices.replay import ReplayReport
    from plots.perfetto import perfetto_trace
    from solver.problem.schedule import Schedule
    from solver.referee.referee import RefereeError

    if arguments.device is not None:
        raise InputError("--device is for --format c: a trace is for no board in particular")
    if not schedule.actions:
        raise InputError(f"{arguments.schedule}: has no actions: it is {schedule.status}")
    report = None
    if arguments.run is not None:
        report = read_json(arguments.run / REPORT, ReplayReport)
        if report.graph != graph.name:
            raise InputError(f"{arguments.run}: is a run of {report.graph}, not of {graph.name}")
        if read_json(arguments.run / SCHEDULE, Schedule).actions != schedule.actions:
            raise InputError(f"{arguments.run}: is a run of another schedule of {graph.name}")
    try:
        trace = perfetto_trace(graph, schedule, report)
    except RefereeError as error:
        raise InputError(
            f"{arguments.schedule}: is no schedule of {graph.name}: {error}"
        ) from error
    path = (arguments.out or arguments.results.exports) / f"{arguments.schedule.stem}.trace.json"
    write_atomically(path, json.dumps(trace))
    console.document({"files": [str(path)]})
    console.result(f"trace     {path}")
    console.say("open it at https://ui.perfetto.dev, or in Chrome at chrome://tracing")
    return ExitCode.DONE


# --- C --------------------------------------------------------------------------------------------


def _export_project(
    arguments: Namespace, console: Console, graph: CostedGraph, schedule: Schedule
) -> int:
    from devices.description import load_description
    from replay.export.directory import write_project
    from replay.export.export import c_project
    from replay.lowering.lowering import lower
    from replay.runs import planned_workspace, training_step_of

    if arguments.run is not None:
        raise InputError("--run is for --format perfetto: a C project holds no measurements")
    step = training_step_of(graph)
    assert graph.origin is not None
    origin = graph.origin
    workspace_bytes = planned_workspace(step, graph)
    plan = lower(step, graph, schedule, workspace_bytes)
    description = None if arguments.device is None else load_description(arguments.device)
    profile = _profile(origin, arguments.results)
    _require_profiled_kernels(origin, profile)
    if origin.kernels_sha256 is None:
        _require_no_workspace(graph, plan)
    project = c_project(
        plan,
        _storage(plan, description),
        workspace_bytes,
        _training(step, arguments.seed),
        _compilation(origin, profile, description),
        _provenance(origin, graph.energy_source, schedule, arguments.schedule.name, step.title),
    )
    directory = arguments.out or arguments.results.exports / arguments.schedule.stem
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
    if origin.matmul == "cblas":
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


def _profile(origin: Origin, results: Results) -> DeviceProfile | None:
    """None where it is not on this computer."""
    from devices.documents.document import DocumentError
    from devices.library import resolve_profile

    try:
        return resolve_profile(origin.profile, results.profiles)
    except DocumentError:
        return None


def _require_profiled_kernels(origin: Origin, profile: DeviceProfile | None) -> None:
    from profiler.building.toolchain import KERNELS, read_sources, sources_hash

    if profile is None or profile.build is None or origin.kernels_sha256 is None:
        return
    if sources_hash(read_sources(KERNELS), profile.build.flags) != origin.kernels_sha256:
        raise InputError(
            "the costs of the schedule were measured with other kernels, or other compiler flags,"
            " than there are now",
            remedy=f"measure {origin.profile} again and solve again",
        )


def _require_no_workspace(graph: CostedGraph, plan: ExecutionPlan) -> None:
    from profiler.building.toolchain import KERNELS
    from replay.export.tables import workspace_queries

    queries = workspace_queries((KERNELS / "registry.c").read_text(encoding="utf-8"))
    needing = [op.op for op in plan.computes if op.spec.kind in queries]
    if needing:
        raise InputError(
            f"{graph.name}: its costs are published figures, which do not say how much workspace"
            f" kernels need, and {needing[0]} needs some",
            remedy="solve with a measured profile",
        )


def _storage(plan: ExecutionPlan, description: DeviceDescription | None) -> Storage | None:
    """The board's, or one that asks little."""
    from devices.description import Storage

    if description is None:
        return Storage(medium="disk", path=".", page_bytes=_PAGE_BYTES)
    if plan.pages and description.storage is None:
        raise InputError(
            f"{description.name}: has no storage, and the schedule pages",
            remedy="solve with --no-paging, or describe the board's storage",
        )
    return description.storage


def _training(step: TrainingStep, seed: int) -> TrainingData:
    from networks.data import generated_batches
    from networks.training.initial import initial_values
    from replay.export.tables import TrainingData

    batches = generated_batches(step, _BATCHES * step.batch, seed)
    return TrainingData(
        initial_values(step, seed), [batches.batch(index) for index in range(_BATCHES)]
    )


def _compilation(
    origin: Origin, profile: DeviceProfile | None, description: DeviceDescription | None
) -> Compilation:
    from replay.export.export import Compilation
    from replay.running.twin import host_twin

    blas = origin.matmul == "cblas"
    if description is not None and description.firmware is not None:
        flags = description.toolchain.flags
        return Compilation(
            host_twin(description).toolchain.flags,
            f"The example is compiled to compute the bits that {description.name} does.",
            (description.toolchain.compiler, flags),
        )
    if profile is None or profile.build is None:
        known = ("-O2",) if description is None else description.toolchain.flags
        return Compilation(
            known, "With which flags the kernels were profiled is not known.", None, blas
        )
    flags = tuple(_board_flags(profile.build.flags))
    cross = re.match(r"\S+-g?cc\b", profile.build.compiler)
    if cross is not None:
        return Compilation(
            ("-O2",),
            f"The kernels were profiled on {origin.profile}, where the example may compute other"
            " bits; export with --device for one that computes the same.",
            (cross[0], flags),
            blas,
        )
    return Compilation(
        flags,
        f"CFLAGS are those that the kernels were profiled with on {origin.profile}"
        f" ({profile.build.compiler}).",
        None,
        blas,
    )


def _board_flags(flags: tuple[str, ...]) -> Iterator[str]:
    """Without those that every build has, and those that say which BLAS."""
    from profiler.building.toolchain import KERNEL_FLAGS

    return (
        flag for flag in flags if flag not in KERNEL_FLAGS and not flag.startswith("-DJW_CBLAS")
    )


def _provenance(
    origin: Origin, energy_source: str | None, schedule: Schedule, name: str, title: str
) -> Provenance:
    from replay.export.export import Provenance

    source = energy_source or "of a source that is not stated"
    kernels = f" with kernels {origin.kernels_sha256[:12]}" if origin.kernels_sha256 else ""
    assert schedule.energy_j is not None
    assert schedule.time_s is not None
    return Provenance(
        schedule=name,
        network=f"{title}, trained with {origin.optimizer}",
        costs=(
            f"The schedule was found by the costs of the profile `{origin.profile}`{kernels}: what"
            " each operation and each transfer takes of time and energy."
            f" By them a step takes {si(schedule.time_s, 's')} and {si(schedule.energy_j, 'J')}"
            f" (energy_source: {source}); on another board it takes something else, and another"
            " schedule may be the best."
        ),
    )
