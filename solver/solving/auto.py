"""What is done where nobody says how: annealing for schedules, and bounds from cheap to dear.

1. Annealing begins, in a thread, and goes on until the end.
2. The *crossing* program bounds every schedule, in whatever order, and sketches one for annealing
   to go on from. For many training steps the two meet, and that is that.
3. Where they do not, and another order than the graph's was found to be better, annealing gets the
   other thread too until it no longer gains.
4. The *compact* program of the order in which the best schedule first computes the ops: exact up to
   its restrictions, dear on large graphs, and left out on the largest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from math import inf

from devices.errors import BuildFailed
from solver.annealing import Annealer
from solver.constructed import keep_everything, page_everything
from solver.constructed.greedy import greedy_schedule
from solver.formulations.compact.formulation import MOST_OPS
from solver.formulations.crossing import OrderKept
from solver.formulations.staged import COVERS, RESTRICTIONS
from solver.options import SolverOptions
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.schedule import Action, first_executions
from solver.search.crossing_search import CrossingSearch, NoSchedule, Proven, Sketch
from solver.search.search import Ending, Progress, Search
from solver.solving.named import python_mip
from solver.solving.outcome import ANY_ORDER, OWN_ORDER, Outcome

# Annealing alone is given up after so many seconds an op, within these limits, or this share of its
# time, without a gain.
_PATIENCE_S_PER_OP, _LEAST_PATIENCE_S, _MOST_PATIENCE_S, _PATIENCE_SHARE = 0.01, 0.3, 6.0, 0.3
# Of the time that there is, for searching other orders before one is chosen.
_SHARE_FOR_ORDERS = 0.5
_POLL_S = 0.05
# What the compact program takes to be written, about; how much longer it must have to be of use.
_BUILD_S_PER_OP_SQUARED, _WORTH_BUILDING = 5e-5, 6.0
# The crossing program is solved to this share of the asked gap.
_CROSSING_GAP = 0.25


class AutomaticSearch:
    """One search for the least energy. ``deadline`` is on ``time.monotonic``."""

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
        self._any_order_j = problem.least_energy_j + problem.unavoidable_pages.energy_j
        # Holds the best schedule of any order; its bound is what the crossing program proves.
        self._search = Search(problem, "energy", options, on_progress, bound=self._any_order_j)
        self._compact: Search | None = None
        self._crossing: CrossingSearch | None = None
        self._chosen: list[str] = []
        self._annealers: list[Annealer] = []

    def run(self, starts: Iterable[tuple[Action, ...]]) -> Outcome:
        """Raises :class:`~devices.errors.EngineFailed`."""
        for start in (keep_everything(self._problem.graph), *starts):
            self._search.offer_if_valid(start)
        if self._search.proven:
            self._chosen.append("nothing needs to be recomputed or paged, or no more than is given")
            return self._outcome("proven")
        if self._problem.is_hopeless:
            return self._outcome("infeasible")
        with ExitStack() as annealing:
            try:
                return self._outcome(self._run(annealing))
            except KeyboardInterrupt:
                return self._outcome("interrupted")

    def _run(self, annealing: ExitStack) -> Ending:
        self._search.offer_if_valid(page_everything(self._problem))
        self._search.offer_if_valid(greedy_schedule(self._problem, thorough=False) or ())
        try:
            self._begin_annealing(annealing)
        except BuildFailed as error:
            self._chosen.append(f"no annealing, and the order stays the graph's: {error}")
            self._search.offer_if_valid(greedy_schedule(self._problem) or ())
        if self._bound_any_order() == "infeasible":
            return "infeasible"
        if not self._search.proven:
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
            + (f" in the {max(0.0, left_s):.0f} s that are left" if op_count <= MOST_OPS else "")
        )
        self._anneal_on(self._deadline, to_the_end=self._deadline < inf)
        # With more time the compact program would have been tried, unless it is too large anyway.
        is_out_of_time = op_count <= MOST_OPS or time.monotonic() >= self._deadline
        return "time_limit" if is_out_of_time else "spent"

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

    @property
    def _transfer_share(self) -> float:
        """Of the transfers' time, what is counted against a deadline: where they run beside ops, it
        is not known before how much of it can be hidden."""
        return 0.5 if self._problem.overlaps else 1.0

    def _take(self) -> bool:
        """What annealing has found since; true if that is better."""
        before = self._search.value
        for annealer in self._annealers:
            found = annealer.found()
            if found is not None:
                self._search.offer_if_valid(found)
        return self._search.value != before

    def found(self) -> tuple[Action, ...] | None:
        """For the compact search: what annealing has found since, if it is in the order of that."""
        if not self._take() or self._compact is None:
            return None
        actions = self._search.actions
        return actions if actions and _in_order(actions, self._compact.problem.graph) else None

    def offer(self, actions: tuple[Action, ...]) -> None:
        """From the compact search, for annealing to go on from."""
        self._search.offer_if_valid(actions)
        for annealer in self._annealers[:1]:
            annealer.offer(actions)

    def _anneal_on(self, until: float, *, to_the_end: bool = False) -> None:
        """Until then, or, unless ``to_the_end``, until nothing has been gained for long."""
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

    def _bound_any_order(self) -> Ending:
        """Also says "proven" where only no more is to be had from the crossing program."""
        began = time.monotonic()
        kept: OrderKept = "given" if self._options.order == "given" else "any"
        threads = max(1, self._options.threads - len(self._annealers))
        search = CrossingSearch(self._problem, kept, self._options.engine, threads)
        crossing = search.crossing
        self._crossing = search
        for news in search.run(_CROSSING_GAP * self._options.gap, self._deadline):
            self._take()
            match news:
                case NoSchedule():
                    return "infeasible"
                case Proven():
                    self._raise_bound(news.bound_j, kept)
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
        # What annealing makes of the last sketch is worth waiting for.
        self._anneal_on(min(self._deadline, time.monotonic() + 2 * self._patience_s))
        return "proven"

    def _raise_bound(self, bound_j: float, kept: OrderKept) -> None:
        self._search.bound = max(self._search.bound or 0.0, bound_j)
        if kept == "any":
            self._any_order_j = max(self._any_order_j, bound_j)

    def _search_orders(self, annealing: ExitStack) -> None:
        asked = self._options.order == "free"
        if (
            self._search.actions is None
            or not self._annealers
            or not (asked or self._order_matters)
        ):
            return
        began = time.monotonic()
        if self._options.threads > 1:
            self._begin_annealing(annealing)
        left_s = self._deadline - began
        self._anneal_on(began + _SHARE_FOR_ORDERS * left_s)
        self._chosen.append(
            f"annealing over orders, {time.monotonic() - began:.1f} s, because"
            + (
                " one other than the graph's was found to be better"
                if self._order_matters
                else " that was asked for"
            )
        )

    @property
    def _order_matters(self) -> bool:
        actions = self._search.actions
        return actions is not None and not _in_order(actions, self._problem.graph)

    def _solve_compact(self) -> Ending:
        """The compact program of the best order; of another one, if annealing finds a better."""
        while True:
            problem, actions = self._problem, self._search.actions
            if actions is not None and self._order_matters:
                problem = Problem(problem.graph.in_order(first_executions(actions)), problem.budget)
            which = "the best order found" if self._order_matters else "the graph's order"
            self._chosen.append(f"the compact program of {which}")
            compact = Search(
                problem,
                "energy",
                self._options,
                self._on_progress,
                bound=self._search.bound,
                companion=self if self._annealers else None,
            )
            self._compact = compact
            if actions is not None:
                compact.offer(actions)
            ending = compact.run(self._deadline)
            if compact.actions is not None:
                self._search.offer_if_valid(compact.actions)
            actions = self._search.actions
            in_its_order = actions is None or _in_order(actions, compact.problem.graph)
            is_over = ending not in ("proven", "infeasible")
            if is_over or in_its_order or self._search.proven:
                return ending

    # --- what came out --------------------------------------------------------------------------

    def _outcome(self, ending: Ending) -> Outcome:
        search, compact, crossing = self._search, self._compact, self._crossing
        bound_j, covers = search.bound or 0.0, ANY_ORDER
        restrictions: tuple[str, ...] = ()
        order: tuple[str, ...] | None = None
        given = tuple(op.name for op in self._problem.graph.ops)
        if self._options.order == "given" and bound_j > self._any_order_j:
            covers, restrictions, order = COVERS, RESTRICTIONS[:1], given
        if (
            compact is not None
            and (compact.bound or 0.0) > bound_j
            and (search.actions is None or _in_order(search.actions, compact.problem.graph))
        ):
            search.bound = bound_j = compact.bound or 0.0
            covers, order = COVERS, tuple(op.name for op in compact.problem.graph.ops)
            restrictions = compact.restrictions
            if order != given:
                restrictions = (OWN_ORDER, *restrictions[1:])
        elif ending == "infeasible" and compact is not None:
            covers, restrictions = COVERS, compact.restrictions
        # One that was ended before it could say more gave its name only: the longest is the whole.
        versions = [search.engine_version for search in (crossing, compact) if search is not None]
        engine = max(versions, key=len, default="")
        return Outcome(
            ending="proven" if search.proven else ending,
            actions=search.actions,
            energy_j=search.value,
            bound_j=bound_j,
            any_order_bound_j=self._any_order_j,
            covers=covers,
            restrictions=restrictions,
            order=order,
            chosen=tuple(self._chosen),
            formulation="compact" if compact else "crossing" if crossing else "none",
            engine=self._options.engine if engine else "annealing",
            version=f"{engine}, {python_mip()}" if engine else "no engine" if crossing else "",
            rounds=(crossing.rounds if crossing else 0) + (compact.rounds if compact else 0),
            build_s=(crossing.build_s if crossing else 0) + (compact.build_s if compact else 0),
        )


def _in_order(actions: Sequence[Action], graph: CostedGraph) -> bool:
    return first_executions(actions) == tuple(op.name for op in graph.ops)
