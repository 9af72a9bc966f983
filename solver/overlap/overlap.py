"""Transfers beside ops: making the page-ins and page-outs of a schedule asynchronous.

The ops, their order and the transfers stay the same. A page-out begins as soon as its tensor is in
RAM, and the tensor leaves RAM when the transfer has ended. Page-ins begin early. List scheduling
(``dispatch.py``) decides how early and in which order. It is repeated with other due dates for the
transfers around the waits of the processor.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate

from solver.overlap.alone import alone_where_nothing_is_gained, gains_nothing
from solver.overlap.dispatch import Dispatch, Dispatched, Plan
from solver.overlap.stays import Stays, Transfer
from solver.problem.graph import CostedGraph
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.referee.referee import replay
from solver.time_limit import OutOfTime

# Most dispatches for one schedule, and most actions of all of them together.
_MOST_ROUNDS, _ACTIONS_TOGETHER = 200, 60_000
# Largest shift of a transfer's due date, in compute actions.
_SHIFT = 16
# Relative difference of times that counts.
_NOTICEABLE = 1e-9


def overlap_transfers(problem: Problem, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Run the transfers of a schedule beside its ops so that it ends early.

    Ops and transfers, and so the energy, stay the same. The result never ends later than
    ``actions`` and is within the RAM budget. ``actions`` are returned unchanged if the storage has
    no DMA, nothing is paged, or they exceed the budget. After the enforced time limit only the
    transfers as they are ordered in ``actions`` are tried.

    Raises :class:`~solver.referee.referee.RefereeError` if ``actions`` are not valid.
    """
    found = _overlapped(problem, tuple(actions), enough_s=0.0)
    return alone_where_nothing_is_gained(problem.graph, found)


