"""From a schedule to one with an address for everything that it has in RAM."""

from __future__ import annotations

import time
from collections.abc import Callable

from solver.addresses.plan import plan_addresses, with_addresses
from solver.addresses.repair import Packed, fit_into_arena
from solver.overlap import overlap_transfers
from solver.problem import Problem
from solver.referee_addresses import verify_addresses
from solver.schedule import Step

_LEAST_S, _MOST_S = 5.0, 60.0

# The best schedule of a problem until a time on ``time.monotonic``.
SolveUntil = Callable[[Problem, float], tuple[Step, ...] | None]


def pack(
    problem: Problem,
    steps: tuple[Step, ...],
    limit_s: float | None,
    tolerance_j: float,
    solve: SolveUntil,
) -> Packed:
    """With addresses, and with transfers beside ops where that ends sooner. Where ``steps`` cannot
    be packed into the budget they are changed, or ``solve`` is asked for others under a smaller
    one. Hard cases take seconds, beyond a time limit too: a schedule without addresses is none.
    """
    seconds = _MOST_S
    if limit_s is not None:
        seconds = min(seconds, max(_LEAST_S, 0.1 * limit_s))
    deadline = time.monotonic() + seconds

    def solve_again(ram_bytes: int) -> tuple[Step, ...] | None:
        budget = problem.budget.model_copy(update={"ram_bytes": ram_bytes})
        return solve(Problem(problem.graph, budget), deadline)

    packed = fit_into_arena(problem, steps, solve_again, deadline, tolerance_j)
    if packed.plan.arena_bytes > problem.budget.ram_bytes:
        return packed
    return _sooner(problem, packed)


def _sooner(problem: Problem, packed: Packed) -> Packed:
    """The same schedule with transfers beside ops, if that ends sooner and has addresses too."""
    graph, budget = problem.graph, problem.budget
    steps = overlap_transfers(problem, packed.steps)
    if steps is packed.steps:
        return packed
    until = time.monotonic() + _LEAST_S
    plan = plan_addresses(graph, steps, budget.covers, budget.ram_bytes, until)
    if plan.arena_bytes > budget.ram_bytes:
        return packed
    steps = with_addresses(steps, plan)
    verify_addresses(graph, steps, plan.resident_address, plan.arena_bytes, budget.covers)
    return Packed(steps, plan, packed.notes)
