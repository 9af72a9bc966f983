"""Rows for the deadline in a program, which does not model time.

If transfers can run beside ops, a column is the time for which they do: the hidden time. It is
limited by the time of the ops and by that of the transfers, of which the processor's time is never
hidden, so the program's bound holds for every timing. ``solver.overlap`` finds how much of a
schedule's transfers can actually be hidden. If that is less than the column says, and too little
for the deadline, the search limits the column to a smaller share of the transfers. The bound is
then no longer proven, but the search continues.
"""

from __future__ import annotations

from collections.abc import Iterable

from solver.engines.program import Program, Terms, weighted_sum
from solver.formulations.scaled_costs import ScaledCosts
from solver.problem.problem import Problem

# Smallest increase of the share of transfers that counts as not hidden; at 1 none is hidden.
_LEAST_CHARGE = 1 / 8


class DeadlineRows:
    """Deadline rows of a program, if a deadline exists and time is not the objective.

    With DMA they have a column for hidden time. ``recompute`` pairs ops with columns that recompute
    them; ``page_in`` and ``page_out`` pair tensors with columns that move them.
    """

    def __init__(
        self,
        problem: Problem,
        program: Program,
        costs: ScaledCosts,
        *,
        recompute: Iterable[tuple[int, int]],
        page_in: Iterable[tuple[int, int]],
        page_out: Iterable[tuple[int, int]],
    ) -> None:
        self._program = program
        self._least_s = problem.least_time_s
        self._unit_s = self._least_s or 1.0
        ops = problem.graph.ops
        recomputing: Terms = [(column, ops[k].time_s) for k, column in recompute]
        self._paging: Terms = [
            *((column, problem.page_in_due_s[i]) for i, column in page_in),
            *((column, problem.page_out_due_s[i]) for i, column in page_out),
        ]
        self._hidden: int | None = None
        self._limits: list[tuple[Terms, float]] = []
        self._charged = 0.0
        deadline_s = problem.latest_s
        if problem.overlaps and (costs.second > 0 or deadline_s is not None):
            self._hidden = program.column(
                cost=-costs.second * self._unit_s,
                upper=sum(seconds for _, seconds in self._paging) / self._unit_s,
                integer=False,
            )
            working_s = problem.graph.processor_time_s
            # A row that charges no more than this excludes nothing.
            shares = [working_s(seconds) / seconds for _, seconds in self._paging if seconds > 0]
            self._charged = min(shares, default=0.0)
            idle = [(column, seconds - working_s(seconds)) for column, seconds in self._paging]
            self._limit_hidden(idle, 0.0)
            self._limit_hidden(recomputing, self._least_s)
        self._terms: Terms = []
        # Under a deadline that is too short for any schedule, its own scale could overflow engines.
        self._scale_s = max(deadline_s or 0.0, self._least_s) or 1.0
        self._slack_s = 0.0
        if deadline_s is not None and costs.second == 0:
            hidden = [] if self._hidden is None else [(self._hidden, -self._unit_s)]
            self._terms = [*recomputing, *self._paging, *hidden]
            self._slack_s = deadline_s - self._least_s
            if self._hidden is None:
                self._exclude_late()
            self._add_deadline()

    def charge(self, share: float) -> bool:
        """Count at least ``share`` of the transfers' time against the deadline, despite DMA.

        Returns False if all of it counts already. Later bounds are not proven.
        """
        if self._hidden is None or self._charged >= 1.0:
            return False
        self._charged = min(1.0, max(share, self._charged + _LEAST_CHARGE))
        visible = 1.0 - self._charged
        self._limit_hidden([(column, visible * seconds) for column, seconds in self._paging], 0.0)
        return True

    def tighten(self, excess_s: float) -> None:
        """Exclude a solution that is late by ``excess_s`` within the engine's tolerance.

        Later bounds are not proven.
        """
        self._slack_s -= 2 * excess_s
        self._add_deadline()

    def complete(self, values: list[float]) -> None:
        """Set the column of hidden time to the most that the other values allow."""
        if self._hidden is not None:
            values[self._hidden] = min(
                constant + weighted_sum(terms, values) for terms, constant in self._limits
            )

    def _limit_hidden(self, terms: Terms, constant_s: float) -> None:
        """Limit hidden time to the terms and the constant, in seconds."""
        assert self._hidden is not None
        scaled = [(column, seconds / self._unit_s) for column, seconds in terms]
        constant = constant_s / self._unit_s
        self._limits.append((scaled, constant))
        minus = ((column, -share) for column, share in scaled)
        self._program.row([(self._hidden, 1.0), *minus], "<", constant)

    def _exclude_late(self) -> None:
        """Fix columns that alone miss the deadline, whose terms would hide much smaller ones."""
        for column, seconds in self._terms:
            if seconds > self._slack_s:
                self._program.upper[column] = 0.0
        self._terms = [
            (column, seconds) for column, seconds in self._terms if seconds <= self._slack_s
        ]

    def _add_deadline(self) -> None:
        terms = [(column, seconds / self._scale_s) for column, seconds in self._terms]
        self._program.row(terms, "<", self._slack_s / self._scale_s)
