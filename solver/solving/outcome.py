"""Result of a search for the least energy, common to all methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from solver.addresses.plan import Addressed
from solver.problem.claims import Claim, Claims
from solver.problem.schedule import Action, Budget, Certificate, EndedBy
from solver.search.search import Ending

# Gap, relative to the energy, that rounding alone explains: sums of thousands of doubles, and
# costs rounded to integers.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class Outcome:
    """Best schedule found, its energy, and what is proven.

    If ``ending`` is ``infeasible``, one of the claims is that no schedule exists within ``budget``.
    ``certificate`` says what became of a second proof. ``chosen`` lists the methods used and why;
    ``engine`` and ``version`` name the program used (empty if only starting schedules were tried);
    ``notes`` are copied into the schedule. For when the best schedule gets no addresses, ``spare``
    is one with addresses, and ``earlier`` returns some that were found before, each put together
    when it is due.
    """

    ending: Ending
    actions: tuple[Action, ...] | None
    energy_j: float | None
    budget: Budget
    claims: Claims
    formulation: str
    engine: str
    version: str
    rounds: int
    build_s: float
    certificate: Certificate | None = None
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    spare: Addressed | None = None
    earlier: Callable[[], Iterable[tuple[Action, ...]]] = tuple

    @property
    def stated(self) -> Claim:
        """The claim that the result is stated with."""
        if self.actions is not None:
            return self.claims.of(self.budget, self.actions)
        return self.claims.none(self.budget) or self.claims.about(self.budget)

    def sound(self, gap: float) -> Self:
        """This result, ``proven`` only if its bound meets its schedule within a relative ``gap``.

        A search may end with a proof about another order than that of the best schedule.
        """
        if self.actions is None or self.energy_j is None:
            return self
        if self.ending not in ("proven", "infeasible"):
            return self
        left_j = self.energy_j - self.stated.least_j
        is_met = left_j <= (gap + _ROUNDING) * self.energy_j
        return replace(self, ending="proven" if is_met else "spent")

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
        left_j = (self.energy_j or 0.0) - self.stated.least_j
        return "gap" if left_j > _ROUNDING * (self.energy_j or 0.0) else "proven"
