"""Default strategy: anneal for schedules, prove bounds cheapest first.

1. Annealing runs in a thread from the beginning to the end.
2. The *crossing* program bounds every schedule in any order, and its solution is a start for
   annealing. For many training steps bound and schedule meet here and the search ends.
3. If they do not meet, all schedules of a small graph are searched (``solver.search.states``).
   That ends the search, in any order.
4. Without a schedule so far, orders that need little RAM are tried, and annealing continues from
   several seeds. With one, many runs of the greedy rule look for a better start of annealing, and
   a second thread anneals if an order other than the graph's is better. Once the best schedule gets
   no addresses in a moment, another thread anneals for a spare schedule that has some. If a search
   ends with a proof before there is one, that thread goes on for some seconds.
5. The *compact* program is solved for the order in which the best schedule first computes the ops.
   It is exact up to its restrictions, expensive on large graphs, and skipped on the largest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from math import inf

from pydantic import ValidationError

from devices.errors import BuildFailed, EngineFailed, EngineUnavailable
from devices.program import done_in_any_case
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.constructed.orders import low_memory_orders
from solver.formulations.compact.formulation import MOST_OPS
from solver.options import SolverOptions
from solver.problem.claims import EVERY_SCHEDULE
from solver.problem.problem import Problem
from solver.problem.schedule import Action, first_executions
from solver.search.crossing_search import CrossingSearch
from solver.search.search import Ending, Progress, Search
from solver.solving.auto.annealers import Annealers
from solver.solving.auto.bounds import Bounds
from solver.solving.auto.task import Task
from solver.solving.named import engine_notes, python_mip_version
from solver.solving.outcome import Outcome
from solver.time_limit import OutOfTime, TimeLimit

# Share of the time for the greedy start.
_SHARE_FOR_GREEDY = 0.2
# Share of the remaining time for searching other orders before one is chosen.
_SHARE_FOR_ORDERS = 0.5
# Approximate time to build the compact program, and the multiple of it that must remain.
_BUILD_S_PER_OP_SQUARED, _WORTH_BUILDING = 5e-5, 6.0
# Longest search for a first schedule, and for one with addresses once the search is over.
_FIRST_SCHEDULE_S, _LONGEST_WAIT_S = 10.0, 10.0


class AutomaticSearch:
    """One search for the schedule of least energy. ``deadline`` is on ``time.monotonic``."""

    def __init__(
        self,
        problem: Problem,
        options: SolverOptions,
        on_progress: Callable[[Progress], None],
        deadline: float,
    ) -> None:
        self._problem = problem
        self._options = options
        self._on_progress = on_progress
        self._deadline = deadline
        self._search = Search(
            problem, "energy", options, on_progress, bound=problem.unavoidable_energy_j
        )
        self._task = Task(problem, options, deadline, self._search)
        self._threads = ExitStack()
        self._annealers = Annealers(self._task, self._threads)
        self._bounds = Bounds(self._task, self._annealers)
        self._compact: Search | None = None

    def run(self, starts: Iterable[tuple[Action, ...]]) -> Outcome:
        """Search, beginning with ``starts``.

        A schedule is kept if the engine fails later.

        Raises:
            EngineUnavailable: The engine could not be started.
            EngineFailed: The process of the engine failed, and no schedule was found.
        """
        try:
            for start in (keep_everything(self._problem.graph), *starts):
                self._search.offer_if_valid(start)
        except KeyboardInterrupt:
            return done_in_any_case(partial(self._outcome, "interrupted"))
        if self._search.proven:
            self._task.chosen.append("no search: a starting schedule already meets the lower bound")
            return self._outcome("proven")
        if self._problem.is_evidently_infeasible:
            self._bounds.claim(inf, "costs", EVERY_SCHEDULE)
            return self._outcome("infeasible")
        ending: Ending
        with self._threads:
            try:
                with TimeLimit(self._deadline).enforced():
                    ending = self._run_to_the_end()
                    self._wait_for_addresses()
            except OutOfTime:
                ending = "time_limit"
            except KeyboardInterrupt:
                ending = "interrupted"

            def finished() -> Outcome:
                with self._threads.pop_all():
                    return self._outcome(ending)

            return done_in_any_case(finished)

    def _run_to_the_end(self) -> Ending:
        """Search; with annealing alone once the engine has failed."""
        try:
            return self._run()
        except EngineUnavailable:
            raise
        except EngineFailed as error:
            self._take_found()
            if self._search.actions is None:
                raise
            self._task.notes.append(f"{error}; what was found and proven before is kept")
        self._task.begin_phase("annealing")
        self._annealers.wait(self._deadline)
        return "proven" if self._search.proven else "spent"

    def _run(self) -> Ending:
        self._search.offer_if_valid(page_everything(self._problem))
        with TimeLimit(self._deadline).part(_SHARE_FOR_GREEDY).enforced():
            greedy = greedy_schedule(self._problem, thorough=False)
        self._search.offer_if_valid(greedy or ())
        try:
            self._annealers.begin()
        except BuildFailed as error:
            self._task.chosen.append(f"no annealing, so the graph's order is kept: {error}")
            self._search.offer_if_valid(greedy_schedule(self._problem) or ())
        self._task.begin_phase("bound")
        if self._bounds.prove() == "infeasible":
            return "infeasible"
        # Give annealing time to improve on the last sketch.
        patience_s = 2 * self._annealers.patience_s
        self._annealers.wait(min(self._deadline, time.monotonic() + patience_s))
        if not self._search.proven:
            self._annealers.watch_addresses()
        if self._search.actions is None:
            self._find_first()
        elif not self._search.proven:
            self._improve_greedily()
            self._search_orders()
        if not self._search.proven and self._bounds.tighten() == "infeasible":
            return "infeasible"
        if self._search.proven:
            return "proven"
        if time.monotonic() >= self._deadline:
            return "time_limit"
        op_count = len(self._problem.graph.ops)
        left_s = self._deadline - time.monotonic()
        if (
            op_count <= MOST_OPS
            and left_s > _WORTH_BUILDING * _BUILD_S_PER_OP_SQUARED * op_count**2
        ):
            return self._solve_compact()
        self._task.chosen.append(
            f"no compact program: it is too large for {op_count} ops"
            + (f" in the remaining {max(0.0, left_s):.0f} s" if op_count <= MOST_OPS else "")
        )
        self._task.begin_phase("annealing")
        self._annealers.wait(self._deadline, to_the_end=self._deadline < inf)
        # More time would have allowed the compact program, unless the graph has too many ops.
        is_out_of_time = op_count <= MOST_OPS or time.monotonic() >= self._deadline
        return "time_limit" if is_out_of_time else "spent"

    def _wait_for_addresses(self) -> None:
        """Anneal on for a schedule with addresses if the one that is proven best gets none."""
        if not self._search.proven:
            return
        self._task.begin_phase("annealing for addresses")
        self._annealers.watch_addresses()
        until = min(self._deadline, time.monotonic() + _LONGEST_WAIT_S)
        self._annealers.wait_for_addresses(until)

    # --- schedules ------------------------------------------------------------------------------

    def _find_first(self) -> None:
        """Look further for any schedule: in orders that need little RAM, and from more seeds."""
        self._task.begin_phase("first schedule")
        began = time.monotonic()
        if self._options.order != "given":
            for order in low_memory_orders(self._problem):
                problem = Problem(self._problem.graph.in_order(order), self._problem.budget)
                self._search.offer_if_valid(keep_everything(problem.graph))
                self._search.offer_if_valid(page_everything(problem))
                self._search.offer_if_valid(greedy_schedule(problem, thorough=False) or ())
        if self._annealers and self._options.threads > 1:
            self._annealers.begin()
        until = min(began + _FIRST_SCHEDULE_S, began + _SHARE_FOR_ORDERS * (self._deadline - began))
        self._annealers.wait_for_any(until)
        self._task.chosen.append(
            f"a search for any schedule, in other orders too: {time.monotonic() - began:.1f} s"
        )

    def _improve_greedily(self) -> None:
        """Let annealing continue from the best of many greedy schedules if that is better."""
        self._task.begin_phase("greedy schedules")
        with TimeLimit(self._deadline).part(_SHARE_FOR_GREEDY).enforced():
            greedy = greedy_schedule(self._problem)
        self._annealers.take()
        before = self._search.value
        self._search.offer_if_valid(greedy or ())
        if greedy is not None and self._search.value != before:
            self._annealers.offer(greedy)

    def _search_orders(self) -> None:
        asked = self._options.order == "free"
        if (
            self._search.actions is None
            or not self._annealers
            or not (asked or self._task.order_matters)
        ):
            return
        began = time.monotonic()
        self._task.begin_phase("order of ops")
        if self._options.threads > 1 and not self._annealers.seeks_addresses:
            self._annealers.begin()
        left_s = self._deadline - began
        self._annealers.wait(began + _SHARE_FOR_ORDERS * left_s)
        self._task.chosen.append(
            f"annealing over orders, {time.monotonic() - began:.1f} s, because"
            + (
                " an order other than the graph's is better"
                if self._task.order_matters
                else " a free order was asked for"
            )
        )

    # --- the compact program --------------------------------------------------------------------

    def _solve_compact(self) -> Ending:
        """Solve the compact program of the best order; repeat if annealing finds a better order."""
        while True:
            problem = self._problem_in_best_order()
            actions = self._search.actions
            reordered = problem is not self._problem
            which = "the best order found" if reordered else "the graph's order"
            self._task.chosen.append(f"the compact program of {which}")
            compact = Search(
                problem,
                "energy",
                self._options,
                self._on_progress,
                bound=self._search.bound,
                by=self._bounds.best.by,
                companion=self if self._annealers else None,
                phase="compact program",
            )
            compact.report()
            self._compact = compact
            if actions is not None and first_executions(actions) == problem.graph.order:
                compact.offer(actions)
            ending = compact.run(self._deadline)
            self._bounds.add(compact.claim)
            self._take_found()
            if ending == "infeasible" and self._search.actions is None:
                self._bounds.add(compact.claim_of(inf))
                return "infeasible"
            best = self._problem_in_best_order().graph
            is_over = ending not in ("proven", "infeasible")
            if is_over or self._search.proven or best.order == problem.graph.order:
                # Without a schedule in this order, the schedule in another one stays unproven.
                return "spent" if ending == "infeasible" else ending

    def _take_found(self) -> None:
        """Take over what annealing and the compact search, which may have ended, have found."""
        self._annealers.take()
        if self._compact is not None:
            self._search.offer_if_valid(self._compact.actions or ())

    def found(self) -> tuple[Action, ...] | None:
        """A new schedule from annealing for the compact search, if it has that search's order."""
        if not self._annealers.take() or self._compact is None:
            return None
        actions = self._search.actions
        if actions is None or first_executions(actions) != self._compact.problem.graph.order:
            return None
        return actions

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Give annealing a schedule of the compact search to continue from."""
        self._search.offer_if_valid(actions)
        self._annealers.offer(actions)

    def _problem_in_best_order(self) -> Problem:
        """The problem in the order of the best schedule, or else in the graph's order.

        An order in which an op overwrites a tensor before another op reads it is not the order of
        any graph: in it the tensor is recomputed.
        """
        actions = self._search.actions
        if actions is None or not self._task.order_matters:
            return self._problem
        try:
            graph = self._problem.graph.in_order(first_executions(actions))
        except ValidationError:
            return self._problem
        return Problem(graph, self._problem.budget)

    # --- outcome --------------------------------------------------------------------------------

    def _outcome(self, ending: Ending) -> Outcome:
        search, compact, crossings = self._search, self._compact, self._bounds.crossings
        programs: list[CrossingSearch | Search] = [*crossings]
        self._take_found()
        spare = self._annealers.spare()
        if spare is not None:
            search.offer_if_valid(spare.actions)
        if compact is not None:  # it may have ended early
            programs.append(compact)
            self._bounds.add(compact.claim)
        self._bounds.discard_refuted()
        budget, claims = self._problem.budget, self._bounds.claims
        if search.actions is not None:
            search.bound = claims.of(budget, search.actions).least_j
        # An engine that was stopped early reports only its name: the longest version is complete.
        engine = max((program.engine_version for program in programs), key=len, default="")
        return Outcome(
            ending="proven" if search.proven and ending != "interrupted" else ending,
            actions=search.actions,
            energy_j=search.value,
            budget=budget,
            claims=claims,
            chosen=tuple(self._task.chosen),
            notes=(
                *self._task.notes,
                *(note for program in programs for note in engine_notes(program.faults)),
            ),
            formulation="compact" if compact else "crossing" if crossings else "none",
            engine=self._options.engine if engine else "annealing",
            version=f"{engine}, {python_mip_version()}"
            if engine
            else "no engine"
            if crossings or self._annealers
            else "",
            rounds=sum(program.rounds for program in programs),
            build_s=sum(program.build_s for program in programs),
            spare=spare,
            earlier=lambda: chain(search.earlier, self._annealers.earlier()),
        ).sound(self._options.gap)
