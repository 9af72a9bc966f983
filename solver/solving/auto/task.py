"""The task of an automatic search, which annealing, bounds and the order of methods share."""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.formulations.crossing import OrderKept
from solver.options import SolverOptions
from solver.problem.problem import Problem
from solver.problem.schedule import first_executions
from solver.search.search import Search


@dataclass
class Task:
    """One search for the schedule of least energy. ``deadline`` is on ``time.monotonic``.

    ``search`` has the best schedule, in any order, and the bound for all schedules that are
    searched. ``chosen`` and ``notes`` are those of the outcome so far.
    """

    problem: Problem
    options: SolverOptions
    deadline: float
    search: Search
    chosen: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def order_kept(self) -> OrderKept:
        """The order that every schedule keeps to."""
        return "given" if self.options.order == "given" else "any"

    @property
    def order_matters(self) -> bool:
        """Whether the best schedule computes ops in another order than the graph's."""
        actions = self.search.actions
        return actions is not None and first_executions(actions) != self.problem.graph.order

    def begin_phase(self, name: str) -> None:
        """Report that a phase begins."""
        self.search.phase = name
        self.search.report()
