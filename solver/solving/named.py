"""Search with one formulation, chosen by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from devices.errors import BuildFailed, EngineFailed, EngineUnavailable
from solver.annealing import Annealer
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.formulations.poet.formulation import PoetFormulation
from solver.formulations.scaled_costs import Objective
from solver.options import SolverOptions
from solver.problem.claims import Claim, Claims
from solver.problem.problem import Problem
from solver.problem.schedule import Action, first_executions
from solver.retention.retention import search_retention
from solver.search.search import Build, Ending, Progress, Search, build_compact
from solver.solving.advice import fastest_search
from solver.solving.outcome import Outcome
from solver.time_limit import TimeLimit

# Limit on the search for the fastest schedule when no schedule found meets the deadline.
_FASTEST_S = 30.0
# Share of the time for the greedy start.
_SHARE_FOR_GREEDY = 0.2
_LATE = (
    "no schedule found meets the deadline with transfers beside ops; infeasibility is not proven"
)


def _build_poet(problem: Problem, objective: Objective, _simplify: bool) -> PoetFormulation:
    assert objective != "memory"
    return PoetFormulation(problem, objective)


_PROGRAMS: Mapping[str, Build] = {"compact": build_compact, "poet": _build_poet}


def search_by_name(
    problem: Problem,
    options: SolverOptions,
    on_progress: Callable[[Progress], None],
    starts: Iterable[tuple[Action, ...]],
    deadline: float,
) -> Outcome:
    """Search with the formulation that ``options`` name, in the graph's order.

    Annealing runs beside *compact* if a second thread is allowed. The other formulations serve for
    comparison and run alone. ``deadline`` is on ``time.monotonic``.

    A schedule is kept if the engine fails later.

    Raises:
        EngineUnavailable: The engine could not be started.
        EngineFailed: The process of the engine failed, and no schedule was found.
    """
    name = options.formulation
    least_j = problem.unavoidable_energy_j
    build = _PROGRAMS.get(name, build_compact)
    search = Search(problem, "energy", options, on_progress, build, bound=least_j)
    ending: Ending
    failures: tuple[str, ...] = ()
    try:
        ending = _run(search, starts, deadline)
    except EngineUnavailable:
        raise
    except EngineFailed as error:
        if search.actions is None:
            raise
        ending = "spent"
        failures = (f"{error}; what was found and proven before is kept",)
    except KeyboardInterrupt:
        ending = "interrupted"
    is_late = _may_be_late(search, ending)
    claims = Claims().also(Claim(least_j, problem.budget), search.claim)
    if problem.is_evidently_infeasible:
        claims = claims.also(Claim(math.inf, problem.budget))
    elif ending == "infeasible":
        claims = claims.also(search.claim_of(math.inf))
    version = search.engine_version
    if version and name != "retention":
        version = f"{version}, {python_mip_version()}"
    return Outcome(
        ending="proven" if search.proven else ending,
        actions=search.actions,
        energy_j=search.value,
        budget=problem.budget,
        claims=claims,
        formulation=name,
        engine="cp-sat" if name == "retention" else options.engine,
        version=version,
        rounds=search.rounds,
        build_s=search.build_s,
        notes=(*failures, *engine_notes(search.faults), *((_LATE,) if is_late else ())),
        earlier=lambda: search.earlier,
    ).sound(options.gap)


def _run(search: Search, starts: Iterable[tuple[Action, ...]], deadline: float) -> Ending:
    problem, options = search.problem, search.options
    for start in (keep_everything(problem.graph), *starts):
        if first_executions(start) == problem.graph.order:
            search.offer_if_valid(start)
    if search.proven:
        return "proven"
    if problem.is_evidently_infeasible:
        return "infeasible"
    with TimeLimit(deadline).part(_SHARE_FOR_GREEDY).enforced():
        greedy = greedy_schedule(problem)
    search.offer_if_valid(greedy or page_everything(problem))
    if search.proven:
        return "proven"
    if options.formulation == "retention":
        ending = search_retention(search, deadline)
    else:
        with ExitStack() as beside:
            if options.formulation == "compact" and options.threads > 1 and search.actions:
                search.companion = _annealing(search, beside)
            try:
                ending = search.run(deadline)
            finally:
                if search.companion is not None:
                    search.offer_if_valid(search.companion.found() or ())
    if _may_be_late(search, ending):
        until = min(deadline, time.monotonic() + _FASTEST_S)
        search.offer_if_valid(fastest_search(problem, options, until).actions or ())
    return ending


def _annealing(search: Search, beside: ExitStack) -> Annealer | None:
    assert search.actions is not None
    start = keep_everything(search.problem.graph)
    try:
        annealer = beside.enter_context(Annealer(search.problem, start, free_order=False))
    except BuildFailed:
        return None  # annealing is optional here
    annealer.offer(search.actions)
    return annealer


def _may_be_late(search: Search, ending: Ending) -> bool:
    """Whether solutions may have been rejected as late, with nothing found or proven.

    A schedule can satisfy every row of the program and still miss the deadline.
    """
    is_open = search.actions is None and ending in ("time_limit", "spent")
    problem = search.problem
    return is_open and problem.overlaps and problem.budget.deadline_s is not None


def engine_notes(faults: Iterable[str]) -> tuple[str, ...]:
    """What a reader of the schedule must know of false proofs of the engine."""
    return tuple(f"the engine {fault}; that proof is not used" for fault in faults)


def python_mip_version() -> str:
    """Name and version of the library that runs the engines."""
    from importlib.metadata import version

    return f"python-mip {version('mip')}"
