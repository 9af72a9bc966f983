"""Smallest feasible RAM budget and shortest feasible deadline of an infeasible problem."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from devices.errors import BuildFailed
from solver.annealing import anneal
from solver.constructed import keep_everything, page_everything
from solver.formulations.compact.formulation import MOST_OPS
from solver.options import SolverOptions
from solver.problem.footprint import least_ram_bytes
from solver.problem.problem import Problem
from solver.problem.schedule import Compute
from solver.referee.referee import RefereeError, replay
from solver.search.search import Search
from solver.time_limit import TimeLimit

# Limit on each of the two searches. The problem is known to be infeasible; this is advice only.
_SEARCH_S = 30.0


@dataclass(frozen=True)
class Advice:
    """Smallest feasible RAM budget, the op that determines it, and shortest feasible deadline.

    Each is found with everything else unchanged, and None if changing it alone does not help.
    """

    ram_bytes: int | None = None
    op: str | None = None
    deadline_s: float | None = None
    notes: tuple[str, ...] = ()


def advise(problem: Problem, options: SolverOptions, limit: TimeLimit) -> Advice:
    """Search for the smallest RAM budget and the shortest deadline that are feasible.

    Each search takes an equal share of ``limit``, and at most 30 s.
    """
    if problem.budget.deadline_s is None:
        return _smallest_ram(problem, options, limit)
    ram = _smallest_ram(problem, options, limit.part(0.5))
    deadline = _shortest_deadline(problem, options, limit)
    return replace(ram, deadline_s=deadline.deadline_s, notes=(*ram.notes, *deadline.notes))


def _smallest_ram(problem: Problem, options: SolverOptions, limit: TimeLimit) -> Advice:
    least, op = least_ram_bytes(problem.graph, problem.budget.covers)
    enough = replay(problem.graph, keep_everything(problem.graph), problem.budget.covers).peak_bytes
    roomy = Problem(problem.graph, problem.budget.model_copy(update={"ram_bytes": enough}))
    search = Search(roomy, "memory", replace(options, gap=0.0), bound=float(least))
    for actions in (page_everything(roomy), keep_everything(problem.graph)):
        with suppress(RefereeError):  # it is late, or pages although the budget excludes paging
            search.offer(actions)
    until = limit.at_most(_SEARCH_S).end
    if not search.proven and len(problem.graph.ops) > MOST_OPS:
        _anneal_for_less(search, least, enough, until)
    elif not search.proven:
        search.run(until)
    if search.actions is None or search.value is None:
        return Advice()
    result = replay(problem.graph, search.actions, problem.budget.covers)
    peak = search.actions[result.peak_action]
    if isinstance(peak, Compute) and result.peak_bytes > least:
        op = peak.op
    notes = () if search.proven else (_unproven("RAM budget", search.bound, "bytes"),)
    return Advice(ram_bytes=result.peak_bytes, op=op, notes=notes)


def _anneal_for_less(search: Search, least: int, enough: int, until: float) -> None:
    """Bisect the budget with annealing alone, for graphs too large for the compact program."""
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
    search = fastest_search(problem, options, limit.at_most(_SEARCH_S).end)
    if search.value is None:
        return Advice()
    notes = () if search.proven else (_unproven("deadline", search.bound, "s"),)
    return Advice(deadline_s=search.value, notes=notes)


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
    search = Search(patient, "time", options, bound=problem.least_time_s)
    with suppress(RefereeError):  # it needs more RAM than the budget
        search.offer(page_everything(patient))
    if len(problem.graph.ops) <= MOST_OPS:
        search.run(until)
        return search
    start, seconds = keep_everything(problem.graph), until - time.monotonic()
    with suppress(BuildFailed):
        free_order = options.order != "given"
        found = anneal(patient, start, seconds, objective="time", free_order=free_order)
        search.offer_if_valid(found or ())
    return search


def _unproven(what: str, bound: float | None, unit: str) -> str:
    least = "" if bound is None else f"; at least {bound:.6g} {unit} are needed"
    return f"the smallest {what} is the best found in {_SEARCH_S:.0f} s, not proven{least}"
