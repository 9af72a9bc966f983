"""From a costed graph and a budget to a verified schedule, with what is proven of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version

from solver.addresses.plan import plan_addresses, with_addresses
from solver.addresses.repair import Packed, fit_into_arena
from solver.advice import advise, fastest_search
from solver.baselines import keep_everything, page_everything
from solver.compact_columns import COVERS
from solver.cut_bound import any_order_bound_j
from solver.footprint import least_ram_bytes
from solver.graph import CostedGraph
from solver.greedy import greedy_schedule
from solver.options import SolverOptions
from solver.overlap import overlap_transfers
from solver.poet import PoetProgram
from solver.problem import Problem
from solver.referee import RefereeError, verify
from solver.referee_addresses import verify_addresses
from solver.retention import search_retention
from solver.schedule import Budget, Schedule, SolverRecord, Step
from solver.search import Build, Ending, Objective, Progress, Search, build_compact


def _build_poet(problem: Problem, objective: Objective, _simplify: bool) -> PoetProgram:
    assert objective != "memory"
    return PoetProgram(problem, objective)


_LEAST_PACKING_S = 5.0
_MOST_PACKING_S = 60.0
# How long the fastest schedule is sought where none was found that meets the deadline.
_FASTEST_S = 30.0
_LATE = (
    "no schedule was found that meets the deadline with transfers beside ops; that there is none is"
    " not proven"
)

# The mixed-integer programs by the names that a schedule gives them.
_PROGRAMS: dict[str, Build] = {"compact": build_compact, "poet": _build_poet}


def solve_graph(
    graph: CostedGraph,
    budget: Budget,
    options: SolverOptions,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    starts: Iterable[tuple[Step, ...]] = (),
) -> Schedule:
    """The schedule of least energy within ``budget``, with addresses, verified by both referees.
    ``starts`` are schedules to begin with, of a neighbouring problem perhaps: those that fit are
    used.

    Ctrl-C and the time limit end the search with the best schedule so far (``feasible``, or
    ``no_solution``). Raises :class:`~solver.engine.EngineError`, and
    :class:`~solver.referee.RefereeError` if a schedule proved wrong, which is a defect.
    """
    problem = Problem(graph, budget)
    started = time.monotonic()
    limit_s = options.time_limit_s
    deadline = float("inf") if limit_s is None else started + limit_s
    any_order_j = any_order_bound_j(problem)
    search, ending = _searched(problem, options, on_progress, starts, deadline, any_order_j)
    if search.steps is None and ending == "infeasible":
        return _infeasible(problem, options, search, started)
    if search.steps is None:
        notes = (_LATE,) if ending == "stopped" and _may_be_late(problem) else ()
        return Schedule(status="no_solution", notes=notes, **_common(search, started))
    assert search.bound is not None
    interrupted = ending == "stopped" and time.monotonic() < deadline
    packed = _packed(search, search.steps, 0.0 if interrupted else limit_s)
    if packed.plan.arena_bytes > budget.ram_bytes:
        return Schedule(status="no_solution", notes=packed.notes, **_common(search, started))
    packed = _sooner(problem, packed)
    result = verify(graph, packed.steps, budget)
    bound = min(search.bound, result.energy_j)
    gap = (result.energy_j - bound) / result.energy_j if result.energy_j else 0.0
    is_proven = search.proven and (result.energy_j == search.value or gap <= options.gap)
    return Schedule(
        status="optimal" if is_proven else "feasible",
        energy_j=result.energy_j,
        energy_bound_j=bound,
        gap=gap,
        time_s=result.time_s,
        peak_bytes=result.peak_bytes,
        arena_bytes=packed.plan.arena_bytes,
        arena_bound_bytes=packed.plan.bound_bytes,
        any_order_bound_j=min(any_order_j, result.energy_j),
        bytes_written_to_storage=result.bytes_written_to_storage,
        notes=packed.notes,
        resident_address=packed.plan.resident_address,
        steps=packed.steps,
        **_common(search, started),
    )


def _searched(
    problem: Problem,
    options: SolverOptions,
    on_progress: Callable[[Progress], None],
    starts: Iterable[tuple[Step, ...]],
    deadline: float,
    any_order_j: float,
) -> tuple[Search, Ending]:
    by_intervals = options.formulation == "retention"
    build = _PROGRAMS["compact" if by_intervals else _formulation(options)]
    search = Search(problem, "energy", options, on_progress, build, bound=any_order_j)
    for start in (keep_everything(problem.graph), *starts):
        _offer_if_valid(search, start)
    ending: Ending = "infeasible"
    if not search.proven and not _hopeless(problem):
        first = greedy_schedule(problem) or page_everything(problem)
        _offer_if_valid(search, first)
        if search.proven:
            return search, "proven"
        ending = search_retention(search, deadline) if by_intervals else search.run(deadline)
        if search.steps is None and ending == "stopped" and _may_be_late(problem):
            until = min(deadline, time.monotonic() + _FASTEST_S)
            fastest = fastest_search(problem, options, until).steps
            if fastest is not None:
                _offer_if_valid(search, fastest)
    return search, ending


def _may_be_late(problem: Problem) -> bool:
    """A schedule can be within every row of the program and late all the same."""
    return problem.overlaps and problem.budget.deadline_s is not None


def _packed(search: Search, steps: tuple[Step, ...], limit_s: float | None) -> Packed:
    """With addresses. Hard cases take seconds, beyond a time limit too: a schedule without
    addresses is none."""
    problem, options = search.problem, search.options
    seconds = _MOST_PACKING_S
    if limit_s is not None:
        seconds = min(seconds, max(_LEAST_PACKING_S, 0.1 * limit_s))
    deadline = time.monotonic() + seconds

    def solve_again(ram_bytes: int) -> tuple[Step, ...] | None:
        budget = problem.budget.model_copy(update={"ram_bytes": ram_bytes})
        smaller = Problem(problem.graph, budget)
        least_j = problem.least_energy_j
        return _searched(smaller, options, lambda _progress: None, (), deadline, least_j)[0].steps

    assert search.value is not None
    tolerance_j = options.gap * search.value
    return fit_into_arena(problem, steps, solve_again, deadline, tolerance_j)


def _sooner(problem: Problem, packed: Packed) -> Packed:
    """The same schedule with transfers beside ops, if that ends sooner and has addresses too."""
    graph, budget = problem.graph, problem.budget
    steps = overlap_transfers(problem, packed.steps)
    if steps is packed.steps:
        return packed
    until = time.monotonic() + _LEAST_PACKING_S
    plan = plan_addresses(graph, steps, budget.covers, budget.ram_bytes, until)
    if plan.arena_bytes > budget.ram_bytes:
        return packed
    steps = with_addresses(steps, plan)
    verify_addresses(graph, steps, plan.resident_address, plan.arena_bytes, budget.covers)
    return Packed(steps, plan, packed.notes)


def _formulation(options: SolverOptions) -> str:
    return "compact" if options.formulation == "auto" else options.formulation


def _offer_if_valid(search: Search, steps: tuple[Step, ...]) -> None:
    with suppress(RefereeError):  # it does not fit this budget: that is what the search is for
        search.offer(steps)


def _hopeless(problem: Problem) -> bool:
    """Below what any schedule needs, seen without search."""
    deadline_s = problem.budget.deadline_s
    late = deadline_s is not None and deadline_s < problem.least_time_s
    least_bytes, _ = least_ram_bytes(problem.graph, problem.budget.covers)
    return late or problem.budget.ram_bytes < least_bytes


def _infeasible(
    problem: Problem, options: SolverOptions, search: Search, started: float
) -> Schedule:
    advice = advise(problem, options)
    return Schedule(
        status="infeasible",
        smallest_ram_bytes=advice.ram_bytes,
        smallest_deadline_s=advice.deadline_s,
        limiting_op=advice.op,
        notes=advice.notes,
        **_common(search, started),
    )


def _common(search: Search, started: float) -> dict[str, object]:
    """What every schedule says, whatever came out."""
    graph = search.problem.graph
    engine = search.engine_version
    name, library = str(search.options.engine), f", python-mip {version('mip')}"
    if search.options.formulation == "retention":
        name, library = "cp-sat", ""
    return {
        "graph": graph.name,
        "energy_source": graph.energy_source,
        "budget": search.problem.budget,
        "bound_covers": COVERS,
        "restrictions": search.restrictions,
        "solver": SolverRecord(
            engine=name if engine else "none",
            formulation=_formulation(search.options),
            version=f"{engine}{library}" if engine else "no search was needed",
            seconds=time.monotonic() - started,
            build_seconds=search.build_s,
            rounds=search.rounds,
            threads=search.options.threads,
        ),
    }
