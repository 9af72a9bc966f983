"""Export a schedule: gather the arguments of :func:`~replay.export.export.c_project`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from devices.description import DeviceDescription, Storage
from devices.documents.readable import si
from devices.errors import InputError
from devices.plan import ExecutionPlan
from devices.profile import DeviceProfile
from networks.data import generated_batches
from networks.rates import RateSchedule
from networks.training import TrainingStep
from networks.training.accumulation import part_of
from networks.training.initial import initial_values
from profiler.building.firmware_image import firmware_identity
from profiler.building.sources import KERNELS, read_sources, sources_hash
from profiler.building.toolchain import KERNEL_FLAGS
from replay.export.export import Compilation, Project, Provenance, c_project
from replay.export.tables import TrainingData, workspace_queries
from replay.lowering.lowering import lower
from replay.running.twin import host_twin
from replay.runs import planned_workspace, training_step_of
from solver.files.origin import require_profile_of
from solver.problem.graph import CostedGraph, Origin
from solver.problem.schedule import Schedule

_BATCHES = 8
_PAGE_BYTES = 512  # the block of an SD card, where no board says otherwise


@dataclass(frozen=True)
class ScheduleProject:
    """A schedule's project and plan; ``blas`` is whether OpenBLAS computes its matrix products."""

    project: Project
    plan: ExecutionPlan
    blas: bool


@dataclass(frozen=True)
class Updates:
    """How the example updates parameters.

    Attributes:
        highest_rate: the highest learning rate; None for the optimizer's own.
        course: how the rate changes over ``steps`` steps; None for the same in every step.
        steps: number of steps; later ones have the rate of the last.
        momentum: the momentum of the velocity; None for the optimizer's own.
        weight_decay: the decay of parameters; None for the optimizer's own.
    """

    highest_rate: float | None = None
    course: RateSchedule | None = None
    steps: int = 1
    momentum: float | None = None
    weight_decay: float | None = None


def schedule_project(
    graph: CostedGraph,
    schedule: Schedule,
    name: str,
    profile: DeviceProfile | None,
    description: DeviceDescription | None,
    seed: int,
    updates: Updates,
) -> ScheduleProject:
    """Make the C project of a schedule.

    Args:
        graph: the schedule's graph.
        schedule: the schedule.
        name: name of the schedule's file.
        profile: the graph's profile; None where this computer does not have it.
        description: the board that the project is for; None for any board.
        seed: seed of initial values and samples.
        updates: how the example updates parameters.

    Raises:
        InputError: the graph has no origin, is not from the profile, the kernels differ from the
            profiled ones, also in their flags for a microcontroller, the optimizer has no momentum,
            or the board lacks the storage that the schedule needs.
        BuildFailed: the board is a microcontroller that is not supported, or has no compiler.
        LoweringError: the schedule cannot be run on a board.
    """
    step = training_step_of(graph).updating_with(
        learning_rate=updates.highest_rate,
        momentum=updates.momentum,
        weight_decay=updates.weight_decay,
    )
    assert graph.origin is not None
    origin = graph.origin
    workspace_bytes = planned_workspace(step, graph)
    plan = lower(step, graph, schedule, workspace_bytes)
    if profile is not None:
        require_profile_of(graph, profile)
    _require_profiled_kernels(origin, profile, description)
    if origin.kernels_sha256 is None:
        _require_no_workspace(graph, plan)
    compilation = _compilation(origin, profile, description)
    project = c_project(
        plan,
        _storage(plan, description),
        workspace_bytes,
        training_data(step, seed, updates),
        compilation,
        _provenance(origin, graph.energy_source, schedule, name, step.title),
    )
    return ScheduleProject(project, plan, blas=compilation.blas)


