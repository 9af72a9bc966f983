"""Schedule of a cell: cost its graph, use a known schedule of it, or find one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from campaigns.design.cells import Cell, Design, NetworkLevel
from campaigns.design.file import NO_DEADLINE, SOLVED, MethodChoice
from campaigns.keeping.records import Beginning, Circumstances, SolvedCell
from campaigns.running.profiling import step_of
from devices.errors import InputError
from devices.profile import DeviceProfile
from solver.baselines.scheduled import schedule_by_baseline
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.files.solved import file_stem, read_solved
from solver.options import Coverage, SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget, PageIn, PageOut, Schedule
from solver.referee.referee import Replay, replay
from solver.solving.solving import solve_graph


@dataclass(frozen=True)
class CostedNetwork:
    """A network's costed graph on one board, and its step with nothing recomputed or paged.

    ``profile`` is the file that the costs are from, relative to the campaign's directory; None for
    a profile that the design states in full. Costs of ``predicted`` operations were not measured.
    ``known`` are schedules that ``solve`` has written for the same graph.
    """

    graph: CostedGraph
    kept: Replay
    profile: str | None
    predicted: int
    known: tuple[Schedule, ...]


def costed_network(
    level: NetworkLevel,
    batch: int | None,
    profile: DeviceProfile,
    file: str | None,
    covers: Coverage,
    known_in: Path | None = None,
) -> CostedNetwork:
    """Cost a network's training step, and look for schedules of it in the directory ``known_in``.

    Raises:
        InputError: The network cannot be built, or the profile does not cover it.
    """
    costing = cost_graph(step_of(level, batch, level.choice.parameters_in), profile)
    kept = replay(costing.graph, keep_everything(costing.graph), covers)
    known = () if known_in is None else tuple(_schedules_of(costing.graph, known_in))
    return CostedNetwork(costing.graph, kept, file, len(costing.predicted), known)


def _schedules_of(graph: CostedGraph, directory: Path) -> Iterator[Schedule]:
    """The schedules that ``solve`` has written for a graph."""
    for path in sorted(directory.glob(f"{file_stem(graph.name)}*.json")):
        with suppress(InputError):  # a graph beside its schedule, or a damaged file
            of, schedule = read_solved(path)
            if of == graph:
                yield schedule


@dataclass(frozen=True)
class SolveJob:
    """The search for a cell's schedule.

    ``budget`` is what the cell's words mean for the graph. A schedule that is ``known`` is not
    searched again.
    """

    cell: Cell
    method: MethodChoice
    costed: CostedNetwork
    budget: Budget
    known: Schedule | None = None

    @classmethod
    def of(cls, cell: Cell, design: Design, costed: CostedNetwork) -> SolveJob:
        """The search that a cell asks for.

        Raises:
            InputError: A budget or deadline is not possible.
        """
        method, kept = design.method_by_name[cell.method], costed.kept
        budget = Budget(
            ram_bytes=parse_ram_bytes(cell.ram_budget, kept.peak_bytes),
            covers=design.budget_covers,
            deadline_s=None
            if cell.deadline == NO_DEADLINE
            else parse_deadline_s(cell.deadline, kept.time_s),
            paging=method.paging,
            rematerialization=method.rematerialization,
        )
        return cls(cell, method, costed, budget, _known_schedule(costed.known, budget, method))


def _known_schedule(
    known: tuple[Schedule, ...], budget: Budget, method: MethodChoice
) -> Schedule | None:
    """A schedule for the same budget that is as good as asked."""
    if method.method != SOLVED or (method.formulation, method.order) != ("auto", "auto"):
        return None
    for schedule in known:
        is_same = schedule.budget == budget and schedule.robustness is None
        if is_same and schedule.gap is not None and schedule.gap <= method.gap:
            return schedule
    return None


def solve(job: SolveJob) -> tuple[Schedule, Circumstances]:
    """Find the schedule of a cell, in one thread.

    Raises:
        EngineFailed: The process of an engine failed, and no schedule was found.
    """
    began = Beginning()
    if job.known is not None:
        return job.known, Circumstances.since(began)
    method, graph = job.method, job.costed.graph
    if method.method == SOLVED:
        options = SolverOptions(
            formulation=method.formulation,
            order=method.order,
            gap=method.gap,
            threads=1,
            time_limit_s=method.time_limit_s,
        )
        schedule = solve_graph(graph, job.budget, options)
    else:
        schedule = schedule_by_baseline(graph, job.budget, method.method, method.time_limit_s)
    return schedule, Circumstances.since(began)


def record_of(job: SolveJob, schedule: Schedule, circumstances: Circumstances) -> SolvedCell:
    """The record of a solved cell."""
    kept, budget = job.costed.kept, job.budget
    actions = schedule.actions
    played = replay(job.costed.graph, actions, budget.covers) if actions else None
    moments = () if played is None else played.moments
    return SolvedCell(
        cell=job.cell,
        graph=job.costed.graph.name,
        graph_sha256=job.costed.graph.sha256,
        profile=job.costed.profile,
        energy_source=job.costed.graph.energy_source,
        ram_bytes=budget.ram_bytes,
        covers=budget.covers,
        deadline_s=budget.deadline_s,
        unconstrained_peak_bytes=kept.peak_bytes,
        unconstrained_energy_j=kept.energy_j,
        unconstrained_time_s=kept.time_s,
        predicted_operations=job.costed.predicted,
        status=schedule.status,
        energy_j=schedule.energy_j,
        energy_bound_j=schedule.energy_bound_j,
        any_order_bound_j=schedule.any_order_bound_j,
        gap=schedule.gap,
        time_s=schedule.time_s,
        peak_bytes=schedule.peak_bytes,
        arena_bytes=schedule.arena_bytes,
        bytes_written_to_storage=schedule.bytes_written_to_storage,
        recomputations=sum(moment.recomputation for moment in moments) if moments else None,
        page_outs=sum(isinstance(each, PageOut) for each in actions) if actions else None,
        page_ins=sum(isinstance(each, PageIn) for each in actions) if actions else None,
        smallest_ram_bytes=schedule.smallest_ram_bytes,
        note="; ".join(schedule.notes) or None,
        circumstances=circumstances,
    )
