"""Claims: what is proven, and for which schedules.

A claim (a bound, or that no schedule exists) holds for a class of schedules. Rules for combining
claims follow from inclusion of classes alone: a claim about a class holds for every class that it
includes, and for no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solver.problem.schedule import Action, Schedule, first_executions

_EVERY = "every schedule, in whatever order its ops are computed"
_RESTRICTED = "every schedule that keeps to the restrictions"
# The order of the schedule itself, where the bound holds for that order and not for the graph's.
OWN_ORDER = "first executions keep this schedule's order"


@dataclass(frozen=True)
class ScheduleClass:
    """A class of schedules.

    Attributes:
        restrictions: What all schedules of the class have in common, beyond satisfying the budget.
            Empty for the class of every schedule.
        order: The order of first executions that all have, None for any. If it is set, one of the
            restrictions names it.
    """

    restrictions: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None

    @property
    def is_every_schedule(self) -> bool:
        return not self.restrictions

    @property
    def words(self) -> str:
        """The class as ``bound_covers`` of a schedule states it."""
        return _EVERY if self.is_every_schedule else _RESTRICTED

    def keeps_order(self, actions: Iterable[Action]) -> bool:
        """Whether a schedule has the order of the class, as far as that names one."""
        return self.order is None or first_executions(actions) == self.order

    def includes(self, other: ScheduleClass) -> bool:
        """Whether every schedule of ``other`` is known to be in this class.

        Restrictions are compared by name, so classes with other names count as different. Orders
        are compared as orders: "this schedule's order" is another one in another schedule.
        """
        if self.order is not None and self.order != other.order:
            return False
        named = set(self.restrictions) - _order_names(self)
        return named <= set(other.restrictions) - _order_names(other)


EVERY_SCHEDULE = ScheduleClass()


def class_of(schedule: Schedule, graph_order: Sequence[str]) -> ScheduleClass:
    """The class that the bound of a schedule, or its verdict that none exists, holds for.

    ``graph_order`` are the ops in the graph's order, which restrictions may refer to.
    """
    if not schedule.restrictions:
        return EVERY_SCHEDULE
    own = OWN_ORDER in schedule.restrictions
    order = first_executions(schedule.actions) if own else tuple(graph_order)
    return ScheduleClass(schedule.restrictions, order)


def _order_names(some: ScheduleClass) -> set[str]:
    """The restriction that names the order, which is compared as an order instead."""
    return set() if some.order is None else set(some.restrictions[:1])
