"""Repair of schedules that fit the budget as a sum of bytes, but not as addresses in an arena."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import TypeAlias

from solver.addresses.changes import changes
from solver.addresses.eviction import evict_into_arena
from solver.addresses.plan import (
    A_MOMENT,
    Addressed,
    AddressPlan,
    plan_addresses,
    with_addresses,
)
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.addresses import verify_addresses
from solver.referee.referee import Late, RefereeError, replay, verify
from solver.time_limit import OutOfTime, TimeLimit, check_time

SolveAgain: TypeAlias = Callable[[int], tuple[Action, ...] | None]

# Shares of the remaining time: for the addresses of one schedule and of one of many, for changes,
# and for paging tensors out of the way.
_PLAN_SHARE, _TRY_SHARE = 0.3, 0.1
_CHANGES_SHARE, _FAR_CHANGES_SHARE, _EVICTING_SHARE = 0.5, 0.15, 0.6
# Longest search for the latter, and time reserved for its result, as a multiple of that of a pass.
_EVICTING_S_PER_ACTION, _RESERVED_PASSES = 0.005, 3.0
_EVICTED = "paging tensors out of the way"
# Limits of the seconds for planning one of many schedules; arena relative to the budget up to which
# small changes are likely to suffice, and from which on solving again for less RAM takes much more
# energy; relative precision of the RAM for which solving again packs.
_LEAST_PLAN_S, _MOST_PLAN_S, _CLOSE, _FAR, _FINEST = 0.5, 2.0, 1.03, 1.1, 0.003
# Factor below the RAM that would make up for the fragmentation, for the next attempt.
_SMALLER = 0.99
# A schedule that does not pack is useless: the search for one that does may take this long beyond
# the deadline (not beyond the time limit), and this many failures of solving again.
_LAST_RESORT_S, _MOST_MISSES = 40.0, 3
_PLAN_OF_A_CHANGE_S = 0.1
# Share of the time that is left for putting earlier schedules together and costing them.
_COSTING_SHARE = 0.3


@dataclass(frozen=True)
class Packed:
    """A schedule with addresses, and their plan.

    ``notes`` say what was changed so that it packs, and the cost of that. If nothing packs, the
    plan has the smallest arena found, which exceeds the budget, and the actions have no addresses.
    """

    actions: tuple[Action, ...]
    plan: AddressPlan
    notes: tuple[str, ...]


def fit_into_arena(
    problem: Problem,
    actions: Sequence[Action],
    solve_again: SolveAgain,
    deadline: float,
    tolerance_j: float,
    limit: TimeLimit = TimeLimit(),  # noqa: B008 - immutable
    spare: Addressed | None = None,
    earlier: Iterable[tuple[Action, ...]] = (),
) -> Packed:
    """Find a schedule whose arena is within the budget, and verify that with both referees.

    Tried in turn: ``actions`` as they are; the ``spare`` schedule; paging tensors out of the
    way in one pass, which packs almost always and leaves a result whatever the time allows
    later; ``earlier`` schedules, up to the first one that packs; small changes, cheapest first; if
    none packs, a search for a way to page less; schedules for less RAM. The last step is skipped if
    the best costs no more than ``tolerance_j`` beyond ``actions``.

    Args:
        problem: The problem.
        actions: A valid schedule.
        solve_again: Returns a schedule for a budget in bytes, or None.
        deadline: End of the search, on ``time.monotonic``. It may pass while no schedule packs.
        tolerance_j: Extra energy at which a changed schedule is accepted without solving again.
        limit: End of the search even if no schedule packs.
        spare: A schedule that is valid but for the deadline, with addresses for one like it.
        earlier: Schedules that the same search has found, valid but for the deadline; gone through
            once, while time is left.

    Returns:
        The best schedule found, with addresses if it packs. Ctrl-C ends the search with what packs.

    Raises:
        KeyboardInterrupt: Ctrl-C, and nothing packs yet.
        RefereeError: A schedule is not valid.
    """
    # A spare schedule is made where this one is not expected to pack.
    share = _PLAN_SHARE if spare is None else _TRY_SHARE
    fitting = _Fitting(problem, actions, min(deadline, limit.end), share)
    try:
        if not fitting.packs:
            if spare is not None:
                fitting.take(spare, limit)
            pass_s = fitting.evict(limit)
            fitting.fall_back(earlier, limit)
            if not fitting.change():
                fitting.evict_less(pass_s, limit)
        if not fitting.packs or fitting.extra_j > tolerance_j:
            fitting.solve(solve_again, limit)
    except KeyboardInterrupt:
        if not fitting.packs:
            raise
    return fitting.packed()


@dataclass(frozen=True)
class _Candidate:
    actions: tuple[Action, ...]
    plan: AddressPlan
    energy_j: float
    how: str


def _is_late(problem: Problem, actions: tuple[Action, ...]) -> bool:
    """Whether an otherwise valid schedule misses the deadline.

    Raises :class:`RefereeError` if it is not valid for another reason.
    """
    try:
        verify(problem.graph, actions, problem.budget)
    except Late:
        return True
    return False


class _Fitting:
    def __init__(
        self, problem: Problem, actions: Sequence[Action], deadline: float, plan_share: float
    ) -> None:
        self._problem = problem
        self._limit_bytes = problem.budget.ram_bytes
        self._deadline = deadline
        self._first = self._try(tuple(actions), "as it is", self._soon(plan_share))
        self._best = self._first
        # RAM for which a schedule packs, 0 if none is known.
        self._packing_bytes = 0

    @property
    def packs(self) -> bool:
        return self._fits(self._best)

    @property
    def extra_j(self) -> float:
        return self._best.energy_j - self._first.energy_j

    def take(self, spare: Addressed, limit: TimeLimit) -> None:
        """Try a schedule with addresses, if need be with tensors paged out of the way."""
        problem, actions = self._problem, spare.actions
        peak_bytes = replay(problem.graph, actions, problem.budget.covers).peak_bytes
        how = f"another one, which fits {peak_bytes} bytes as a sum,"
        if _is_late(problem, actions):
            return
        found = self._try(actions, how, limit.end, spare.plan, work=2 * A_MOMENT)
        self._offer(found)
        if self._fits(found):
            self._packing_bytes = peak_bytes
        else:
            self._evict(actions, f"{how} and {_EVICTED}", 0.0, limit)

    def fall_back(self, earlier: Iterable[tuple[Action, ...]], limit: TimeLimit) -> None:
        """Try what a search had found before, best first, until one packs."""
        for energy_j, actions in self._by_energy(earlier, limit.part(_COSTING_SHARE)):
            known_j = self._best.energy_j if self.packs else inf
            if limit.has_passed or energy_j >= known_j:
                return
            with suppress(RefereeError):  # it is late
                how = "a schedule found earlier"
                self._offer(self._try(actions, how, limit.end, work=A_MOMENT))

    def _by_energy(
        self, schedules: Iterable[tuple[Action, ...]], limit: TimeLimit
    ) -> list[tuple[float, tuple[Action, ...]]]:
        """The schedules that are costed within the limit, by energy."""
        graph, covers = self._problem.graph, self._problem.budget.covers
        costed: list[tuple[float, tuple[Action, ...]]] = []
        if not limit.has_passed:
            for actions in schedules:
                costed.append((replay(graph, actions, covers).energy_j, actions))
                if limit.has_passed:
                    break
        return sorted(costed, key=itemgetter(0))

    def change(self) -> bool:
        """Apply changes one by one: the cheapest that packs, else that of the smallest arena.

        Returns whether they pack in the end.
        """
        is_close = self._first.plan.arena_bytes <= _CLOSE * self._limit_bytes
        until = self._soon(_CHANGES_SHARE if is_close else _FAR_CHANGES_SHARE)
        current = self._first
        count = 0
        while True:
            count += 1
            how = f"{count} small change{'s' if count > 1 else ''} of it"
            better = self._best_change(current, how, until)
            if better is None:
                return False
            self._offer(better)
            if self._fits(better):
                return True
            current = better

    def evict(self, limit: TimeLimit) -> float:
        """Page tensors out of the way of others in one pass; return the seconds that it took."""
        began = time.monotonic()
        self._evict(self._first.actions, _EVICTED, 0.0, limit)
        return time.monotonic() - began

    def evict_less(self, pass_s: float, limit: TimeLimit) -> None:
        """Search for a way to page less out of the way, once a pass, which took ``pass_s``, packs.

        Where the arena is not much too large, solving again takes less energy than that search.
        """
        actions, now = self._first.actions, time.monotonic()
        longest_s = _EVICTING_S_PER_ACTION * len(actions)
        until = min(self._soon(_EVICTING_SHARE), now + longest_s)
        # The search is worth nothing if its result comes too late.
        until = min(until, limit.end - _RESERVED_PASSES * pass_s)
        is_far = self._first.plan.arena_bytes > _FAR * self._limit_bytes
        if is_far and now < until and self.packs and self.extra_j > 0:
            self._evict(actions, _EVICTED, until, limit)

    def _evict(self, actions: tuple[Action, ...], how: str, until: float, limit: TimeLimit) -> None:
        problem, found = self._problem, None
        with limit.enforced(), suppress(OutOfTime):
            found = evict_into_arena(problem, actions, until)
        if found is None:
            return
        with suppress(RefereeError):  # it is late
            energy_j = verify(problem.graph, found[0], problem.budget).energy_j
            self._offer(_Candidate(*found, energy_j, how))

    def solve(self, solve_again: SolveAgain, limit: TimeLimit) -> None:
        """Solve for less RAM until the result packs, then bisect for the most RAM that packs."""
        problem, most = self._problem, self._limit_bytes
        too_much, packs, misses = most, self._packing_bytes, 0
        ram_bytes = min(most - 1, most * most // max(1, self._first.plan.arena_bytes))
        if ram_bytes <= packs:
            ram_bytes = (packs + too_much) // 2
        last = min(limit.end, max(self._deadline, time.monotonic() + _LAST_RESORT_S))
        while too_much - packs > max(1.0, _FINEST * most):
            if time.monotonic() >= (self._deadline if self.packs else last):
                return
            actions = solve_again(ram_bytes)
            if actions is None or _is_late(problem, actions):
                misses += 1
                if misses == _MOST_MISSES:
                    return
                if not packs:
                    continue  # annealing is random and may succeed next time
                too_much = ram_bytes
            else:
                how = f"solving it again for {ram_bytes} bytes"
                found = self._try(actions, how, self._a_while(limit))
                self._offer(found)
                if self._fits(found):
                    packs = ram_bytes
                else:
                    too_much = ram_bytes
                    self._evict(actions, f"{how} and {_EVICTED}", 0.0, limit)
                    if not packs:
                        over = found.plan.arena_bytes / most
                        ram_bytes = min(ram_bytes - 1, int(_SMALLER * ram_bytes / over))
                        continue
            ram_bytes = (packs + too_much) // 2

    def packed(self) -> Packed:
        best, problem = self._best, self._problem
        notes = tuple(self._notes(best, self._first))
        if not self.packs:
            return Packed(best.actions, best.plan, notes)
        actions = with_addresses(best.actions, best.plan)
        verify(problem.graph, actions, problem.budget)
        verify_addresses(
            problem.graph,
            actions,
            best.plan.resident_address,
            best.plan.arena_bytes,
            problem.budget.covers,
        )
        return Packed(actions, best.plan, notes)

    def _notes(self, best: _Candidate, first: _Candidate) -> list[str]:
        if self._fits(first):
            return []
        proven = first.plan.bound_bytes > self._limit_bytes
        why = "no addresses exist" if proven else "no addresses were found"
        note = (
            f"the schedule found first fits {self._limit_bytes} bytes as a sum, but {why} for it"
            f" (at least {first.plan.bound_bytes} bytes, found {first.plan.arena_bytes} bytes)"
        )
        if not self._fits(best):
            return [f"{note}, nor were any for the other schedules tried"]
        share = 100 * self.extra_j / first.energy_j if first.energy_j else 0.0
        return [f"{note}; {best.how} packs and takes {self.extra_j:.4g} J more ({share:.3g} %)"]

    def _best_change(self, current: _Candidate, how: str, until: float) -> _Candidate | None:
        """The first change that packs, else that of the smallest arena if smaller than now."""
        problem, plan = self._problem, current.plan
        best = current
        excess_bytes = plan.arena_bytes - self._limit_bytes
        try:
            with TimeLimit(until).enforced():
                crowded = self._crowded(plan)
                possible = changes(problem, current.actions, crowded, excess_bytes)
        except OutOfTime:
            return None
        for change in possible:
            now = time.monotonic()
            if now > until:
                break
            try:
                actions = with_frees(problem.graph, change.make())
                found = self._try(actions, how, min(until, now + _PLAN_OF_A_CHANGE_S), plan)
            except RefereeError:  # the changed schedule is over the budget or invalid
                continue
            if self._fits(found):
                return found
            if found.plan.arena_bytes < best.plan.arena_bytes:
                best = found
        return None if best is current else best

    def _crowded(self, plan: AddressPlan) -> list[tuple[int, int]]:
        """Ranges of actions of the blocks beyond the budget, and of the blocks under them."""
        placed = list(zip(plan.blocks, plan.offsets, strict=True))
        found = [(b, o) for b, o in placed if o + b.bytes > self._limit_bytes]
        seen = set(found)
        for block, offset in found:  # the list grows during the loop
            check_time()
            for other, low in placed:
                stands_on = (
                    low + other.bytes == offset
                    and other.first < block.end
                    and block.first < other.end
                )
                if stands_on and (other, low) not in seen:
                    seen.add((other, low))
                    found.append((other, low))
        return [(block.first, block.end) for block, _ in found]

    def _try(
        self,
        actions: tuple[Action, ...],
        how: str,
        until: float,
        like: AddressPlan | None = None,
        work: int | None = None,
    ) -> _Candidate:
        problem = self._problem
        energy_j = verify(problem.graph, actions, problem.budget).energy_j
        covers = problem.budget.covers
        plan = plan_addresses(problem.graph, actions, covers, self._limit_bytes, until, like, work)
        return _Candidate(actions, plan, energy_j, how)

    def _offer(self, found: _Candidate) -> None:
        if self._rank(found) < self._rank(self._best):
            self._best = found

    def _rank(self, found: _Candidate) -> tuple[int, float]:
        """Sort key: excess of the arena over the budget, then energy."""
        return max(0, found.plan.arena_bytes - self._limit_bytes), found.energy_j

    def _fits(self, found: _Candidate) -> bool:
        return found.plan.arena_bytes <= self._limit_bytes

    def _a_while(self, limit: TimeLimit) -> float:
        """End of planning one of many schedules."""
        least = time.monotonic() + _LEAST_PLAN_S
        return min(limit.at_most(_MOST_PLAN_S).end, max(least, self._soon(_TRY_SHARE)))

    def _soon(self, share: float) -> float:
        """Time at which this share of the remaining time will have passed."""
        now = time.monotonic()
        return now + share * max(0.0, self._deadline - now)