def _require_profiled_kernels(
    origin: Origin, profile: DeviceProfile | None, description: DeviceDescription | None
) -> None:
    """Check that the kernels, with the flags that the project has for them, are the profiled ones.

    A plan has room for their workspace only. A microcontroller has flags of its own; other boards
    take those of the profile.
    """
    if origin.kernels_sha256 is None:
        return
    if description is not None and description.firmware is not None:
        kernels_sha256 = firmware_identity(description).kernels_sha256
        remedy = f"measure {description.name} and solve again, or export without --device"
    elif profile is not None and profile.build is not None:
        kernels_sha256 = sources_hash(read_sources(KERNELS), profile.build.flags)
        remedy = f"measure {origin.profile} again and solve again"
    else:
        return
    if kernels_sha256 != origin.kernels_sha256:
        raise InputError(
            f"the costs of the schedule were measured on {origin.profile} with other kernels or"
            " other compiler flags than this project would have",
            remedy=remedy,
        )


def _require_no_workspace(graph: CostedGraph, plan: ExecutionPlan) -> None:
    queries = workspace_queries((KERNELS / "registry.c").read_text(encoding="utf-8"))
    needing = [op.op for op in plan.computes if op.spec.kind in queries]
    if needing:
        raise InputError(
            f"{graph.name}: its costs are published figures, which do not state with which flags"
            f" kernels are compiled, but the workspace of {needing[0]} depends on them",
            remedy="solve with a measured profile",
        )


def _storage(plan: ExecutionPlan, description: DeviceDescription | None) -> Storage | None:
    """The board's storage; without a board, a file with pages of an SD card's block size."""
    if description is None:
        return Storage(medium="disk", path=".", page_bytes=_PAGE_BYTES)
    if plan.pages and description.storage is None:
        raise InputError(
            f"{description.name}: the board has no storage, but the schedule pages",
            remedy="solve with --no-paging, or describe the board's storage",
        )
    return description.storage


def training_data(step: TrainingStep, seed: int, updates: Updates) -> TrainingData:
    """Initial values, generated batches and learning rates of the example."""
    batches = generated_batches(step, _BATCHES * step.batch, seed)
    return TrainingData(
        initial_values(step, seed),
        [batches.batch(index) for index in range(_BATCHES)],
        () if updates.course is None else updates.course.rates(step.learning_rate, updates.steps),
        {
            part_of(name, number, step.accumulate)
            for name in step.network.truths
            for number in range(1, step.accumulate + 1)
        },
    )


def _compilation(
    origin: Origin, profile: DeviceProfile | None, description: DeviceDescription | None
) -> Compilation:
    blas = origin.matmul == "cblas"
    if description is not None and description.firmware is not None:
        flags = description.toolchain.flags
        return Compilation(
            host_twin(description).toolchain.flags,
            f"The example is compiled to compute the same bits as {description.name}.",
            (description.toolchain.compiler, flags),
        )
    if profile is None or profile.build is None:
        known = ("-O2",) if description is None else description.toolchain.flags
        return Compilation(
            known, "The flags with which the kernels were profiled are unknown.", None, blas
        )
    flags = tuple(_board_flags(profile.build.flags))
    cross = re.match(r"\S+-g?cc\b", profile.build.compiler)
    if cross is not None:
        return Compilation(
            ("-O2", "-DJW_SMALL_MEMORY=1"),
            f"The kernels were profiled on {origin.profile}. On this computer the example runs them"
            " with small tiles, which need no more workspace than any board's plan has, and may"
            " compute other bits; export with --device for an example that computes the same bits.",
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
    """The flags without those of every build and those that select a BLAS."""
    return (
        flag for flag in flags if flag not in KERNEL_FLAGS and not flag.startswith("-DJW_CBLAS")
    )


def _provenance(
    origin: Origin, energy_source: str | None, schedule: Schedule, name: str, title: str
) -> Provenance:
    source = energy_source or "not stated"
    kernels = f" with kernels {origin.kernels_sha256[:12]}" if origin.kernels_sha256 else ""
    assert schedule.energy_j is not None
    assert schedule.time_s is not None
    return Provenance(
        schedule=name,
        network=f"{title}, trained with {origin.optimizer}",
        costs=(
            f"The schedule was solved with the costs of the profile `{origin.profile}`{kernels}:"
            " the time and energy of each operation and each transfer."
            f" With them a step takes {si(schedule.time_s, 's')} and {si(schedule.energy_j, 'J')}"
            f" (energy_source: {source}); on another board its costs differ, and another schedule"
            " may be better."
        ),
    )
