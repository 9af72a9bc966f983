"""Bounds for all schedules that an automatic search covers.

An engine's proof that a known schedule, or a solution of its own program, refutes is a false one:
every bound that came from an engine is dropped then.
"""

from __future__ import annotations

import time
from contextlib import suppress
from math import inf

from solver.problem.claims import EVERY_SCHEDULE, Claim, Claims, Evidence, ScheduleClass
from solver.problem.schedule import first_executions
from solver.search.crossing_search import CrossingSearch, FalseBound, NoSchedule, Proven, Sketch
from solver.search.search import Ending
from solver.search.states import search_states
from solver.solving.auto.annealers import Annealers
from solver.solving.auto.task import Task
from solver.time_limit import OutOfTime, TimeLimit

# Share of the requested gap to which the crossing program is solved.
_CROSSING_GAP = 0.25
# Share of the time left for a bound with open ops, and the longest search for one; the least gap,
# relative to the schedule, for which it is worth the time.
_SHARE_FOR_OPEN_OPS, _OPEN_OPS_S, _OPEN_OPS_GAP = 0.25, 120.0, 0.01
# Longest search of all schedules of a small graph.
_ALL_SCHEDULES_S = 3.0
# Relative difference that rounding explains between a bound and the energy of a schedule.
_ROUNDING = 1e-6


