"""Claims: what is proven, for which schedules, by what; and all rules for combining claims.

A claim is a lower bound: within a budget, no schedule of a class needs less than some energy. The
bound is infinite if none exists. That is all that is ever proven:

- *Infeasible* and *exhausted* are infinite bounds, for every schedule and for a restricted class.
- *Optimal* is a bound that meets the energy of a schedule, up to the asked gap.
- *At least n bytes of RAM* is an infinite bound within a budget of n - 1 bytes.

Claims are combined by inclusion alone, each rule being one of logic:

1. A claim holds for every class that its class includes, since fewer schedules need no less.
2. It holds within every tighter budget: what satisfies that one satisfies the roomier one as well.
   A budget is tighter if it has no more RAM, no later deadline, counts the same tensors and the
   same time, and allows no more kinds of actions.
3. Of several claims that hold, the greatest bound holds.
4. A schedule is stated with the greatest finite bound for its own order, or for any order. It may
   lie outside the other restrictions of that class and cost less; then its energy is the bound.

An engine may prove what is false. Claims that rest on other evidence are therefore kept beside its
claims, even beside stronger ones, and are left when a proof is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from solver.engines.proofs import Proof
from solver.problem.schedule import Action, Budget, Schedule, first_executions

GIVEN_ORDER = "first executions keep the graph's order"
# The order of the schedule itself, where a bound holds for that order and not for the graph's.
OWN_ORDER = "first executions keep this schedule's order"
_EVERY = "every schedule, in whatever order its ops are computed"
_RESTRICTED = "every schedule that keeps to the restrictions"
# Relative difference up to which energies count as equal: they are sums of thousands of doubles.
_SAME = 1e-9

# What proves a claim: an engine, in a way that another one can repeat or not; sums of costs; a
# search of all schedules; or a file that states it.
Evidence: TypeAlias = Proof | Literal["constraint program", "costs", "exhaustion", "stated"]


@dataclass(frozen=True)
class ScheduleClass:
    """A class of schedules.

    Attributes:
        order: The order of first executions that all have, None for any.
        further: What all have in common beyond that and beyond satisfying the budget.
    """

    order: tuple[str, ...] | None = None
    further: tuple[str, ...] = ()

    @classmethod
    def named(cls, restrictions: Sequence[str], order: Sequence[str]) -> Self:
        """The class of schedules in an order, with restrictions of which some may name it."""
        names = (GIVEN_ORDER, OWN_ORDER)
        return cls(tuple(order), tuple(each for each in restrictions if each not in names))

    def restrictions(self, graph_order: Sequence[str]) -> tuple[str, ...]:
        """What all schedules of the class have in common, in words."""
        if self.order is None:
            return self.further
        return GIVEN_ORDER if self.order == tuple(graph_order) else OWN_ORDER, *self.further

    def keeps_order(self, actions: Iterable[Action]) -> bool:
        """Whether a schedule has the order of the class, as far as that names one."""
        return self.order is None or first_executions(actions) == self.order

    def includes(self, other: ScheduleClass) -> bool:
        """Whether every schedule of ``other`` is known to be in this class.

        Restrictions are compared by name, so classes with other names count as different.
        """
        has_order = self.order is None or self.order == other.order
        return has_order and set(self.further) <= set(other.further)


EVERY_SCHEDULE = ScheduleClass()


def is_roomier(roomy: Budget, tight: Budget) -> bool:
    """Whether every schedule that satisfies ``tight`` satisfies ``roomy``."""
    return (
        roomy.ram_bytes >= tight.ram_bytes
        and _deadline_s(roomy) >= _deadline_s(tight)
        and (roomy.covers, roomy.instantaneous_paging) == (tight.covers, tight.instantaneous_paging)
        and roomy.paging >= tight.paging
        and roomy.rematerialization >= tight.rematerialization
    )


@dataclass(frozen=True)
class Claim:
    """Within ``budget``, no schedule of the class ``covers`` needs less than ``least_j``.

    ``least_j`` is infinite if none exists. ``by`` is what proves it.
    """

    least_j: float
    budget: Budget
    covers: ScheduleClass = EVERY_SCHEDULE
    by: Evidence = "costs"

    @property
    def is_none(self) -> bool:
        return math.isinf(self.least_j)

    def holds(self, budget: Budget, covers: ScheduleClass) -> bool:
        """Whether the claim is one about ``covers`` within ``budget``, too."""
        return is_roomier(self.budget, budget) and self.covers.includes(covers)

    def replaces(self, other: Claim) -> bool:
        """Whether the other claim follows from this one, and is lost with it at the earliest."""
        follows = self.least_j >= other.least_j and self.holds(other.budget, other.covers)
        return follows and (isinstance(other.by, Proof) or not isinstance(self.by, Proof))


@dataclass(frozen=True)
class Claims:
    """What is proven about one graph at one set of costs."""

    proven: tuple[Claim, ...] = ()

    def also(self, *further: Claim) -> Claims:
        """These claims and further ones, without those that others replace."""
        kept = list(self.proven)
        for claim in further:
            if not any(known.replaces(claim) for known in kept):
                kept = [*(known for known in kept if not claim.replaces(known)), claim]
        return Claims(tuple(kept))

    def resting_on(self, holds: Callable[[Evidence], bool]) -> Claims:
        """The claims whose evidence holds."""
        return Claims(tuple(claim for claim in self.proven if holds(claim.by)))

    def about(self, budget: Budget, covers: ScheduleClass = EVERY_SCHEDULE) -> Claim:
        """The greatest bound for a class within a budget; of equal ones, one without an engine."""
        holding = (claim for claim in self.proven if claim.holds(budget, covers))
        return max(
            holding,
            key=lambda claim: (claim.least_j, not isinstance(claim.by, Proof)),
            default=Claim(0.0, budget),
        )

    @property
    def finite(self) -> Claims:
        """The claims that some schedule may exist."""
        return Claims(tuple(claim for claim in self.proven if not claim.is_none))

    def of(self, budget: Budget, actions: Sequence[Action]) -> Claim:
        """The claim that a schedule within a budget is stated with: about any order if possible."""
        stated = self.finite.about(budget)
        order = first_executions(actions)
        for claim in self.finite.proven:
            within = claim.holds(budget, ScheduleClass(order, claim.covers.further))
            if within and _exceeds(claim.least_j, stated.least_j):
                stated = claim
        return stated

    def none(self, budget: Budget) -> Claim | None:
        """The claim that no schedule exists within a budget, about the widest class; or None."""
        found: Claim | None = None
        for claim in self.proven:
            if claim.is_none and claim.holds(budget, claim.covers):
                found = claim if found is None or claim.covers.includes(found.covers) else found
        return found

    def least_ram_bytes(self, budget: Budget) -> int | None:
        """RAM that every schedule needs with everything else as in ``budget``; None if unknown."""
        rest = {"ram_bytes": 0}
        too_little = [
            claim.budget.ram_bytes
            for claim in self.proven
            if claim.is_none and claim.holds(budget.model_copy(update=rest), EVERY_SCHEDULE)
        ]
        return max(too_little) + 1 if too_little else None


def claims_of(schedule: Schedule, graph_order: Sequence[str]) -> Claims:
    """What a schedule states as proven.

    ``graph_order`` are the ops in the graph's order, which restrictions may refer to.
    """
    budget, covers = schedule.budget, class_of(schedule, graph_order)
    claims = []
    if schedule.any_order_bound_j is not None:
        claims.append(Claim(schedule.any_order_bound_j, budget, by="stated"))
    if schedule.energy_bound_j is not None:
        claims.append(Claim(schedule.energy_bound_j, budget, covers, "stated"))
    if schedule.status in ("infeasible", "exhausted"):
        claims.append(Claim(math.inf, budget, covers, "stated"))
    if schedule.smallest_ram_bound_bytes:
        claims.append(needs_ram(schedule.smallest_ram_bound_bytes, budget, "stated"))
    return Claims().also(*claims)


def class_of(schedule: Schedule, graph_order: Sequence[str]) -> ScheduleClass:
    """The class that the bound of a schedule, or its verdict that none exists, holds for."""
    if not schedule.restrictions:
        return EVERY_SCHEDULE
    own = OWN_ORDER in schedule.restrictions
    order = first_executions(schedule.actions) if own else tuple(graph_order)
    return ScheduleClass.named(schedule.restrictions, order)


def needs_ram(least_bytes: int, budget: Budget, by: Evidence) -> Claim:
    """The claim that every schedule needs so much RAM, with everything else as in ``budget``."""
    return Claim(math.inf, budget.model_copy(update={"ram_bytes": least_bytes - 1}), by=by)


def covered(claim: Claim, graph_order: Sequence[str]) -> dict[str, object]:
    """Fields of a schedule that name the class of a claim."""
    restrictions = claim.covers.restrictions(graph_order)
    return {"bound_covers": covered_words(restrictions), "restrictions": restrictions}


def covered_words(restrictions: Sequence[str]) -> str:
    """The ``bound_covers`` of a schedule with a bound and these ``restrictions``."""
    return _RESTRICTED if restrictions else _EVERY


def proven_of(
    claims: Claims,
    budget: Budget,
    graph_order: Sequence[str],
    actions: Sequence[Action],
    energy_j: float,
    asked_gap: float,
    *,
    meets_bound: bool = False,
) -> dict[str, object]:
    """Fields of a schedule that state what is proven of its actions, which need ``energy_j``.

    ``meets_bound`` says that a search proved them to be the best although rounding leaves a gap.
    """
    claim = claims.of(budget, actions)
    bound_j = min(claim.least_j, energy_j)
    gap = (energy_j - bound_j) / energy_j if energy_j else 0.0
    return {
        "status": "optimal" if meets_bound or gap <= asked_gap + _SAME else "feasible",
        "energy_bound_j": bound_j,
        "any_order_bound_j": min(claims.finite.about(budget).least_j, energy_j),
        "asked_gap": asked_gap,
        "gap": gap,
        **covered(claim, graph_order),
    }


def none_of(claims: Claims, budget: Budget, graph_order: Sequence[str]) -> dict[str, object]:
    """Fields of a document without a schedule: that none exists in a class, or none is known."""
    none = claims.none(budget)
    if none is None:
        return {"status": "no_solution", **covered(claims.about(budget), graph_order)}
    return {
        "status": "infeasible" if none.covers == EVERY_SCHEDULE else "exhausted",
        **covered(none, graph_order),
    }


def _exceeds(a: float, b: float) -> bool:
    return a > b + _SAME * abs(b)


def _deadline_s(budget: Budget) -> float:
    return math.inf if budget.deadline_s is None else budget.deadline_s
