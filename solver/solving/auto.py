"""Default strategy: anneal for schedules, prove bounds cheapest first.

1. Annealing runs in a thread from the beginning to the end.
2. The *crossing* program bounds every schedule in any order, and its solution is a start for
   annealing. For many training steps bound and schedule meet here and the search ends.
3. If they do not meet, all schedules of a small graph are searched (``solver.search.states``).
   That ends the search, in any order.
4. Without a schedule so far, orders that need little RAM are tried, and annealing continues from
   several seeds. With one, many runs of the greedy rule look for a better start of annealing, and
   a second thread anneals if an order other than the graph's is better. If it gets no addresses in
   a moment, another thread anneals for less RAM: a spare schedule, which is easier to pack.
5. The *compact* program is solved for the order in which the best schedule first computes the ops.
   It is exact up to its restrictions, expensive on large graphs, and skipped on the largest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from math import inf

from pydantic import ValidationError

from devices.errors import BuildFailed, EngineFailed, EngineUnavailable
from devices.program import done_in_any_case
from solver.addresses.plan import plan_addresses
from solver.annealing import Annealer
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.constructed.orders import low_memory_orders
from solver.formulations.compact.formulation import MOST_OPS
from solver.formulations.crossing import OrderKept
from solver.options import SolverOptions
from solver.problem.claims import EVERY_SCHEDULE, Claim, Claims, Evidence, ScheduleClass
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, first_executions
from solver.search.crossing_search import CrossingSearch, NoSchedule, Proven, Sketch
from solver.search.search import Ending, Progress, Search
from solver.search.states import search_states
from solver.solving.named import engine_notes, python_mip_version
from solver.solving.outcome import Outcome
from solver.time_limit import OutOfTime, TimeLimit

# Annealing alone stops after this many seconds per op without improvement, within these limits,
# or after this share of its running time, whichever is longer.
_PATIENCE_S_PER_OP, _LEAST_PATIENCE_S, _MOST_PATIENCE_S, _PATIENCE_SHARE = 0.01, 0.3, 6.0, 0.3
# Share of the time for the greedy start.
_SHARE_FOR_GREEDY = 0.2
# Share of the remaining time for searching other orders before one is chosen.
_SHARE_FOR_ORDERS = 0.5
_POLL_S = 0.05
# Time for trying whether a schedule gets addresses; shares of the RAM for which greedy schedules
# are tried if the best gets none, and share of the time for them.
_MOMENT_S, _SPARE_SHARES, _SHARE_FOR_SPARES, _SPARE_SEED = 0.3, (0.98, 0.95, 0.9, 0.85), 0.1, 101
# Most ops of a graph for which annealing finds a schedule for less RAM in the time of one search.
_MOST_SPARE_OPS = 1000
# Approximate time to build the compact program, and the multiple of it that must remain.
_BUILD_S_PER_OP_SQUARED, _WORTH_BUILDING = 5e-5, 6.0
# Share of the requested gap to which the crossing program is solved.
_CROSSING_GAP = 0.25
# Longest search of all schedules of a small graph, and longest search for a first schedule.
_ALL_SCHEDULES_S, _FIRST_SCHEDULE_S = 3.0, 10.0
# Relative difference that rounding explains between a bound and the energy of a schedule.
_ROUNDING = 1e-6


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
        least_j = problem.unavoidable_energy_j
        self._claims = self._sums = Claims((Claim(least_j, problem.budget),))
        # The best schedule in any order, and the bound for all schedules that are searched.
        self._search = Search(problem, "energy", options, on_progress, bound=least_j)
        self._compact: Search | None = None
        self._crossing: CrossingSearch | None = None
        self._chosen: list[str] = []
        self._notes: list[str] = []
        self._annealers: list[Annealer] = []
        self._spare: Annealer | None = None

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
            self._chosen.append("no search: a starting schedule already meets the lower bound")
            return self._outcome("proven")
        if self._problem.is_evidently_infeasible:
            self._claim(inf, "costs", EVERY_SCHEDULE)
            return self._outcome("infeasible")
        ending: Ending
        with ExitStack() as annealing:
            try:
                with TimeLimit(self._deadline).enforced():
                    ending = self._run_to_the_end(annealing)
            except OutOfTime:
                ending = "time_limit"
            except KeyboardInterrupt:
                ending = "interrupted"

            def finished() -> Outcome:
                with annealing.pop_all():
                    return self._outcome(ending)

            return done_in_any_case(finished)

    def _run_to_the_end(self, annealing: ExitStack) -> Ending:
        """Search; with annealing alone once the engine has failed."""
        try:
            return self._run(annealing)
        except EngineUnavailable:
            raise
        except EngineFailed as error:
            self._take()
            if self._search.actions is None:
                raise
            self._notes.append(f"{error}; what was found and proven before is kept")
        self._begin_phase("annealing")
        self._anneal_on(self._deadline)
        return "proven" if self._search.proven else "spent"

    def _run(self, annealing: ExitStack) -> Ending:
        self._search.offer_if_valid(page_everything(self._problem))
        with TimeLimit(self._deadline).part(_SHARE_FOR_GREEDY).enforced():
            greedy = greedy_schedule(self._problem, thorough=False)
        self._search.offer_if_valid(greedy or ())
        try:
            self._begin_annealing(annealing)
        except BuildFailed as error:
            self._chosen.append(f"no annealing, so the graph's order is kept: {error}")
            self._search.offer_if_valid(greedy_schedule(self._problem) or ())
        self._begin_phase("bound")
        if self._bound_any_order() == "infeasible" or self._search_all() == "infeasible":
            return "infeasible"
        # Give annealing time to improve on the last sketch.
        self._anneal_on(min(self._deadline, time.monotonic() + 2 * self._patience_s))
        if self._search.actions is None:
            self._find_first(annealing)
        elif not self._search.proven:
            self._begin_spare(annealing)
            self._improve_greedily()
            self._search_orders(annealing)
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
        self._chosen.append(
            f"no compact program: it is too large for {op_count} ops"
            + (f" in the remaining {max(0.0, left_s):.0f} s" if op_count <= MOST_OPS else "")
        )
        self._begin_phase("annealing")
        self._anneal_on(self._deadline, to_the_end=self._deadline < inf)
        # More time would have allowed the compact program, unless the graph has too many ops.
        is_out_of_time = op_count <= MOST_OPS or time.monotonic() >= self._deadline
        return "time_limit" if is_out_of_time else "spent"

    def _begin_phase(self, name: str) -> None:
        self._search.phase = name
        self._search.report()

    # --- schedules ------------------------------------------------------------------------------

    def _begin_annealing(self, annealing: ExitStack) -> None:
        annealer = Annealer(
            self._problem,
            keep_everything(self._problem.graph),
            free_order=self._options.order != "given",
            transfer_share=self._transfer_share,
            seed=1 + len(self._annealers),
        )
        if self._search.actions is not None:
            annealer.offer(self._search.actions)
        self._annealers.append(annealing.enter_context(annealer))

    def _begin_spare(self, annealing: ExitStack) -> None:
        """Anneal for less RAM too, if the best schedule so far gets no addresses in a moment."""
        graph, actions = self._problem.graph, self._search.actions
        wanted = self._options.addresses and self._options.threads > 1 and self._annealers
        if not wanted or actions is None or len(graph.ops) > _MOST_SPARE_OPS:
            return
        if self._arena_share(actions) <= 1:
            return
        share, start = self._packing_greedy()
        spare = Annealer(
            self._problem,
            keep_everything(graph),
            free_order=self._options.order != "given",
            transfer_share=self._transfer_share,
            seed=_SPARE_SEED,
            arena_share=self._arena_share,
            ram_share=share,
        )
        spare.offer(start or actions)
        self._spare = annealing.enter_context(spare)
        self._chosen.append("annealing for less RAM too, for a schedule that gets addresses")

    def _packing_greedy(self) -> tuple[float, tuple[Action, ...] | None]:
        """The largest share of the RAM whose greedy schedule gets addresses; the schedule."""
        budget = self._problem.budget
        with suppress(OutOfTime), TimeLimit(self._deadline).part(_SHARE_FOR_SPARES).enforced():
            for share in _SPARE_SHARES:
                less = budget.model_copy(update={"ram_bytes": int(share * budget.ram_bytes)})
                greedy = greedy_schedule(Problem(self._problem.graph, less), thorough=False)
                if greedy is not None and self._arena_share(greedy) <= 1:
                    return share, greedy
        return _SPARE_SHARES[-1], None

    def _arena_share(self, actions: Sequence[Action]) -> float:
        """The smallest arena for a schedule that is found in a moment, as a share of the RAM."""
        graph, budget = self._problem.graph, self._problem.budget
        until = min(self._deadline, time.monotonic() + _MOMENT_S)
        plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until)
        return plan.arena_bytes / budget.ram_bytes

    @property
    def _transfer_share(self) -> float:
        """Share of the transfers' time that annealing counts against a deadline.

        It is an estimate where transfers run beside ops: how much of them can be hidden is known
        only after a schedule is found.
        """
        return 0.5 if self._problem.overlaps else 1.0

    def _take(self) -> bool:
        """Take over new schedules from annealing; True if one is better than the incumbent."""
        before = self._search.value
        for annealer in self._annealers:
            found = annealer.found()
            if found is not None:
                self._search.offer_if_valid(found)
        return self._search.value != before

    def found(self) -> tuple[Action, ...] | None:
        """A new schedule from annealing for the compact search, if it has that search's order."""
        if not self._take() or self._compact is None:
            return None
        actions = self._search.actions
        return actions if actions and _in_order(actions, self._compact.problem.graph) else None

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Give annealing a schedule of the compact search to continue from."""
        self._search.offer_if_valid(actions)
        for annealer in self._annealers[:1]:
            annealer.offer(actions)

    def _anneal_on(self, until: float, *, to_the_end: bool = False) -> None:
        """Wait for annealing until ``until``, or until it stalls unless ``to_the_end``."""
        began = gained = time.monotonic()
        while self._annealers and (now := time.monotonic()) < until and not self._search.proven:
            patience_s = max(self._patience_s, _PATIENCE_SHARE * (now - began))
            if now - gained > patience_s and not to_the_end:
                break
            time.sleep(_POLL_S)
            if self._take():
                gained = time.monotonic()
            self._search.report()

    @property
    def _patience_s(self) -> float:
        patience_s = _PATIENCE_S_PER_OP * len(self._problem.graph.ops)
        return min(_MOST_PATIENCE_S, max(_LEAST_PATIENCE_S, patience_s))

    # --- bounds ---------------------------------------------------------------------------------

    def _bound_any_order(self, *, presolve: bool = True) -> Ending:
        """Prove a bound with the crossing program; again without presolve after a false proof.

        Returns "infeasible", or "proven" when the crossing program can prove no more.
        """
        began = time.monotonic()
        kept: OrderKept = "given" if self._options.order == "given" else "any"
        threads = max(1, self._options.threads - len(self._annealers))
        engine = self._options.engine
        search = CrossingSearch(self._problem, kept, engine, threads, presolve=presolve)
        crossing = search.crossing
        self._crossing = search
        for news in search.run(_CROSSING_GAP * self._options.gap, self._deadline):
            self._take()
            match news:
                case NoSchedule() if self._search.actions is None:
                    self._claim(inf, news.proof)
                    return "infeasible" if self._is_confirmed() else "proven"
                case NoSchedule():
                    self._report_fault("called a problem infeasible that has a schedule")
                    return self._bound_any_order(presolve=False) if presolve else "proven"
                case Proven() if self._is_refuted(news.bound_j):
                    self._report_fault("proved a bound above the energy of a schedule")
                    return self._bound_any_order(presolve=False) if presolve else "proven"
                case Proven():
                    self._claim(news.bound_j, news.proof or "costs")
                case Sketch():
                    for annealer in self._annealers[:1]:
                        annealer.offer_sketch(news.makes)
            self._search.report()
            if self._search.proven:
                break
        size = len(crossing.program.cost)
        self._chosen.append(
            f"the crossing program ({size} columns, memory at {len(crossing.moments)} ops) for a"
            f" bound on {'any' if kept == 'any' else 'the given'} order:"
            f" {time.monotonic() - began:.1f} s"
        )
        return "proven"

    @property
    def _searched(self) -> ScheduleClass:
        """The class that the search covers: all schedules, or those in the given order."""
        if self._options.order != "given":
            return EVERY_SCHEDULE
        return ScheduleClass(self._problem.graph.order)

    def _claim(self, least_j: float, by: Evidence, covers: ScheduleClass | None = None) -> None:
        """Claim a bound for all schedules that are searched, or for those of a class."""
        covers = self._searched if covers is None else covers
        self._claims = self._claims.also(Claim(least_j, self._problem.budget, covers, by))
        self._search.bound = self._claims.finite.about(self._problem.budget, self._searched).least_j

    def _is_refuted(self, bound_j: float) -> bool:
        """Whether the known schedule needs less than a bound that should hold for it."""
        actions, value_j = self._search.actions, self._search.value
        if actions is None or value_j is None or bound_j <= value_j * (1 + _ROUNDING):
            return False
        return self._options.order != "given" or _in_order(actions, self._problem.graph)

    def _is_confirmed(self) -> bool:
        """Confirm for a small graph that no schedule exists; drop the claim if one is found."""
        if self._search_all() == "infeasible" or self._search.actions is None:
            return True
        self._report_fault("called a problem infeasible that has a schedule")
        return False

    def _report_fault(self, what: str) -> None:
        """Note a false proof of the engine, and forget every bound that came from it."""
        self._notes.append(f"the engine {what}; its proofs were discarded")
        self._claims = self._sums
        self._search.bound = self._claims.about(self._problem.budget).least_j

    def _search_all(self) -> Ending:
        """Search all schedules of a small graph. "spent" if the graph is too large for that."""
        if self._search.proven:
            return "proven"
        began = time.monotonic()
        kept: OrderKept = "given" if self._options.order == "given" else "any"
        until = min(self._deadline, began + _ALL_SCHEDULES_S)
        result = search_states(self._problem, "energy", order=kept, deadline=until)
        if result is None:
            return "spent"
        self._chosen.append(
            f"all schedules in {'any' if kept == 'any' else 'the given'} order were searched:"
            f" {time.monotonic() - began:.1f} s"
        )
        if result.actions is None or result.value is None:
            self._claim(inf, "exhaustion")
            return "infeasible"
        self._search.offer(result.actions)
        if self._is_refuted(self._search.bound or 0.0):
            self._report_fault("proved a bound above the energy of a schedule")
        self._claim(result.value, "exhaustion")
        return "proven"

    def _find_first(self, annealing: ExitStack) -> None:
        """Look further for any schedule: in orders that need little RAM, and from more seeds."""
        self._begin_phase("first schedule")
        began = time.monotonic()
        if self._options.order != "given":
            for order in low_memory_orders(self._problem):
                problem = Problem(self._problem.graph.in_order(order), self._problem.budget)
                self._search.offer_if_valid(keep_everything(problem.graph))
                self._search.offer_if_valid(page_everything(problem))
                self._search.offer_if_valid(greedy_schedule(problem, thorough=False) or ())
        if self._annealers and self._options.threads > 1:
            self._begin_annealing(annealing)
        until = min(began + _FIRST_SCHEDULE_S, began + _SHARE_FOR_ORDERS * (self._deadline - began))
        while self._search.actions is None and time.monotonic() < until and self._annealers:
            time.sleep(_POLL_S)
            self._take()
            self._search.report()
        self._chosen.append(
            f"a search for any schedule, in other orders too: {time.monotonic() - began:.1f} s"
        )

    def _improve_greedily(self) -> None:
        """Let annealing continue from the best of many greedy schedules if that is better."""
        self._begin_phase("greedy schedules")
        with TimeLimit(self._deadline).part(_SHARE_FOR_GREEDY).enforced():
            greedy = greedy_schedule(self._problem)
        self._take()
        before = self._search.value
        self._search.offer_if_valid(greedy or ())
        if greedy is not None and self._search.value != before:
            for annealer in self._annealers[:1]:
                annealer.offer(greedy)

    def _search_orders(self, annealing: ExitStack) -> None:
        asked = self._options.order == "free"
        if (
            self._search.actions is None
            or not self._annealers
            or not (asked or self._order_matters)
        ):
            return
        began = time.monotonic()
        self._begin_phase("order of ops")
        if self._options.threads > 1:
            self._begin_annealing(annealing)
        left_s = self._deadline - began
        self._anneal_on(began + _SHARE_FOR_ORDERS * left_s)
        self._chosen.append(
            f"annealing over orders, {time.monotonic() - began:.1f} s, because"
            + (
                " an order other than the graph's is better"
                if self._order_matters
                else " a free order was asked for"
            )
        )

    @property
    def _order_matters(self) -> bool:
        actions = self._search.actions
        return actions is not None and not _in_order(actions, self._problem.graph)

    def _solve_compact(self) -> Ending:
        """Solve the compact program of the best order; repeat if annealing finds a better order."""
        while True:
            problem = self._problem_in_best_order()
            actions = self._search.actions
            reordered = problem is not self._problem
            which = "the best order found" if reordered else "the graph's order"
            self._chosen.append(f"the compact program of {which}")
            compact = Search(
                problem,
                "energy",
                self._options,
                self._on_progress,
                bound=self._search.bound,
                by=self._claims.finite.about(self._problem.budget, self._searched).by,
                companion=self if self._annealers else None,
                phase="compact program",
            )
            compact.report()
            self._compact = compact
            in_its_order = actions is not None and _in_order(actions, problem.graph)
            if actions is not None and in_its_order:
                compact.offer(actions)
            ending = compact.run(self._deadline)
            self._claims = self._claims.also(compact.claim)
            if compact.actions is not None:
                self._search.offer_if_valid(compact.actions)
            if ending == "infeasible" and self._search.actions is None:
                self._claims = self._claims.also(compact.claim_of(inf))
                return "infeasible"
            best = self._problem_in_best_order().graph
            is_over = ending not in ("proven", "infeasible")
            if is_over or self._search.proven or best.order == problem.graph.order:
                # Without a schedule in this order, the schedule in another one stays unproven.
                return "spent" if ending == "infeasible" else ending

    def _problem_in_best_order(self) -> Problem:
        """The problem in the order of the best schedule, or else in the graph's order.

        An order in which an op overwrites a tensor before another op reads it is not the order of
        any graph: in it the tensor is recomputed.
        """
        actions = self._search.actions
        if actions is None or not self._order_matters:
            return self._problem
        try:
            graph = self._problem.graph.in_order(first_executions(actions))
        except ValidationError:
            return self._problem
        return Problem(graph, self._problem.budget)

    # --- outcome --------------------------------------------------------------------------------

    def _outcome(self, ending: Ending) -> Outcome:
        search, compact, crossing = self._search, self._compact, self._crossing
        spare = None if self._spare is None else self._spare.found()
        search.offer_if_valid(spare or ())
        budget, claims = self._problem.budget, self._claims
        if compact is not None:  # it may have ended early
            claims = claims.also(compact.claim)
        if search.actions is not None:
            search.bound = claims.of(budget, search.actions).least_j
        # An engine that was stopped early reports only its name: the longest version is complete.
        versions = [search.engine_version for search in (crossing, compact) if search is not None]
        engine = max(versions, key=len, default="")
        return Outcome(
            ending="proven" if search.proven else ending,
            actions=search.actions,
            energy_j=search.value,
            budget=budget,
            claims=claims,
            chosen=tuple(self._chosen),
            notes=(
                *self._notes,
                *engine_notes(crossing.faults if crossing else ()),
                *engine_notes(compact.faults if compact else ()),
            ),
            formulation="compact" if compact else "crossing" if crossing else "none",
            engine=self._options.engine if engine else "annealing",
            version=f"{engine}, {python_mip_version()}"
            if engine
            else "no engine"
            if crossing
            else "",
            rounds=(crossing.rounds if crossing else 0) + (compact.rounds if compact else 0),
            build_s=(crossing.build_s if crossing else 0) + (compact.build_s if compact else 0),
            spare=spare,
        )


def _in_order(actions: Sequence[Action], graph: CostedGraph) -> bool:
    return first_executions(actions) == graph.order
