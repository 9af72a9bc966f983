"""The deadline in a program, which has no clock.

Where transfers can run beside ops, a column tells for how long they do. What the program knows of
it is that it is no longer than ops take, and no longer than transfers take. So its bound holds for
every timing; how much of a schedule's transfers can really be hidden is found by
``solver.overlap``. Where that is less than the program had counted on, and too little for the
deadline, it is told to count on a smaller share of them, which ends the proof but not the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from solver.engines.program import Program
from solver.problem.problem import Problem

Expression: TypeAlias = list[tuple[int, float]]

# By how much the share of transfers that is not hidden grows at least: at 1 none are.
_LEAST_CHARGE = 1 / 8


class Timing:
    """Rows for the deadline of a problem, if it has one and time is not what is minimised; with DMA
    also a column for hidden time. ``computing`` (what is beyond computing every op once) and
    ``paging`` are columns with the seconds that each counts; a second on the objective is
    ``second_cost``."""

    def __init__(
        self,
        problem: Problem,
        program: Program,
        computing: Expression,
        paging: Expression,
        second_cost: float,
    ) -> None:
        self._program = program
        self._least_s = problem.least_time_s
        self._unit_s = self._least_s or 1.0
        self._paging = paging
        self._hidden: int | None = None
        self._limits: list[tuple[Expression, float]] = []
        self._charged = 0.0
        deadline_s = problem.budget.deadline_s
        if problem.overlaps and (second_cost > 0 or deadline_s is not None):
            self._hidden = program.column(
                cost=-second_cost * self._unit_s,
                upper=sum(seconds for _, seconds in paging) / self._unit_s,
                integer=False,
            )
            self._limit(paging, 0.0)
            self._limit(computing, self._least_s)
        self._deadline: Expression = []
        self._scale_s = deadline_s or 1.0
        self._slack_s = 0.0
        if deadline_s is not None and second_cost == 0:
            hidden = [] if self._hidden is None else [(self._hidden, -self._unit_s)]
            self._deadline = [*computing, *paging, *hidden]
            self._slack_s = deadline_s - self._least_s
            self._add_deadline()

    def charge(self, share: float) -> bool:
        """Count on at least ``share`` of the transfers' time not to be hidden. False if none of it
        was counted on already."""
        if self._hidden is None or self._charged >= 1.0:
            return False
        self._charged = min(1.0, max(share, self._charged + _LEAST_CHARGE))
        self._limit([(c, (1.0 - self._charged) * seconds) for c, seconds in self._paging], 0.0)
        return True

    def tighten(self, excess_s: float) -> None:
        """An engine may violate a row within its tolerance: rule out a solution that is late by
        this much. The bound of what follows is no longer exact."""
        self._slack_s -= 2 * excess_s
        self._add_deadline()

    def complete(self, values: list[float]) -> None:
        """Set the column of hidden time to the most that the other values allow."""
        if self._hidden is not None:
            values[self._hidden] = min(_sum(values, *limit) for limit in self._limits)

    def _limit(self, terms: Expression, constant_s: float) -> None:
        """Hidden is at most the terms and the constant, in seconds."""
        assert self._hidden is not None
        scaled = [(column, seconds / self._unit_s) for column, seconds in terms]
        constant = constant_s / self._unit_s
        self._limits.append((scaled, constant))
        minus = ((column, -share) for column, share in scaled)
        self._program.row([(self._hidden, 1.0), *minus], "<", constant)

    def _add_deadline(self) -> None:
        terms = [(column, seconds / self._scale_s) for column, seconds in self._deadline]
        self._program.row(terms, "<", self._slack_s / self._scale_s)


def _sum(values: Sequence[float], terms: Expression, constant: float) -> float:
    return constant + math.fsum(values[column] * factor for column, factor in terms)
