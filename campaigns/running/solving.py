"""Schedule of a cell: cost its graph, use a known schedule of it, or find one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from campaigns.design.cells import Cell, Design, NetworkLevel
from campaigns.design.file import NO_DEADLINE, SOLVED, MethodChoice
from campaigns.keeping.records import AskedOfCell, Beginning, Circumstances, SolvedCell
from campaigns.running.profiling import step_of
from devices.errors import InputError
from devices.profile import DeviceProfile
from networks.training.step import TrainingStep
from replay.board_ram import BoardRam
from solver.baselines.scheduled import schedule_by_baseline
from solver.constructed import keep_everything
from solver.costing.costing import cost_graph
from solver.costing.model import CostModel
from solver.files.solved import file_stem, read_solved
from solver.options import Coverage, SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget, Schedule
from solver.referee.referee import Replay, replay
from solver.requests.choice import cheapest
from solver.requests.codecs import with_offered_codecs
from solver.requests.subjects import SolveSubject
from solver.solving.shared_ram import solve_in_shared_ram


@dataclass(frozen=True)
class CostedNetwork:
    """A network's costed graph on one board, and its step with nothing recomputed or paged.

    ``profile`` is the file that the costs are from, relative to the campaign's directory; None for
    a profile that the design states in full. ``known`` are schedules that ``solve`` has written for
    the same graph.
    """

    subject: SolveSubject
    kept: Replay
    profile: str | None
    known: tuple[Schedule, ...]


def costed_network(
    level: NetworkLevel,
    batch: int | None,
    profile: DeviceProfile,
    file: str | None,
    covers: Coverage,
    method: MethodChoice,
    known_in: Path | None = None,
) -> CostedNetwork:
    """Cost a network's training step, and look for schedules of it in the directory ``known_in``.

    Layers are whole or in slices, as the method asks; the step has codecs if it asks for nothing
    else.

    Raises:
        InputError: The network cannot be built or its file has changed, or the profile does not
            cover it.
    """
    home = level.choice.parameters_in
    step = step_of(level, batch, home, method.slices, codecs=method.codecs == "all")
    _require_unchanged(level, step)
    model = CostModel(profile)
    costing = cost_graph(step, profile, model=model)
    subject = SolveSubject(costing.graph, profile, costing.predicted, step, cost_model=model)
    kept = replay(costing.graph, keep_everything(costing.graph), covers)
    known = () if known_in is None else tuple(_schedules_of(costing.graph, known_in))
    return CostedNetwork(subject, kept, file, known)


def _require_unchanged(level: NetworkLevel, step: TrainingStep) -> None:
    if step.file is not None and step.file.sha256 != level.sha256:
        raise InputError(
            f"{level.model}: the file has changed since this call of campaign run began",
            remedy="run the campaign again",
        )


def _schedules_of(graph: CostedGraph, directory: Path) -> Iterator[Schedule]:
    """The schedules that ``solve`` has written for a graph."""
    origin = graph.origin
    assert origin is not None, "the graph was made from a network"
    for path in sorted(directory.glob(f"{file_stem(graph.name)}*.json")):
        with suppress(InputError):  # a graph beside its schedule, or a damaged file
            of, schedule = read_solved(path)
            if of.with_model_at(origin.model, origin.model_sha256) == graph:
                yield schedule.model_copy(update={"graph_sha256": graph.sha256})


@dataclass(frozen=True)
class Search:
    """The search for a cell's schedule, which another process does.

    ``subjects`` are the ways to take the step. A schedule of the first that is ``known`` is not
    searched again.
    """

    method: MethodChoice
    subjects: tuple[SolveSubject, ...]
    budget: Budget
    known: Schedule | None = None


@dataclass(frozen=True)
class Found:
    """What a search found: a schedule of the subject with this ``number``, counted from 0."""

    number: int
    schedule: Schedule
    circumstances: Circumstances


@dataclass(frozen=True)
class SolveJob:
    """A cell that is to be solved."""

    cell: Cell
    costed: CostedNetwork
    search: Search

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
        subjects: tuple[SolveSubject, ...] = (costed.subject,)
        if method.codecs == "auto":
            subjects = with_offered_codecs(subjects, budget)
        known = _known_schedule(costed, budget, method) if len(subjects) == 1 else None
        return cls(cell, costed, Search(method, subjects, budget, known))

    def graph(self, found: Found) -> CostedGraph:
        """The graph of a schedule that was found."""
        return self.search.subjects[found.number].graph


def _known_schedule(costed: CostedNetwork, budget: Budget, method: MethodChoice) -> Schedule | None:
    """A schedule for the same budget that is as good as asked and fits on the board."""
    if method.method != SOLVED or (method.formulation, method.order) != ("auto", "auto"):
        return None
    ram = BoardRam.of(costed.subject)
    for schedule in costed.known:
        asked = schedule.budget
        if schedule.asked_ram_bytes is not None:
            asked = asked.model_copy(update={"ram_bytes": schedule.asked_ram_bytes})
        use = None if ram is None else ram.use(schedule)
        is_same = asked == budget and schedule.robustness is None
        can_run = schedule.arena_bytes is not None and (use is None or use.fits)
        # Its own gap may be one to schedules in its order, or of a published method.
        energy_j, bound_j = schedule.energy_j, schedule.any_order_bound_j
        if energy_j is None or bound_j is None:
            continue
        if is_same and can_run and energy_j - bound_j <= method.gap * energy_j:
            return schedule
    return None


def solve(search: Search) -> Found:
    """Find the schedule of a cell, in one thread.

    Raises:
        EngineFailed: The process of an engine failed, and no schedule was found.
    """
    began = Beginning()
    if search.known is not None:
        return Found(0, search.known, Circumstances.since(began))
    method, subjects, number = search.method, search.subjects, 0
    if method.method == SOLVED:
        options = SolverOptions(
            formulation=method.formulation,
            order=method.order,
            gap=method.gap,
            threads=1,
            time_limit_s=method.time_limit_s,
        )
        chosen, schedule, _ = cheapest(subjects, search.budget, options, ram_of=BoardRam.of)
        number = subjects.index(chosen)
    else:
        *_, schedule = solve_in_shared_ram(
            partial(_by_baseline, subjects[0].graph, method),
            search.budget,
            method.time_limit_s,
            BoardRam.of(subjects[0]),
        )
    return Found(number, schedule, Circumstances.since(began))


def _by_baseline(
    graph: CostedGraph, method: MethodChoice, budget: Budget, _seconds: float | None
) -> Schedule:
    """Schedule of a published method; with less time, it would be another method."""
    return schedule_by_baseline(graph, budget, method.method, method.time_limit_s, threads=1)


def record_of(job: SolveJob, found: Found) -> SolvedCell:
    """The record of a solved cell."""
    kept = job.costed.kept
    asked = AskedOfCell(
        cell=job.cell,
        profile=job.costed.profile,
        ram_bytes=job.search.budget.ram_bytes,
        unconstrained_peak_bytes=kept.peak_bytes,
        unconstrained_energy_j=kept.energy_j,
        unconstrained_time_s=kept.time_s,
        predicted_operations=len(job.search.subjects[found.number].predicted),
    )
    return SolvedCell.of(asked, job.graph(found), found.schedule, found.circumstances)
