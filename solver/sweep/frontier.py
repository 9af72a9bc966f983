"""Schedules of one graph under several budgets, and what each implies for the others.

A schedule is valid under every budget that its RAM and time satisfy, whatever budget it was found
for. What is proven under one budget holds under others by the rules of
:mod:`solver.problem.claims`. Schedules of other methods serve the points, too, but are no points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from solver.problem.claims import (
    EVERY_SCHEDULE,
    Claim,
    Claims,
    claims_of,
    covered,
    is_roomier,
    none_of,
    proven_of,
)
from solver.problem.graph import CostedGraph
from solver.problem.problem import DEADLINE_ROUNDING, Problem
from solver.problem.schedule import Action, Budget, Compute, Schedule, SolverRecord
from solver.referee.referee import replay, verify

# Relative difference up to which energies count as equal: they are sums of thousands of doubles.
_SAME = 1e-9
# Most schedules that a search starts from although they may not be valid for it.
_MOST_HOPEFUL = 3
_BORROWED = ("the schedule found for ", "the schedule found by ")
# Fields that a schedule takes over together with the actions of another.
_OF_ACTIONS = (
    "actions",
    "energy_j",
    "time_s",
    "peak_bytes",
    "arena_bytes",
    "arena_bound_bytes",
    "bytes_written_to_storage",
    "resident_address",
)


@dataclass(frozen=True)
class Offer:
    """A schedule with addresses that another method found, for points to use.

    ``by`` is the name of the method.
    """

    schedule: Schedule
    by: str


class Frontier:
    """The best schedule known under each budget.

    All budgets count the same tensors and allow the same kinds of actions. ``gap`` is the distance
    from the bound that counts as optimal, relative to a schedule's energy.
    """

    def __init__(self, graph: CostedGraph, gap: float) -> None:
        self._graph = graph
        self._gap = gap
        self._claims = Claims()
        # What has been learned since the known schedules last stated what is proven of them.
        self._news: list[Claim] = []
        self._least_energy_j = math.fsum(op.energy_j for op in graph.ops)
        self._known: dict[Budget, Schedule] = {}
        self._offers: list[Offer] = []

    @property
    def schedules(self) -> Mapping[Budget, Schedule]:
        """The best schedule known under each budget."""
        return MappingProxyType(self._known)

    def learn(self, schedule: Schedule) -> None:
        """Learn what a schedule proves; its actions are not used."""
        news = claims_of(schedule, self._graph.order).proven
        self._claims = self._claims.also(*news)
        self._news += news

    def add_all(self, schedules: Iterable[Schedule]) -> None:
        """Add schedules, such as those of an earlier sweep; see :meth:`add`.

        What is proven of each is stated once, after all are known.
        """
        for schedule in schedules:
            self.learn(schedule)
            self._known[schedule.budget] = self._with_actions_of_others(schedule)
            for budget, known in self._known.items():
                self._known[budget] = self._taking(known, self._known[schedule.budget])
        for budget, known in self._known.items():
            self._known[budget] = self._restated(known)
        self._news.clear()

    def add(self, schedule: Schedule, asked: Budget | None = None) -> list[Schedule]:
        """Add a schedule, which may improve those under other budgets and be improved by them.

        A schedule that was found for less RAM than ``asked`` is added as one for that.

        Returns the schedule as improved, followed by those under other budgets that it improved.

        Raises ``RefereeError`` if a schedule is invalid under a budget that it should satisfy,
        which is a defect.
        """
        self.learn(schedule)
        if asked is not None and schedule.budget != asked:
            schedule = self._within(asked, schedule)
        schedule = self._restated(self._with_actions_of_others(schedule))
        others = [other for other in self._improve_by(schedule) if other.budget != schedule.budget]
        self._known[schedule.budget] = schedule
        return [schedule, *others]

    def offer(self, offer: Offer) -> list[Schedule]:
        """Let points use a schedule of another method. Returns those that it improved.

        Raises ``RefereeError`` if it is invalid under a budget that it should satisfy, which is a
        defect.
        """
        self._offers.append(offer)
        return self._improve_by(offer.schedule, offer.by)

    def _improve_by(self, schedule: Schedule, by: str | None = None) -> list[Schedule]:
        changed = []
        for budget, known in self._known.items():
            improved = self._taking(known, schedule, by)
            if improved is not known or any(_says_more(claim, known) for claim in self._news):
                improved = self._restated(improved)
            if improved is not known:
                self._known[budget] = improved
                changed.append(improved)
        self._news.clear()
        return changed

    def _within(self, budget: Budget, schedule: Schedule) -> Schedule:
        """A schedule for less RAM, with what is proven within a roomier budget."""
        claims, order, energy_j = self._claims, self._graph.order, schedule.energy_j
        proven = (
            none_of(claims, budget, order)
            if energy_j is None
            else proven_of(claims, budget, order, schedule.actions, energy_j, self._gap)
        )
        # A smaller budget that would do, or an op that sets it, is no answer about this one.
        advice = {} if proven["status"] == "infeasible" else _without_advice()
        return schedule.model_copy(
            update={
                "budget": budget,
                "asked_ram_bytes": None,
                "certificate": None,
                "ended_by": None,
                **advice,
                **proven,
            }
        )

    def starts(self, budget: Budget) -> tuple[tuple[Action, ...], ...]:
        """Schedules from which a search under ``budget`` starts.

        The first is the best that is known to fit. Some that take less energy follow, cheapest
        last: they fit as a sum of bytes, and their addresses do not or are late only as long as no
        transfers run beside ops. Those within the gap of the least energy of any schedule are left
        out, since a search would end with them at once, whether they get addresses or not.
        """
        best = self._best_fit(budget)
        overlaps = Problem(self._graph, budget).overlaps
        hopeful = {
            schedule.energy_j: schedule.actions
            for schedule in self._schedules
            if schedule.energy_j is not None
            and (schedule.peak_bytes or 0) <= budget.ram_bytes
            and (overlaps or _is_in_time(schedule, budget))
            and (best is None or _less(schedule.energy_j, best.energy_j))
            and not self._is_near_least(schedule)
        }
        cheapest = [hopeful[energy_j] for energy_j in sorted(hopeful)[:_MOST_HOPEFUL]]
        return (*(() if best is None else (best.actions,)), *reversed(cheapest))

    @property
    def _schedules(self) -> Iterator[Schedule]:
        """Schedules of all points and of other methods."""
        yield from self._known.values()
        yield from (offer.schedule for offer in self._offers)

    def without_search(self, budget: Budget) -> Schedule | None:
        """The result for ``budget`` if it follows from other budgets: infeasible, or an optimum.

        Returns None if a search is needed, or if it takes no effort because the energy of computing
        every op once is proof enough.
        """
        order = self._graph.order
        none = self._claims.none(budget)
        if none is not None and none.covers == EVERY_SCHEDULE:
            alike = [s for s in self._known.values() if s.budget.deadline_s == budget.deadline_s]
            source = next((s for s in alike if s.status == "infeasible"), None)
            return Schedule(
                smallest_ram_bytes=source.smallest_ram_bytes if source else None,
                smallest_ram_bound_bytes=self._claims.least_ram_bytes(budget),
                limiting_op=source.limiting_op if source else None,
                notes=source.notes if source else (),
                **self._inferred(budget, none),
                **none_of(self._claims, budget, order),
            )
        best = self._best_fit(budget)
        if best is None or not self._known or self._is_near_least(best):
            return None
        claim = self._claims.of(budget, best.actions)
        nothing = {"status": "no_solution", **covered(claim, order)}
        schedule = self._taking(Schedule(**self._inferred(budget, claim), **nothing), best)
        schedule = self._restated(schedule)
        return schedule if schedule.status == "optimal" else None

    def _is_near_least(self, schedule: Schedule) -> bool:
        return (schedule.energy_j or 0.0) * (1 - self._gap) <= self._least_energy_j

    def _best_fit(self, budget: Budget) -> Schedule | None:
        fitting = [s for s in self._schedules if _fits(s, budget)]
        return min(fitting, key=lambda s: s.energy_j or 0.0, default=None)

    def _with_actions_of_others(self, schedule: Schedule) -> Schedule:
        """A schedule with the best actions and advice of all, and not yet what is proven."""
        for other in self._known.values():
            schedule = self._taking(schedule, other)
        for offer in self._offers:
            schedule = self._taking(schedule, offer.schedule, offer.by)
        return schedule

    def _taking(self, schedule: Schedule, other: Schedule, by: str | None = None) -> Schedule:
        """``schedule`` with the better of the actions and advice of both.

        It states no bounds if it takes the other's actions, which :meth:`_restated` adds. ``by`` is
        the method that found ``other``, if it is not the one of the points.
        """
        budget = schedule.budget
        if _fits(other, budget) and _less(other.energy_j, schedule.energy_j):
            verify(self._graph, other.actions, budget)
            own_notes = [note for note in schedule.notes if not note.startswith(_BORROWED)]
            found = "the schedule found " + ("" if by is None else f"by {by} ")
            changes: dict[str, object] = {
                **{name: getattr(other, name) for name in _OF_ACTIONS},
                **_without_advice(),
                "notes": (*own_notes, f"{found}for {_words(other.budget)}"),
                "energy_bound_j": None,
                "any_order_bound_j": None,
            }
        elif schedule.energy_j is None:
            changes = self._better_advice(schedule, other)
        else:
            changes = {}
        # A certificate is about what the search under this budget proved.
        return schedule.model_copy(update={**changes, "certificate": None}) if changes else schedule

    def _restated(self, schedule: Schedule) -> Schedule:
        """``schedule`` with what is proven of it, if that is more than it states."""
        claims, budget, order = self._claims, schedule.budget, self._graph.order
        actions, energy_j = schedule.actions, schedule.energy_j
        if energy_j is None:
            proven = none_of(claims, budget, order)
        else:
            proven = proven_of(claims, budget, order, actions, energy_j, self._gap)
        restated = schedule.model_copy(update={**proven, "certificate": None})
        is_more = (
            restated.status == "infeasible" != schedule.status
            or _less(schedule.energy_bound_j, restated.energy_bound_j, missing=-math.inf)
            or _less(schedule.any_order_bound_j, restated.any_order_bound_j, missing=-math.inf)
        )
        return restated if is_more else schedule

    def _inferred(self, budget: Budget, claim: Claim) -> dict[str, object]:
        """Fields of a schedule that follows from a claim without search."""
        first = next(iter(self._known.values()))
        source = self._known.get(claim.budget, first)
        return {
            "graph": source.graph,
            "graph_sha256": source.graph_sha256,
            "energy_source": source.energy_source,
            "budget": budget,
            "solver": SolverRecord(
                engine="none",
                formulation=source.solver.formulation,
                version=f"no search was needed: it follows from {_words(claim.budget)}",
                seconds=0.0,
                build_seconds=0.0,
                rounds=0,
                threads=0,
            ),
        }

    def _better_advice(self, schedule: Schedule, other: Schedule) -> dict[str, object]:
        """A smaller feasible RAM budget than the one that ``schedule`` states, from ``other``."""
        named = schedule.smallest_ram_bytes
        if named is None or not _fits(
            other, schedule.budget.model_copy(update={"ram_bytes": named - 1})
        ):
            return {}
        played = replay(self._graph, other.actions, other.budget.covers)
        peak = other.actions[played.peak_action]
        return {
            "smallest_ram_bytes": _takes_bytes(other),
            "limiting_op": peak.op if isinstance(peak, Compute) else schedule.limiting_op,
        }


def _fits(schedule: Schedule, budget: Budget) -> bool:
    if not schedule.actions:
        return False
    return _takes_bytes(schedule) <= budget.ram_bytes and _is_in_time(schedule, budget)


def _is_in_time(schedule: Schedule, budget: Budget) -> bool:
    time_s = math.inf if schedule.time_s is None else schedule.time_s
    return time_s <= _deadline_s(budget) * (1 + DEADLINE_ROUNDING)


def _says_more(claim: Claim, schedule: Schedule) -> bool:
    """Whether a claim may prove more of a schedule, or of its budget, than the schedule states."""
    if claim.is_none != (schedule.energy_j is None):
        return False
    if not is_roomier(claim.budget, schedule.budget):
        return False
    is_of_all = claim.covers == EVERY_SCHEDULE
    stated_j = schedule.any_order_bound_j if is_of_all else schedule.energy_bound_j
    least_j = claim.least_j if schedule.energy_j is None else min(claim.least_j, schedule.energy_j)
    return _less(stated_j, least_j, missing=-math.inf)


def _takes_bytes(schedule: Schedule) -> int:
    return max(schedule.peak_bytes or 0, schedule.arena_bytes or 0)


def _deadline_s(budget: Budget) -> float:
    return math.inf if budget.deadline_s is None else budget.deadline_s


def _less(a: float | None, b: float | None, missing: float = math.inf) -> bool:
    low, high = missing if a is None else a, missing if b is None else b
    return low < high and (math.isinf(low) or math.isinf(high) or low < high - _SAME * abs(high))


def _without_advice() -> dict[str, object]:
    """What a schedule no longer states once it has actions."""
    return {
        "smallest_ram_bytes": None,
        "smallest_ram_bound_bytes": None,
        "smallest_deadline_s": None,
        "smallest_deadline_bound_s": None,
        "limiting_op": None,
    }


def _words(budget: Budget) -> str:
    deadline_s = budget.deadline_s
    deadline = "no deadline" if deadline_s is None else f"a deadline of {deadline_s:.9g} s"
    return f"{budget.ram_bytes} bytes of RAM and {deadline}"