def meet_deadline(problem: Problem, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Run the transfers of a schedule beside its ops if it misses the deadline.

    If they meet it, only transfers that gain nothing beside ops are changed: they run alone. The
    result is within the RAM budget, but may still miss the deadline.

    Raises :class:`~solver.referee.referee.RefereeError` if ``actions`` are not valid.
    """
    actions, deadline_s = tuple(actions), problem.latest_s
    if deadline_s is not None and problem.overlaps:
        actions = _overlapped(problem, actions, enough_s=deadline_s)
    return alone_where_nothing_is_gained(problem.graph, actions)


def one_at_a_time(problem: Problem, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Make all transfers synchronous.

    Page-outs come right after their tensor is in RAM, page-ins right before it is needed.
    """
    stays = Stays(problem, actions)
    result: list[Action] = [out.alone for stay in stays.there_after(-1) for out in stay.outs]
    for gap in range(len(stays.computed) + 1):
        for stay in stays.beginning_at(gap):
            if stay.page_in is not None:
                result += [transfer.alone for transfer in (stay.page_in, *stay.outs)]
        if gap < len(stays.computed):
            result.append(Compute(op=stays.computed[gap].name))
            result += [out.alone for stay in stays.there_after(gap) for out in stay.outs]
    return with_frees(problem.graph, result)


def _overlapped(
    problem: Problem, actions: tuple[Action, ...], enough_s: float
) -> tuple[Action, ...]:
    """The schedule that ends earliest, or the first found that ends by ``enough_s``."""
    graph, budget = problem.graph, problem.budget
    best, played = actions, replay(graph, actions, budget.covers)
    if not graph.asynchronous_transfers:
        return actions
    stays = Stays(problem, actions)
    if played.time_s <= enough_s or played.peak_bytes > budget.ram_bytes or not stays.transfers:
        return actions
    in_place = tuple(_beside_compute(graph, action) for action in actions)
    candidates = [in_place]
    with suppress(OutOfTime):
        candidates.append(_best_dispatch(stays, budget.ram_bytes, enough_s).actions)
    for candidate in candidates:
        result = replay(graph, candidate, budget.covers)
        # The memory profile of a dispatch omits page-ins that nothing needs, so check the peak.
        fits = result.peak_bytes <= budget.ram_bytes
        if fits and result.time_s < played.time_s * (1 - _NOTICEABLE):
            best, played = candidate, result
    return best


def _beside_compute(graph: CostedGraph, action: Action) -> Action:
    """The action beside ops, if it is a transfer that can gain anything there."""
    if not isinstance(action, PageIn | PageOut) or gains_nothing(graph, action):
        return action
    return action.model_copy(update={"asynchronous": True})


def _best_dispatch(stays: Stays, ram_bytes: int, enough_s: float) -> Dispatched:
    chance = random.Random(0)  # noqa: S311
    none = (0,) * len(stays.transfers)
    plans = [Plan(none, none), Plan(none, none, overtaking=True)]
    dispatched = [Dispatch(stays, ram_bytes, plan).run() for plan in plans]
    best, plan = min(zip(dispatched, plans, strict=True), key=lambda pair: pair[0].time_s)
    least_s = _least_time_s(stays)
    if enough_s and least_s > enough_s * (1 + _NOTICEABLE):
        return best  # no timing can end by then
    for _ in range(min(_MOST_ROUNDS, _ACTIONS_TOGETHER // len(best.actions))):
        if best.time_s <= max(enough_s, least_s * (1 + _NOTICEABLE)):
            break
        changed = _changed(stays, plan, best, chance)
        candidate = Dispatch(stays, ram_bytes, changed).run()
        if candidate.time_s <= best.time_s:
            best, plan = candidate, changed
    return best


def _changed(stays: Stays, plan: Plan, best: Dispatched, chance: random.Random) -> Plan:
    """Change a plan at a random wait of the processor.

    Either the transfer waited for becomes more urgent, or a transfer that may have delayed it (on
    the channel, or by its bytes in RAM) begins later.
    """
    weights = [seconds for _, _, seconds in best.waits]
    gap, late, _ = chance.choices(best.waits, weights)[0]
    rivals = [
        transfer
        for transfer in stays.transfers
        if transfer is not late
        and best.begun[transfer.number] <= gap
        and (
            best.begun[transfer.number] >= best.begun[late.number] - _SHIFT
            or (not transfer.is_out and transfer.stay.first > gap)
        )
    ]
    if not rivals or chance.random() < 0.3:
        return replace(plan, earlier=_with(plan.earlier, late, chance.randint(1, _SHIFT)))
    rival = chance.choice(rivals)
    begun = best.begun[rival.number]
    latest = begun + _SHIFT if rival.is_out else max(begun, rival.stay.first)
    return replace(plan, not_before=_with(plan.not_before, rival, chance.randint(begun, latest)))


def _with(values: tuple[int, ...], transfer: Transfer, value: int) -> tuple[int, ...]:
    number = transfer.number
    return (*values[:number], value, *values[number + 1 :])


def _least_time_s(stays: Stays) -> float:
    """Lower bound on the time of the step for every timing of the transfers.

    The processor needs the sum of the ops and of its time for the transfers, the channel that of
    the transfers, and every transfer lies between the ops that must come before and after it.
    """
    reached_s = [0.0, *accumulate(op.time_s for op in stays.computed)]
    total_s = reached_s[-1]
    heads, tails = [], []
    for transfer in stays.transfers:
        stay = transfer.stay
        if transfer.is_out:
            head_s = 0.0 if stay.made is None else reached_s[stay.made + 1]
            tail_s = total_s - reached_s[stay.last] if stay.overwritten else 0.0
        else:
            head_s = 0.0 if stay.before is None else reached_s[stay.before.last + 1]
            tail_s = total_s - reached_s[stay.first]
        heads.append(head_s)
        tails.append(tail_s)
    moved_s = sum(transfer.time_s for transfer in stays.transfers)
    longest_s = max(
        head_s + transfer.time_s + tail_s
        for head_s, transfer, tail_s in zip(heads, stays.transfers, tails, strict=True)
    )
    working_s = total_s + sum(stays.processor_time_s(each.time_s) for each in stays.transfers)
    return max(working_s, min(heads) + moved_s + min(tails), longest_s)
