"""``solve_graph``: from a costed graph and a budget to a verified schedule with proven bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from devices.errors import EngineFailed
from devices.program import done_in_any_case
from solver.addresses.repair import Packed
from solver.engines.processes import kept_processes
from solver.options import SolverOptions
from solver.problem.claims import Claims, covered, needs_ram, none_of, proven_of
from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import (
    Action,
    Budget,
    EndedBy,
    Schedule,
    SolverRecord,
    first_executions,
)
from solver.referee.referee import verify
from solver.search.search import Progress
from solver.solving.advice import Advice, advise
from solver.solving.auto.search import AutomaticSearch
from solver.solving.certify import certify, certify_smallest
from solver.solving.named import search_by_name
from solver.solving.outcome import Outcome
from solver.solving.packing import pack, packing_s
from solver.solving.reserve import checks_s
from solver.time_limit import TimeLimit

# Largest share of the time that is reserved for checking and writing the result; share that is
# reserved for a second proof; share of what is left then, if nothing fits, before advice.
_MOST_FOR_CHECKS, _SHARE_FOR_SECOND_PROOF, _SHARE_BEFORE_ADVICE = 0.3, 0.3, 0.5
_PACKING_AFTER_CTRL_C_S = 10.0
_STOPPED_BEFORE_ADDRESSES = (
    "interrupted before addresses were found: a board cannot run this schedule"
)


@kept_processes()
def solve_graph(
    graph: CostedGraph,
    budget: Budget,
    options: SolverOptions,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    starts: Iterable[tuple[Action, ...]] = (),
    with_advice: bool = True,
    certified: bool = False,
) -> Schedule:
    """Find the schedule of least energy within a budget, with arena addresses.

    The result is replayed and verified by both referees (costs and addresses). Ctrl-C and the time
    limit end the search with the best schedule found so far (``feasible``), or with
    ``no_solution``. The time limit covers everything: starts, bounds, addresses, advice, and the
    last checks, for which time is reserved by how long the first ones took.

    Args:
        graph: The costed graph of one training step.
        budget: RAM, deadline, and whether paging and rematerialization are allowed.
        options: Search options.
        on_progress: Called with the phase, the incumbent and the bound. The schedule returned can
            be better than the last incumbent: what the search finds as its time ends is not
            announced.
        starts: Schedules to start from, for example of a similar budget; only those within
            ``budget`` are used, and only those in the graph's order if ``options`` keep to it or
            name a formulation.
        with_advice: Whether to search for the smallest feasible RAM budget and deadline if the
            problem is infeasible. Without a time limit this takes up to 30 s (60 s with a
            deadline).
        certified: Whether a second engine proves the bounds, or that no schedule exists, again.
            Without a time limit this takes as long as it needs.

    Returns:
        The schedule, with status, energy, bound, time, peak, addresses and actions.

    Raises:
        EngineUnavailable: The engine could not be started.
        EngineFailed: The process of the engine failed, and no schedule was found.
        RefereeError: A schedule was found to be invalid, which is a defect.
        ValueError: The formulation cannot be certified.
    """
    if certified and options.formulation == "retention":
        raise ValueError("no second engine solves the constraint program of retention")
    problem = Problem(graph, budget)
    started = time.monotonic()
    whole = TimeLimit.after(options.time_limit_s)
    announce = _Announcer(on_progress, started)
    announce.phase("starting schedules")
    limit = whole.reserving(min(checks_s(graph, budget.covers), _MOST_FOR_CHECKS * whole.left_s))
    # What is left after schedule and addresses is for the second proof.
    finding = limit.part(1 - _SHARE_FOR_SECOND_PROOF) if certified else limit
    search_limit = finding
    if options.addresses:
        search_limit = finding.reserving(packing_s(finding.left_s))
    outcome = _search(problem, options, announce.progress, starts, search_limit.end)
    ended_by = outcome.ended_by
    if outcome.actions is None or outcome.energy_j is None:
        if outcome.ending == "infeasible" and certified:
            announce.phase("second proof")
            outcome = certify(outcome, options, limit.part(_SHARE_BEFORE_ADVICE))
        if outcome.ending == "infeasible" and with_advice:
            announce.phase("smallest feasible budget")
        return _without_actions(
            problem, options, outcome, started, limit, with_advice=with_advice, certified=certified
        )
    actions, packed = outcome.actions, None
    if options.addresses:
        is_stopped = ended_by == "interrupted"
        packed = _packed(problem, outcome, options, announce, finding, is_stopped=is_stopped)
        if packed is None:
            outcome = replace(outcome, notes=(*outcome.notes, _STOPPED_BEFORE_ADDRESSES))
        elif packed.plan.arena_bytes > budget.ram_bytes:
            common = _common(problem, options, outcome, started, packed.notes)
            return Schedule(status="no_solution", ended_by=ended_by, **common)
        else:
            actions = packed.actions
    if outcome.claims.of(budget, actions) != outcome.stated:
        # Packing changed the order of ops, and the claim is about that order.
        outcome = replace(outcome, ending="spent", actions=actions)
    if certified:
        announce.phase("second proof")
        outcome = certify(outcome, options, limit)
        if outcome.is_refuted:
            ended_by = outcome.ended_by
    return done_in_any_case(
        lambda: _with_actions(problem, options, outcome, ended_by, started, actions, packed)
    )


def require_uninterrupted(schedule: Schedule) -> None:
    """Raise :class:`KeyboardInterrupt` if Ctrl-C ended the search of a schedule.

    It is for callers that would go on with the schedule, for example run it.
    """
    if schedule.ended_by == "interrupted":
        raise KeyboardInterrupt


def _packed(
    problem: Problem,
    outcome: Outcome,
    options: SolverOptions,
    announce: _Announcer,
    limit: TimeLimit,
    *,
    is_stopped: bool,
) -> Packed | None:
    """Find addresses for the schedule of an outcome.

    Ctrl-C leaves a short time for them, whether it comes now or has stopped the search before.

    Returns:
        The schedule with addresses; None if Ctrl-C ended that short time, too.
    """
    for is_short in (True,) if is_stopped else (False, True):
        allowed = limit.at_most(_PACKING_AFTER_CTRL_C_S) if is_short else limit
        with suppress(KeyboardInterrupt):
            announce.phase("addresses")
            others = outcome.spare, outcome.earlier()
            return pack(problem, outcome.actions or (), options, allowed, *others)
    return None


class _Announcer:
    """Adds the current phase to the progress of the searches, and announces each new phase."""

    def __init__(self, on_progress: Callable[[Progress], None], started: float) -> None:
        self._on_progress = on_progress
        self._started = started
        self._last = Progress(0.0, 0, None, None)

    def phase(self, name: str) -> None:
        seconds = time.monotonic() - self._started
        self.progress(replace(self._last, seconds=seconds, phase=name))

    def progress(self, progress: Progress) -> None:
        self._last = progress
        self._on_progress(progress)


def _with_actions(
    problem: Problem,
    options: SolverOptions,
    outcome: Outcome,
    ended_by: EndedBy | None,
    started: float,
    actions: tuple[Action, ...],
    packed: Packed | None,
) -> Schedule:
    result = verify(problem.graph, actions, problem.budget)
    proven = proven_of(
        outcome.claims,
        problem.budget,
        problem.graph.order,
        actions,
        result.energy_j,
        options.gap,
        meets_bound=outcome.ending == "proven" and result.energy_j == outcome.energy_j,
    )
    return Schedule(
        ended_by=ended_by,
        energy_j=result.energy_j,
        time_s=result.time_s,
        peak_bytes=result.peak_bytes,
        arena_bytes=packed.plan.arena_bytes if packed else None,
        arena_bound_bytes=packed.plan.bound_bytes if packed else None,
        bytes_written_to_storage=result.bytes_written_to_storage,
        resident_address=packed.plan.resident_address if packed else None,
        actions=actions,
        **(_common(problem, options, outcome, started, packed.notes if packed else ()) | proven),
    )


def _search(
    problem: Problem,
    options: SolverOptions,
    on_progress: Callable[[Progress], None],
    starts: Iterable[tuple[Action, ...]],
    deadline: float,
) -> Outcome:
    if options.order == "given":
        # Schedules in this order are searched, and claims are about them alone.
        given = problem.graph.order
        starts = (start for start in starts if first_executions(start) == given)
    if options.formulation == "auto":
        return AutomaticSearch(problem, options, on_progress, deadline).run(starts)
    return search_by_name(problem, options, on_progress, starts, deadline)


def _without_actions(
    problem: Problem,
    options: SolverOptions,
    outcome: Outcome,
    started: float,
    limit: TimeLimit,
    *,
    with_advice: bool,
    certified: bool,
) -> Schedule:
    if outcome.ending != "infeasible":
        common = _common(problem, options, outcome, started)
        return Schedule(status="no_solution", ended_by=outcome.ended_by, **common)
    advice = Advice()
    if with_advice:
        # That nothing fits is known; the rest is advice.
        with suppress(EngineFailed, KeyboardInterrupt):
            share = 1 - _SHARE_FOR_SECOND_PROOF if certified else 1.0
            advice = advise(problem, options, limit.part(share))
    claims, budget = outcome.claims, problem.budget
    notes: tuple[str, ...] = ()
    if advice.ram_claim is not None:
        needed = Claims((advice.ram_claim,))
        if certified:
            needed, notes = certify_smallest(advice.ram_claim, options, limit)
        # What the largest op takes needs no engine.
        least_bytes, _ = least_ram_bytes(problem.graph, budget.covers)
        claims = claims.also(*needed.proven, needs_ram(least_bytes, budget, "costs"))
    return Schedule(
        ended_by=outcome.ended_by,
        smallest_ram_bytes=advice.ram_bytes,
        smallest_ram_bound_bytes=claims.least_ram_bytes(budget) if advice.ram_claim else None,
        smallest_deadline_s=advice.deadline_s,
        smallest_deadline_bound_s=advice.deadline_bound_s,
        limiting_op=advice.op,
        **(
            _common(problem, options, outcome, started, notes)
            | none_of(claims, budget, problem.graph.order)
        ),
    )


def _without_search(outcome: Outcome) -> str:
    if outcome.ending in ("proven", "infeasible"):
        return "no search was needed"
    return "only starting schedules were tried"


def _common(
    problem: Problem,
    options: SolverOptions,
    outcome: Outcome,
    started: float,
    notes: tuple[str, ...] = (),
) -> dict[str, object]:
    """Fields that every schedule has, whatever the outcome."""
    return {
        "graph": problem.graph.name,
        "graph_sha256": problem.graph.sha256,
        "energy_source": problem.graph.energy_source,
        "budget": problem.budget,
        **covered(outcome.stated, problem.graph.order),
        "chosen": outcome.chosen,
        "notes": (*outcome.notes, *notes),
        "certificate": outcome.certificate,
        "solver": SolverRecord(
            engine=outcome.engine if outcome.version else "none",
            formulation=outcome.formulation,
            version=outcome.version or _without_search(outcome),
            seconds=time.monotonic() - started,
            build_seconds=outcome.build_s,
            rounds=outcome.rounds,
            threads=options.threads,
        ),
    }
