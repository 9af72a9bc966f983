"""Smallest feasible RAM budget and shortest feasible deadline of an infeasible problem.

Each is enclosed from both sides. A schedule that was found shows that a budget is enough. That a
budget is too small is proven for every schedule: by what single ops take, by the crossing program,
or by searching all schedules of a small graph. The compact program proves nothing here, since it
keeps to the graph's order.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from devices.errors import BuildFailed
from solver.addresses.plan import plan_addresses
from solver.annealing import anneal
from solver.constructed import keep_everything, page_everything
from solver.constructed.orders import low_memory_orders
from solver.formulations.compact.formulation import MOST_OPS
from solver.formulations.scaled_costs import Objective
from solver.options import SolverOptions
from solver.problem.claims import Claim, needs_ram
from solver.problem.footprint import least_ram_bytes
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute
from solver.referee.referee import RefereeError, replay
from solver.search.crossing_search import CrossingSearch, NoSchedule
from solver.search.search import Search
from solver.search.states import Exhausted, search_states
from solver.time_limit import OutOfTime, TimeLimit

# Limit on each of the two searches. The problem is known to be infeasible; this is advice only.
_SEARCH_S = 30.0
# Shares of it: all schedules of a small graph, annealing; the rest is for programs.
_ALL_SCHEDULES_SHARE, _ANNEALING_SHARE = 0.2, 0.4
# Least time for the addresses of the schedule that was found.
_ADDRESSES_S = 0.5


@dataclass(frozen=True)
class Advice:
    """What would be feasible, each with everything else unchanged; None where nothing is known.

    Attributes:
        ram_bytes: Smallest RAM budget for which a schedule was found, with its addresses if the
            options ask for them.
        ram_claim: That no schedule needs less RAM than some, which is ``ram_bytes`` if that is
            proven to be the smallest.
        op: The op that determines ``ram_bytes``.
        deadline_s: Shortest deadline for which a schedule was found.
        deadline_bound_s: No schedule is faster.
    """

    ram_bytes: int | None = None
    ram_claim: Claim | None = None
    op: str | None = None
    deadline_s: float | None = None
    deadline_bound_s: float | None = None


def advise(problem: Problem, options: SolverOptions, limit: TimeLimit) -> Advice:
    """Search for the smallest RAM budget and the shortest deadline that are feasible.

    Each search takes an equal share of ``limit``, and at most 30 s. No RAM budget is searched if
    the deadline is too short for each.
    """
    if problem.budget.deadline_s is None:
        return _smallest_ram(problem, options, limit)
    if problem.is_evidently_late:
        return _shortest_deadline(problem, options, limit)
    ram = _smallest_ram(problem, options, limit.part(0.5))
    deadline = _shortest_deadline(problem, options, limit)
    return replace(ram, deadline_s=deadline.deadline_s, deadline_bound_s=deadline.deadline_bound_s)


def _smallest_ram(problem: Problem, options: SolverOptions, limit: TimeLimit) -> Advice:
    least, op = least_ram_bytes(problem.graph, problem.budget.covers)
    until = limit.at_most(_SEARCH_S).end
    exact = _least_of_all(
        problem, "memory", options, TimeLimit(until).part(_ALL_SCHEDULES_SHARE).end
    )
    if exact is not None:
        found, bound = exact
        if found.actions is None or found.value is None:
            return Advice()
        takes = _with_addresses(problem, options, found.actions, int(found.value), until)
        needed = needs_ram(int(bound), problem.budget, "exhaustion")
        return Advice(takes, needed, _peak_op(problem, found.actions) or op)
    enough = replay(problem.graph, keep_everything(problem.graph), problem.budget.covers).peak_bytes
    roomy = Problem(problem.graph, problem.budget.model_copy(update={"ram_bytes": enough}))
    search = Search(roomy, "memory", replace(options, gap=0.0), bound=float(least))
    for actions in _simple_schedules(roomy, options):
        with suppress(RefereeError):  # it is late, or pages although the budget excludes paging
            search.offer(actions)
    if not search.proven:
        _anneal_for_less(search, least, enough, TimeLimit(until).part(_ANNEALING_SHARE).end)
    if not search.proven and len(problem.graph.ops) <= MOST_OPS:
        _compact_for_less(search, TimeLimit(until).part(0.5).end)
    if search.actions is None or search.value is None:
        return Advice()
    found_bytes = int(search.value)
    needed = _least_needed(problem, options, least, found_bytes, until)
    determined_by = _peak_op(problem, search.actions) if found_bytes > least else None
    takes = _with_addresses(problem, options, search.actions, found_bytes, until)
    return Advice(takes, needed, determined_by or op)


def _with_addresses(
    problem: Problem,
    options: SolverOptions,
    actions: tuple[Action, ...],
    sum_bytes: int,
    until: float,
) -> int:
    """RAM budget for a schedule: its arena, which may be larger than the sum of its tensors."""
    if not options.addresses:
        return sum_bytes
    until = max(until, time.monotonic() + _ADDRESSES_S)
    plan = plan_addresses(problem.graph, actions, problem.budget.covers, sum_bytes, until)
    return max(sum_bytes, plan.arena_bytes)


def _least_of_all(
    problem: Problem, objective: Objective, options: SolverOptions, until: float
) -> tuple[Exhausted, float] | None:
    """The best of all schedules in the order that the options allow, and the least in any order.

    None if the graph is too large to search all schedules.
    """
    any_order = search_states(problem, objective, deadline=until)
    if any_order is None or any_order.value is None or options.order != "given":
        return None if any_order is None else (any_order, any_order.value or 0.0)
    given = search_states(problem, objective, order="given", deadline=until)
    return None if given is None else (given, any_order.value)


def _simple_schedules(problem: Problem, options: SolverOptions) -> list[tuple[Action, ...]]:
    schedules = [page_everything(problem), keep_everything(problem.graph)]
    if options.order != "given":
        for order in low_memory_orders(problem):
            reordered = Problem(problem.graph.in_order(order), problem.budget)
            schedules += [page_everything(reordered), keep_everything(reordered.graph)]
    return schedules


def _peak_op(problem: Problem, actions: tuple[Action, ...]) -> str | None:
    played = replay(problem.graph, actions, problem.budget.covers)
    peak = actions[played.peak_action]
    return peak.op if isinstance(peak, Compute) else None


def _compact_for_less(search: Search, until: float) -> None:
    """Improve the schedule of a search with the compact program, which keeps the graph's order.

    The program's bound holds for that order only, so the search keeps its own bound.
    """
    compact = Search(search.problem, "memory", search.options, bound=search.bound)
    compact.run(until)
    if compact.actions is not None:
        search.offer_if_valid(compact.actions)


def _least_needed(
    problem: Problem, options: SolverOptions, least: int, enough: int, until: float
) -> Claim:
    """The claim about the least RAM that the crossing program proves, by bisection."""
    claim = needs_ram(least, problem.budget, "costs")
    too_little, unproven = least - 1, enough
    with TimeLimit(until).enforced(), suppress(OutOfTime):
        while unproven - too_little > 1 and time.monotonic() < until:
            middle = (too_little + unproven) // 2
            budget = problem.budget.model_copy(update={"ram_bytes": middle})
            smaller = Problem(problem.graph, budget)
            search = CrossingSearch(smaller, "any", options.engine, options.threads)
            for news in search.run(1.0, TimeLimit(until).part(0.5).end):
                if isinstance(news, NoSchedule):
                    claim, too_little = Claim(math.inf, budget, by=news.proof), middle
            if too_little < middle:
                unproven = middle
    return claim


def _anneal_for_less(search: Search, least: int, enough: int, until: float) -> None:
    """Bisect the budget with annealing, in any order if the options allow it."""
    problem, free_order = search.problem, search.options.order != "given"
    does, ram_bytes = int(search.value or enough), least
    too_little = least - 1
    while time.monotonic() < until and does - too_little > 1:
        smaller = Problem(problem.graph, problem.budget.model_copy(update={"ram_bytes": ram_bytes}))
        start = search.actions or keep_everything(problem.graph)
        try:
            seconds = min(_SEARCH_S / 6, until - time.monotonic())
            found = anneal(smaller, start, seconds, free_order=free_order, stop_at_first=True)
        except BuildFailed:
            return
        if found is None:
            too_little = ram_bytes
        else:
            search.offer(found)
            does = int(search.value or ram_bytes)
        ram_bytes = (does + too_little) // 2


def _shortest_deadline(problem: Problem, options: SolverOptions, limit: TimeLimit) -> Advice:
    least, _ = least_ram_bytes(problem.graph, problem.budget.covers)
    if problem.budget.ram_bytes < least:
        return Advice()
    until = limit.at_most(_SEARCH_S).end
    exact = _least_of_all(problem, "time", options, TimeLimit(until).part(_ALL_SCHEDULES_SHARE).end)
    if exact is not None:
        found, bound_s = exact
        if found.value is None or not _packs(problem, options, found.actions or (), until):
            return Advice()
        return Advice(deadline_s=found.value, deadline_bound_s=bound_s)
    search = fastest_search(problem, options, TimeLimit(until).part(1 - _ANNEALING_SHARE).end)
    if not search.proven and len(problem.graph.ops) <= MOST_OPS:
        _anneal_for_time(search, until)
    if search.value is None or not _packs(problem, options, search.actions or (), until):
        return Advice()
    return Advice(deadline_s=search.value, deadline_bound_s=problem.unavoidable_time_s)


def _packs(
    problem: Problem, options: SolverOptions, actions: tuple[Action, ...], until: float
) -> bool:
    """Whether addresses are found for a schedule within the RAM budget."""
    ram_bytes = problem.budget.ram_bytes
    return _with_addresses(problem, options, actions, ram_bytes, until) <= ram_bytes


def fastest_search(problem: Problem, options: SolverOptions, until: float) -> Search:
    """Search for the schedule of least time without a deadline, until ``until``.

    Args:
        problem: The problem; its deadline is ignored.
        options: Search options.
        until: End of the search, on ``time.monotonic``.

    Returns:
        The search after it has run.
    """
    patient = Problem(problem.graph, problem.budget.model_copy(update={"deadline_s": None}))
    search = Search(patient, "time", options, bound=problem.unavoidable_time_s)
    with suppress(RefereeError):  # it needs more RAM than the budget
        search.offer(page_everything(patient))
    if len(problem.graph.ops) <= MOST_OPS:
        search.run(until)
        return search
    _anneal_for_time(search, until)
    return search


def _anneal_for_time(search: Search, until: float) -> None:
    """Offer what annealing finds, in any order if the options allow it."""
    start, seconds = keep_everything(search.problem.graph), until - time.monotonic()
    free_order = search.options.order != "given"
    with suppress(BuildFailed):
        found = anneal(search.problem, start, seconds, objective="time", free_order=free_order)
        search.offer_if_valid(found or ())
