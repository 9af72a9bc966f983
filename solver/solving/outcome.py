"""Result of a search for the least energy, common to all methods."""

from __future__ import annotations

from dataclasses import dataclass

from solver.problem.schedule import Action, EndedBy
from solver.search.search import Ending

ANY_ORDER = "every schedule, in whatever order its ops are computed"
# Restriction used when the bound holds for the order of the schedule found, not the graph's order.
OWN_ORDER = "first executions keep this schedule's order"

# Gap, relative to the energy, that rounding alone explains: sums of thousands of doubles, and
# costs rounded to integers.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Outcome:
    """Best schedule found, its energy, and the bounds proven.

    ``bound_j`` holds for every schedule that ``covers`` and ``restrictions`` describe,
    ``any_order_bound_j`` for all schedules. ``order`` is the order of first executions for which
    ``bound_j`` holds, None for any. ``chosen`` lists the methods used and why; ``engine`` and
    ``version`` name the program used (empty if no search was needed); ``notes`` are copied into
    the schedule.
    """

    ending: Ending
    actions: tuple[Action, ...] | None
    energy_j: float | None
    bound_j: float
    any_order_bound_j: float
    covers: str
    restrictions: tuple[str, ...]
    order: tuple[str, ...] | None
    formulation: str
    engine: str
    version: str
    rounds: int
    build_s: float
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ended_by(self) -> EndedBy | None:
        """The schedule's ``ended_by``; None if the methods had nothing left to try."""
        match self.ending:
            case "spent":
                return None
            case "time_limit" | "interrupted":
                return self.ending
        left_j = (self.energy_j or 0.0) - self.bound_j
        return "gap" if left_j > _ROUNDING * (self.energy_j or 0.0) else "proven"
