"""What a search for the least energy comes to, whatever its method."""

from __future__ import annotations

from dataclasses import dataclass

from solver.problem.schedule import Action, EndedBy
from solver.search.search import Ending

ANY_ORDER = "every schedule, in whatever order its ops are computed"
# In place of the graph's order, where the bound is about the order of the schedule that was found.
OWN_ORDER = "first executions keep this schedule's order"

# What is left of a gap for rounding alone, relative to the energy: sums of thousands of doubles,
# and costs made whole.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Outcome:
    """The best schedule and its energy, if there is one, and what is proven: ``bound_j`` for every
    schedule that ``covers`` and ``restrictions`` describe, ``any_order_bound_j`` for all.

    ``order`` is that of first executions for which ``bound_j`` holds, None for any.
    ``chosen`` says what was done and why, ``engine`` and ``version`` by what (empty where nothing
    had to be searched for); ``notes`` are for who reads the schedule.
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
        """What a schedule says of the ending; None where the methods had nothing left to try."""
        match self.ending:
            case "spent":
                return None
            case "time_limit" | "interrupted":
                return self.ending
        left_j = (self.energy_j or 0.0) - self.bound_j
        return "gap" if left_j > _ROUNDING * (self.energy_j or 0.0) else "proven"
