"""Arena addresses for everything that a schedule holds in RAM."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf

from devices.errors import BuildFailed
from solver.addresses.alignment import aligned
from solver.addresses.eviction import evict_into_arena
from solver.addresses.plan import Addressed, AddressPlan, plan_addresses, with_addresses
from solver.addresses.repair import Packed, fit_into_arena
from solver.annealing import anneal
from solver.constructed import page_everything
from solver.constructed.greedy import greedy_schedule
from solver.options import SolverOptions
from solver.overlap.overlap import meet_deadline, overlap_transfers
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.addresses import verify_addresses
from solver.referee.referee import RefereeError, replay, verify
from solver.time_limit import OutOfTime, TimeLimit

_LEAST_S, _MOST_S, _SHARE = 5.0, 60.0, 0.25
# Share of the time for the schedule itself and ones like it; the rest is for those without search.
_FITTING_SHARE = 0.75
# A schedule without addresses is useless: those without search may take this long beyond the limit.
_LAST_RESORT_S = 1.0
# Shares of the budget that greedy schedules may fill, tried in turn when nothing else packs: first
# one that is likely to pack, then more, then less; time for planning the addresses of each.
_GREEDY_SHARES = (0.95, 0.98, 1.0, 0.9, 0.8)
_GREEDY_S = 2.0
# Ops of a graph from which on annealing for a smaller budget begins with a greedy schedule.
_LARGE_OPS = 1000
# Annealing time for one smaller budget: per op, within limits.
_ANNEALING_S_PER_OP, _ANNEALING_S = 0.02, (2.0, 10.0)


def pack(
    problem: Problem,
    actions: tuple[Action, ...],
    options: SolverOptions,
    limit: TimeLimit,
    spare: Addressed | None = None,
    earlier: Iterable[tuple[Action, ...]] = (),
) -> Packed:
    """Plan addresses, and run transfers beside ops where that ends sooner.

    Addresses are at the beginnings of cache lines, where the budget has room for that.

    If ``actions`` do not pack into the budget, the ``spare`` schedule is tried, which has
    addresses, and ``earlier`` ones of the same search; ``actions`` are changed a little, or
    annealed under a smaller budget. Of the spare schedule and of annealed ones, transfers run
    beside ops where they miss the deadline otherwise. Hard cases take a second beyond ``limit``,
    since a schedule without addresses cannot be used. Ctrl-C ends the search with what packs.

    Raises:
        KeyboardInterrupt: Ctrl-C, and nothing packs yet.
        RefereeError: A schedule is not valid.
    """
    fitting = limit.part(_FITTING_SHARE)
    deadline = fitting.at_most(_MOST_S).end
    free_order = options.formulation == "auto" and options.order != "given"

    def solve_again(ram_bytes: int) -> tuple[Action, ...] | None:
        smaller = _with_less(problem, ram_bytes)
        found = _annealed(smaller, actions, free_order, options.threads, fitting)
        return None if found is None else meet_deadline(smaller, found)

    tolerance_j = options.gap * verify(problem.graph, actions, problem.budget).energy_j
    if spare is not None:
        peak_bytes = replay(problem.graph, spare.actions, problem.budget.covers).peak_bytes
        timely = meet_deadline(_with_less(problem, peak_bytes), spare.actions)
        spare = Addressed(timely, spare.plan)
    packed = fit_into_arena(
        problem, actions, solve_again, deadline, tolerance_j, fitting, spare, earlier
    )
    if packed.plan.arena_bytes > problem.budget.ram_bytes:
        # A second from now if the limit has passed, as it may have when Ctrl-C comes.
        last = TimeLimit(max(limit.end, time.monotonic()) + _LAST_RESORT_S)
        with last.enforced():
            packed = _pack_without_search(problem, actions, packed, last)
    if packed.plan.arena_bytes > problem.budget.ram_bytes:
        return packed
    with suppress(KeyboardInterrupt):
        with limit.enforced():
            packed = _overlap_if_sooner(problem, packed, limit)
        packed = _aligned(problem, packed, limit)
    return packed


def _with_less(problem: Problem, ram_bytes: int) -> Problem:
    return Problem(problem.graph, problem.budget.model_copy(update={"ram_bytes": ram_bytes}))


def packing_s(limit_s: float) -> float:
    """Seconds reserved for packing, out of a time limit for the whole solve."""
    return min(_MOST_S, max(_LEAST_S, _SHARE * limit_s), 0.5 * limit_s)


def _annealed(
    problem: Problem,
    actions: tuple[Action, ...],
    free_order: bool,
    threads: int,
    limit: TimeLimit,
) -> tuple[Action, ...] | None:
    """Anneal from ``actions`` to a schedule within the smaller budget of ``problem``.

    Annealing hardly finds one for a large graph, and begins with a greedy schedule there.
    """
    op_count = len(problem.graph.ops)
    start = None
    if op_count > _LARGE_OPS:
        with limit.enforced():
            start = greedy_schedule(problem, thorough=False)
    shortest_s, longest_s = _ANNEALING_S
    seconds = min(longest_s, max(shortest_s, _ANNEALING_S_PER_OP * op_count))
    found = None
    with suppress(BuildFailed):
        found = anneal(
            problem,
            start or actions,
            min(seconds, limit.left_s),
            free_order=free_order,
            threads=threads,
        )
    return found or start


def _pack_without_search(
    problem: Problem, wanted: tuple[Action, ...], packed: Packed, limit: TimeLimit
) -> Packed:
    """Last resort: schedules that take no search.

    The first pages everything between its uses, which packs in a moment wherever every op does. The
    ``wanted`` one with tensors paged out of the way replaces it, as do greedy ones, where they pack
    (as they are or with tensors paged out of the way) and take less.

    Returns ``packed`` unchanged if none of them packs. Ctrl-C ends the search with what packs; the
    interruption is passed on if nothing does.
    """
    graph, budget = problem.graph, problem.budget
    wanted_j = replay(graph, wanted, budget.covers).energy_j
    best, best_j, packing_bytes = packed, inf, 0
    try:
        for what, ram_bytes, actions, longest_s in _without_search(problem, wanted):
            if ram_bytes < packing_bytes or limit.has_passed:
                break
            found = None
            with suppress(RefereeError, OutOfTime):  # late, or pages though the budget does not
                found = _with_plan(problem, actions, limit, longest_s)
            if found is None:
                continue
            actions, plan = found
            energy_j = replay(graph, actions, budget.covers).energy_j
            if energy_j >= best_j:
                continue
            note = (
                f"no addresses within the budget were found for a schedule of {wanted_j:.6g} J or"
                f" similar ones; {what} packs and takes {energy_j - wanted_j:.4g} J more"
            )
            best = _addressed(problem, actions, plan, (note,))
            best_j, packing_bytes = energy_j, ram_bytes
    except KeyboardInterrupt:
        if best is packed:
            raise
    return best


def _with_plan(
    problem: Problem, actions: tuple[Action, ...], limit: TimeLimit, longest_s: float
) -> tuple[tuple[Action, ...], AddressPlan] | None:
    """A schedule with addresses within the budget, if need be with tensors paged out of the way."""
    graph, budget = problem.graph, problem.budget
    verify(graph, actions, budget)
    if longest_s:
        until = limit.at_most(longest_s).end
        plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
        if plan.arena_bytes <= budget.ram_bytes:
            return actions, plan
    evicted = evict_into_arena(problem, actions)
    if evicted is not None:
        verify(graph, evicted[0], budget)
    return evicted


def _without_search(
    problem: Problem, wanted: tuple[Action, ...]
) -> Iterator[tuple[str, int, tuple[Action, ...], float]]:
    """Schedules: their names, the bytes of RAM that they were made for, and seconds for addresses.

    The addresses of the ``wanted`` schedule have been searched before.
    """
    everything = page_everything(problem)
    yield "a schedule that pages everything between its uses", 0, everything, _GREEDY_S
    yield "one that pages tensors out of the way", 0, wanted, 0.0
    for share in _GREEDY_SHARES:
        ram_bytes = int(share * problem.budget.ram_bytes)
        smaller = Problem(problem.graph, problem.budget.model_copy(update={"ram_bytes": ram_bytes}))
        actions = greedy_schedule(smaller, thorough=False)
        if actions is not None:
            yield "a greedy schedule", ram_bytes, actions, _GREEDY_S


def _overlap_if_sooner(problem: Problem, packed: Packed, limit: TimeLimit) -> Packed:
    """Run transfers beside ops, if the schedule then ends sooner and still has addresses."""
    graph, budget = problem.graph, problem.budget
    actions = overlap_transfers(problem, packed.actions)
    if actions is packed.actions:
        return packed
    until = limit.at_most(_LEAST_S).end
    plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
    if plan.arena_bytes > budget.ram_bytes:
        return packed
    return _addressed(problem, actions, plan, packed.notes)


def _aligned(problem: Problem, packed: Packed, limit: TimeLimit) -> Packed:
    """The same schedule with addresses at the beginnings of cache lines, if they fit."""
    plan = aligned(packed.plan, problem.budget.ram_bytes, limit)
    return _addressed(problem, packed.actions, plan, packed.notes)


def _addressed(
    problem: Problem, actions: tuple[Action, ...], plan: AddressPlan, notes: tuple[str, ...]
) -> Packed:
    """A schedule with the addresses of its plan, which are verified."""
    actions = with_addresses(actions, plan)
    verify_addresses(
        problem.graph, actions, plan.resident_address, plan.arena_bytes, problem.budget.covers
    )
    return Packed(actions, plan, notes)