class Bounds:
    """Bounds on the energy of all schedules of a task, or of those in the given order.

    ``crossings`` are the searches with the crossing program that have begun.
    """

    def __init__(self, task: Task, annealers: Annealers) -> None:
        self._task = task
        self._annealers = annealers
        problem = task.problem
        self.claims = Claims((Claim(problem.unavoidable_energy_j, problem.budget),))
        self._sums = self.claims
        self.crossings: list[CrossingSearch] = []

    def prove(self) -> Ending:
        """Prove a bound with the crossing program, and by searching all schedules of a small graph.

        Returns "infeasible", or "proven" or "spent" when no more can be proven.
        """
        if self._prove_by_crossing(self._task.deadline) == "infeasible":
            return "infeasible"
        return self._search_all()

    def tighten(self) -> Ending:
        """Prove a bound that says more of ops whose order the graph leaves open, if there is much
        of a gap, within a share of the time left.

        Returns "infeasible", or "proven" when no more can be proven.
        """
        value_j = self._task.search.value
        is_close = value_j is not None and self.best.least_j >= (1 - _OPEN_OPS_GAP) * value_j
        if is_close or self._task.order_kept == "given":
            return "proven"
        limit = TimeLimit(self._task.deadline).part(_SHARE_FOR_OPEN_OPS).at_most(_OPEN_OPS_S)
        self._task.begin_phase("bound")
        with suppress(OutOfTime), limit.enforced():
            return self._prove_by_crossing(limit.end, open_ops=True)
        return "proven"

    def claim(self, least_j: float, by: Evidence, covers: ScheduleClass | None = None) -> None:
        """Claim a bound for all schedules that are searched, or for those of a class."""
        covers = self._searched if covers is None else covers
        self.add(Claim(least_j, self._task.problem.budget, covers, by))
        self._task.search.bound = self.best.least_j

    def add(self, *claims: Claim) -> None:
        """Add claims that were proven elsewhere."""
        self.claims = self.claims.also(*claims)

    def discard_refuted(self) -> None:
        """Discard the engine's proofs if the best schedule, found after them, refutes one."""
        stated = self.claims.about(self._task.problem.budget, self._searched)
        if self._is_refuted(stated.least_j):
            self._report_fault(
                "called a problem infeasible that has a schedule"
                if stated.is_none
                else "proved a bound above the energy of a schedule"
            )

    @property
    def best(self) -> Claim:
        """The best finite bound on the schedules that are searched."""
        return self.claims.finite.about(self._task.problem.budget, self._searched)

    @property
    def _searched(self) -> ScheduleClass:
        """The class that the search covers: all schedules, or those in the given order."""
        if self._task.order_kept == "any":
            return EVERY_SCHEDULE
        return ScheduleClass(self._task.problem.graph.order)

    def _prove_by_crossing(
        self, deadline: float, *, open_ops: bool = False, presolve: bool = True
    ) -> Ending:
        """Prove a bound with the crossing program; again without presolve after a false proof.

        Returns "infeasible", or "proven" when the crossing program can prove no more.
        """
        began = time.monotonic()
        options, search, kept = self._task.options, self._task.search, self._task.order_kept
        threads = max(1, options.threads - len(self._annealers))
        crossing = CrossingSearch(
            self._task.problem, kept, options.engine, threads, presolve=presolve, open_ops=open_ops
        )
        self.crossings.append(crossing)
        fault = ""
        for news in crossing.run(_CROSSING_GAP * options.gap, deadline):
            self._annealers.take()
            match news:
                case NoSchedule() if search.actions is None:
                    self.claim(inf, news.proof)
                    return "infeasible" if self._is_confirmed() else "proven"
                case NoSchedule():
                    fault = "called a problem infeasible that has a schedule"
                case FalseBound():
                    fault = "proved a bound that a solution of its program refutes"
                case Proven() if self._is_refuted(news.bound_j):
                    fault = "proved a bound above the energy of a schedule"
                case Proven():
                    self.claim(news.bound_j, news.proof or "costs")
                case Sketch():
                    self._annealers.offer_sketch(news.makes)
            if fault:
                self._report_fault(fault)
                if presolve and not open_ops:
                    return self._prove_by_crossing(deadline, presolve=False)
                return "proven"
            search.report()
            if search.proven:
                break
        program = crossing.crossing
        self._task.chosen.append(
            f"the crossing program{' with open ops' if open_ops else ''}"
            f" ({len(program.program.cost)} columns, memory at {len(program.moments)} ops) for a"
            f" bound on {'any' if kept == 'any' else 'the given'} order:"
            f" {time.monotonic() - began:.1f} s"
        )
        return "proven"

    def _search_all(self) -> Ending:
        """Search all schedules of a small graph. "spent" if the graph is too large for that."""
        search = self._task.search
        if search.proven:
            return "proven"
        began = time.monotonic()
        kept = self._task.order_kept
        until = min(self._task.deadline, began + _ALL_SCHEDULES_S)
        result = search_states(self._task.problem, "energy", order=kept, deadline=until)
        if result is None:
            return "spent"
        self._task.chosen.append(
            f"all schedules in {'any' if kept == 'any' else 'the given'} order were searched:"
            f" {time.monotonic() - began:.1f} s"
        )
        if result.actions is None or result.value is None:
            self.claim(inf, "exhaustion")
            return "infeasible"
        search.offer(result.actions)
        if self._is_refuted(search.bound or 0.0):
            self._report_fault("proved a bound above the energy of a schedule")
        self.claim(result.value, "exhaustion")
        return "proven"

    # --- false proofs ---------------------------------------------------------------------------

    def _is_refuted(self, bound_j: float) -> bool:
        """Whether the best schedule is one that the bound covers, and needs less."""
        actions, value_j = self._task.search.actions, self._task.search.value
        if actions is None or value_j is None or bound_j <= value_j * (1 + _ROUNDING):
            return False
        in_any_order = self._task.order_kept == "any"
        return in_any_order or first_executions(actions) == self._task.problem.graph.order

    def _is_confirmed(self) -> bool:
        """Confirm for a small graph that no schedule exists; drop the claim if one is found."""
        if self._search_all() == "infeasible" or self._task.search.actions is None:
            return True
        self._report_fault("called a problem infeasible that has a schedule")
        return False

    def _report_fault(self, what: str) -> None:
        """Note a false proof of the engine, and forget every bound that came from it."""
        self._task.notes.append(f"the engine {what}; its proofs were discarded")
        self.claims = self._sums
        self._task.search.bound = self.claims.about(self._task.problem.budget).least_j
