"""Result of a search for the least energy, common to all methods."""

from __future__ import annotations

from dataclasses import dataclass

from solver.engines.proofs import Proof
from solver.problem.claims import ScheduleClass
from solver.problem.schedule import Action, Certificate, EndedBy
from solver.search.search import Ending

# Gap, relative to the energy, that rounding alone explains: sums of thousands of doubles, and
# costs rounded to integers.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Outcome:
    """Best schedule found, its energy, and the bounds proven.

    ``bound_j`` holds for every schedule of the class ``covered``, ``any_order_bound_j`` for all
    schedules. If ``ending`` is ``infeasible``, no schedule of that class satisfies the budget.
    ``proof`` is the engine's for the former or for this, ``any_order_proof`` that for the latter
    bound; None where no engine was needed. ``certificate`` says what became of a second proof.
    ``chosen`` lists the methods used and why; ``engine`` and
    ``version`` name the program used (empty if no search was needed); ``notes`` are copied into
    the schedule.
    """

    ending: Ending
    actions: tuple[Action, ...] | None
    energy_j: float | None
    bound_j: float
    any_order_bound_j: float
    covered: ScheduleClass
    formulation: str
    engine: str
    version: str
    rounds: int
    build_s: float
    proof: Proof | None = None
    any_order_proof: Proof | None = None
    certificate: Certificate | None = None
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_refuted(self) -> bool:
        """Whether a second engine refuted a claim."""
        return self.certificate is not None and self.certificate.outcome == "refuted"

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
