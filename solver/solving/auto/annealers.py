"""Annealing beside an automatic search, in threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain

from solver.addresses.plan import A_MOMENT, plan_addresses
from solver.annealing import Annealer
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.solving.auto.task import Task
from solver.time_limit import OutOfTime, TimeLimit

# Annealing alone stops after this many seconds per op without improvement, within these limits,
# or after this share of its running time, whichever is longer.
_PATIENCE_S_PER_OP, _LEAST_PATIENCE_S, _MOST_PATIENCE_S, _PATIENCE_SHARE = 0.01, 0.3, 6.0, 0.3
_POLL_S = 0.05
# Longest time for trying whether a schedule gets addresses in a moment; shares of the RAM for which
# greedy schedules are tried if the best gets none, and share of the time for them.
_LONGEST_MOMENT_S, _SPARE_SHARES, _SHARE_FOR_SPARES, _SPARE_SEED = (
    3.0,
    (0.98, 0.95, 0.9, 0.85),
    0.1,
    101,
)
# Most ops of a graph for which annealing finds a schedule for less RAM in the time of one search.
_MOST_SPARE_OPS = 1000


class Annealers:
    """The annealing threads of a task; they end with ``threads``.

    One anneals from the beginning, others from more seeds. A spare one anneals for less RAM, for a
    schedule that is easier to pack.
    """

    def __init__(self, task: Task, threads: ExitStack) -> None:
        self._task = task
        self._threads = threads
        self._annealers: list[Annealer] = []
        self._spare: Annealer | None = None
        # What was found and is not offered yet: an offer may be ended by the time limit or Ctrl-C.
        self._found: deque[tuple[Action, ...]] = deque()
        # A schedule that gets addresses in a moment, if the best one did when that was tried.
        self._packing: tuple[Action, ...] | None = None

    def __len__(self) -> int:
        return len(self._annealers)

    def begin(self) -> None:
        """Anneal in one more thread, from the best schedule so far.

        Raises :class:`~devices.errors.BuildFailed`.
        """
        annealer = Annealer(
            self._task.problem,
            keep_everything(self._task.problem.graph),
            free_order=self._task.options.order != "given",
            transfer_share=self._transfer_share,
            seed=1 + len(self._annealers),
        )
        if self._task.search.actions is not None:
            annealer.offer(self._task.search.actions)
        self._annealers.append(self._threads.enter_context(annealer))

    def take(self) -> bool:
        """Take over what was found; True if it is better than the best schedule before."""
        search = self._task.search
        before = search.value
        for annealer in self._annealers:
            found = annealer.found()
            if found is not None:
                self._found.append(found)
        while self._found:
            search.offer_if_valid(self._found[0])
            self._found.popleft()
        return search.value != before

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Give annealing a schedule to continue from."""
        for annealer in self._annealers[:1]:
            annealer.offer(actions)

    def offer_sketch(self, makes: dict[int, tuple[tuple[str, int], ...]]) -> None:
        """Give annealing the outline of a schedule to continue from."""
        for annealer in self._annealers[:1]:
            annealer.offer_sketch(makes)

    def wait(self, until: float, *, to_the_end: bool = False) -> None:
        """Let them anneal until ``until``, or until they stall unless ``to_the_end``."""
        search = self._task.search
        began = gained = time.monotonic()
        while self._annealers and (now := time.monotonic()) < until and not search.proven:
            patience_s = max(self.patience_s, _PATIENCE_SHARE * (now - began))
            if now - gained > patience_s and not to_the_end:
                break
            time.sleep(_POLL_S)
            if self.take():
                gained = time.monotonic()
            search.report()

    def wait_for_any(self, until: float) -> None:
        """Let them anneal until ``until`` or until there is a schedule."""
        search = self._task.search
        while search.actions is None and time.monotonic() < until and self._annealers:
            time.sleep(_POLL_S)
            self.take()
            search.report()

    @property
    def patience_s(self) -> float:
        """Seconds without improvement after which annealing has stalled, at least."""
        patience_s = _PATIENCE_S_PER_OP * len(self._task.problem.graph.ops)
        return min(_MOST_PATIENCE_S, max(_LEAST_PATIENCE_S, patience_s))

    @property
    def _transfer_share(self) -> float:
        """Share of the transfers' time that annealing counts against a deadline.

        It is an estimate where transfers run beside ops: how much of them can be hidden is known
        only after a schedule is found. The processor's time cannot be hidden; of the rest, half is
        taken to be.
        """
        problem = self._task.problem
        return (1.0 + problem.share_of_transfers) / 2 if problem.overlaps else 1.0

    # --- less RAM -------------------------------------------------------------------------------

    def begin_spare(self) -> None:
        """Anneal for less RAM too, if the best schedule so far gets no addresses in a moment."""
        graph, actions = self._task.problem.graph, self._task.search.actions
        options = self._task.options
        wanted = options.addresses and self._annealers
        if not wanted or actions is None or len(graph.ops) > _MOST_SPARE_OPS:
            return
        if self._arena_share(actions) <= 1:
            self._packing = actions
            return
        share, start = self._packing_greedy()
        spare = Annealer(
            self._task.problem,
            keep_everything(graph),
            free_order=options.order != "given",
            transfer_share=self._transfer_share,
            seed=_SPARE_SEED,
            arena_share=self._arena_share,
            ram_share=share,
        )
        spare.offer(start or actions)
        self._spare = self._threads.enter_context(spare)
        self._task.chosen.append("annealing for less RAM too, for a schedule that gets addresses")

    def spare(self) -> tuple[Action, ...] | None:
        """A schedule that gets addresses in a moment, if one is known: the best for less RAM."""
        return self._packing if self._spare is None else self._spare.found()

    def earlier(self) -> Iterator[tuple[Action, ...]]:
        """Some schedules that annealing for all of the RAM has found and improved on."""
        return chain.from_iterable(annealer.earlier() for annealer in self._annealers)

    def _packing_greedy(self) -> tuple[float, tuple[Action, ...] | None]:
        """The largest share of the RAM whose greedy schedule gets addresses; the schedule.

        Without one, all of the RAM: annealing goes down from there as far as it must.
        """
        problem = self._task.problem
        budget, limit = problem.budget, TimeLimit(self._task.deadline)
        with suppress(OutOfTime), limit.part(_SHARE_FOR_SPARES).enforced():
            for share in _SPARE_SHARES:
                less = budget.model_copy(update={"ram_bytes": int(share * budget.ram_bytes)})
                greedy = greedy_schedule(Problem(problem.graph, less), thorough=False)
                if greedy is not None and self._arena_share(greedy) <= 1:
                    return share, greedy
        return 1.0, None

    def _arena_share(self, actions: Sequence[Action]) -> float:
        """The smallest arena for a schedule that is found in a moment, as a share of the RAM."""
        problem = self._task.problem
        graph, budget = problem.graph, problem.budget
        until = min(self._task.deadline, time.monotonic() + _LONGEST_MOMENT_S)
        plan = plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until, work=A_MOMENT)
        return plan.arena_bytes / budget.ram_bytes
