"""From a schedule to one with an address for everything that it has in RAM."""

from __future__ import annotations

import time
from contextlib import suppress

from devices.errors import BuildFailed
from solver.addresses.plan import plan_addresses, with_addresses
from solver.addresses.repair import Packed, fit_into_arena
from solver.annealing import anneal
from solver.constructed.greedy import greedy_schedule
from solver.options import SolverOptions
from solver.overlap.overlap import overlap_transfers
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.addresses import verify_addresses
from solver.referee.referee import replay, verify

_LEAST_S, _MOST_S, _SHARE = 5.0, 60.0, 0.25
# Of the budget, what the rule may fill where nothing else packs; how long its addresses are sought.
_SHARES_BY_RULE = (1.0, 0.98, 0.95, 0.9, 0.8)
_BY_RULE_S = 2.0
# How long annealing gets for one smaller budget: by the op, within limits.
_ANNEALING_S_PER_OP, _ANNEALING_S = 0.02, (2.0, 10.0)


def pack(
    problem: Problem, actions: tuple[Action, ...], options: SolverOptions, limit_s: float | None
) -> Packed:
    """With addresses, and with transfers beside ops where that ends sooner. Where ``actions``
    cannot be packed into the budget they are changed a little, or annealed under a smaller budget.
    Hard cases take seconds, beyond a time limit too: a schedule without addresses is none.
    """
    deadline = time.monotonic() + packing_s(limit_s)

    free_order = options.formulation == "auto" and options.order != "given"

    def solve_again(ram_bytes: int) -> tuple[Action, ...] | None:
        budget = problem.budget.model_copy(update={"ram_bytes": ram_bytes})
        return _annealed(Problem(problem.graph, budget), actions, free_order)

    tolerance_j = options.gap * verify(problem.graph, actions, problem.budget).energy_j
    packed = fit_into_arena(problem, actions, solve_again, deadline, tolerance_j)
    if packed.plan.arena_bytes > problem.budget.ram_bytes:
        packed = _by_rule(problem, actions, packed)
    if packed.plan.arena_bytes > problem.budget.ram_bytes:
        return packed
    return _sooner(problem, packed)


def packing_s(limit_s: float | None) -> float:
    """How long it is tried, of a time limit for everything."""
    return _MOST_S if limit_s is None else min(_MOST_S, max(_LEAST_S, _SHARE * limit_s))


def _annealed(
    problem: Problem, actions: tuple[Action, ...], free_order: bool
) -> tuple[Action, ...] | None:
    """A schedule near ``actions`` for less RAM than they need."""
    shortest_s, longest_s = _ANNEALING_S
    seconds = min(longest_s, max(shortest_s, _ANNEALING_S_PER_OP * len(problem.graph.ops)))
    with suppress(BuildFailed):
        return anneal(problem, actions, seconds, free_order=free_order)
    return None


def _by_rule(problem: Problem, wanted: tuple[Action, ...], packed: Packed) -> Packed:
    """As the last resort what the rule makes, of less and less RAM: it takes no search. ``packed``
    as it is if nothing packs."""
    graph, budget = problem.graph, problem.budget
    energy_j = replay(graph, wanted, budget.covers).energy_j
    for share in _SHARES_BY_RULE:
        ram_bytes = int(share * budget.ram_bytes)
        smaller = Problem(graph, budget.model_copy(update={"ram_bytes": ram_bytes}))
        actions = greedy_schedule(smaller, thorough=False)
        if actions is None:
            break
        until = time.monotonic() + _BY_RULE_S
        plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
        if plan.arena_bytes > budget.ram_bytes:
            continue
        actions = with_addresses(actions, plan)
        extra_j = verify(graph, actions, budget).energy_j - energy_j
        verify_addresses(graph, actions, plan.resident_address, plan.arena_bytes, budget.covers)
        note = (
            f"no addresses within the budget were found for a schedule of {energy_j:.6g} J, nor for"
            f" others near it; one by rule packs, for {extra_j:.4g} J more"
        )
        return Packed(actions, plan, (note,))
    return packed


def _sooner(problem: Problem, packed: Packed) -> Packed:
    """The same schedule with transfers beside ops, if that ends sooner and has addresses too."""
    graph, budget = problem.graph, problem.budget
    actions = overlap_transfers(problem, packed.actions)
    if actions is packed.actions:
        return packed
    until = time.monotonic() + _LEAST_S
    plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
    if plan.arena_bytes > budget.ram_bytes:
        return packed
    actions = with_addresses(actions, plan)
    verify_addresses(graph, actions, plan.resident_address, plan.arena_bytes, budget.covers)
    return Packed(actions, plan, packed.notes)
