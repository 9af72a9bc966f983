"""Annealing beside an automatic search, in threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain

from solver.addresses.plan import (
    A_MOMENT,
    Addressed,
    AddressPlan,
    plan_addresses,
    plan_of,
)
from solver.annealing import Annealer
from solver.constructed import keep_everything
from solver.constructed.greedy import greedy_schedule
from solver.problem.problem import Problem
from solver.problem.schedule import Action
from solver.referee.referee import Late, RefereeError, replay
from solver.solving.auto.task import Task
from solver.time_limit import OutOfTime, TimeLimit

# Annealing alone stops after this many seconds per op without improvement, within these limits,
# or after this share of its running time, whichever is longer.
_PATIENCE_S_PER_OP, _LEAST_PATIENCE_S, _MOST_PATIENCE_S, _PATIENCE_SHARE = 0.01, 0.3, 6.0, 0.3
_POLL_S = 0.05
# Longest time for trying whether a schedule gets addresses in a moment; shares of the RAM for which
# greedy schedules are tried if the best gets none, and share of the time for them; seed.
_LONGEST_MOMENT_S, _SPARE_SHARES, _SHARE_FOR_SPARES, _SPARE_SEED = (
    3.0,
    (0.98, 0.95, 0.9, 0.85),
    0.1,
    101,
)
# Most ops of a graph for which annealing finds schedules with addresses in the time of one search.
_MOST_SPARE_OPS = 1000


class Annealers:
    """The annealing threads of a task; they end with ``threads``.

    One anneals from the beginning, others from more seeds. A spare one anneals for schedules with
    addresses.
    """

    def __init__(self, task: Task, threads: ExitStack) -> None:
        self._task = task
        self._threads = threads
        self._annealers: list[Annealer] = []
        self._spare: Annealer | None = None
        # What was found and is not offered yet: an offer may be ended by the time limit or Ctrl-C.
        self._found: deque[tuple[Annealer, tuple[Action, ...]]] = deque()
        self._wants_addresses = False
        # The last best schedule that got addresses in a moment, or else a greedy one that did.
        self._packed: Addressed | None = None

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
                self._found.append((annealer, found))
        while self._found:
            annealer, found = self._found[0]
            try:
                search.offer(found)
            except Late:
                annealer.find_sooner()
            except RefereeError:
                pass
            self._found.popleft()
        is_better = search.value != before
        if is_better:
            self._seek_addresses()
        return is_better

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Give annealing a schedule to continue from, which is the best one now."""
        for annealer in self._annealers[:1]:
            annealer.offer(actions)
        self._seek_addresses()

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

    @property
    def seeks_addresses(self) -> bool:
        """Whether a thread anneals for schedules with addresses."""
        return self._spare is not None

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

    # --- addresses ------------------------------------------------------------------------------

    def watch_addresses(self) -> None:
        """From now on, anneal for schedules with addresses too once the best one gets none."""
        if self._wants_addresses:
            return
        ops = len(self._task.problem.graph.ops)
        wanted = self._task.options.addresses and ops <= _MOST_SPARE_OPS
        self._wants_addresses = wanted and len(self) > 0
        self._seek_addresses()

    def _seek_addresses(self) -> None:
        """Anneal for schedules with addresses near the best one, if that gets none in a moment."""
        problem, actions = self._task.problem, self._task.search.actions
        if not self._wants_addresses or actions is None:
            return
        if self._spare is not None:
            self._spare.offer(actions)
            return
        plan = self._planned(actions)
        if plan.arena_bytes <= problem.budget.ram_bytes:
            self._packed = Addressed(actions, plan)
            return
        spare = Annealer(
            problem,
            keep_everything(problem.graph),
            free_order=self._task.options.order != "given",
            transfer_share=self._transfer_share,
            seed=_SPARE_SEED,
            packs=True,
        )
        if (greedy := self._packing_greedy()) is not None:
            spare.offer(greedy.actions)
            self._packed = self._packed or greedy
        spare.offer(actions)
        self._spare = self._threads.enter_context(spare)
        self._task.chosen.append("annealing for schedules that get addresses, too")

    def wait_for_addresses(self, until: float) -> None:
        """Let them anneal until ``until`` or until there is a schedule with addresses."""
        while self._spare is not None and self.spare() is None and time.monotonic() < until:
            time.sleep(_POLL_S)
            self._task.search.report()

    def spare(self) -> Addressed | None:
        """The best schedule with addresses that is known, if one is."""
        graph, covers = self._task.problem.graph, self._task.problem.budget.covers
        known = [] if self._packed is None else [self._packed]
        found = None if self._spare is None else self._spare.found_with_addresses()
        if found is not None:
            actions, offsets = found
            known.append(Addressed(actions, plan_of(graph, actions, covers, offsets)))
        return min(
            known, key=lambda each: replay(graph, each.actions, covers).energy_j, default=None
        )

    def earlier(self) -> Iterator[tuple[Action, ...]]:
        """Some schedules that annealing for all of the RAM has found and improved on."""
        return chain.from_iterable(annealer.earlier() for annealer in self._annealers)

    def _packing_greedy(self) -> Addressed | None:
        """The greedy schedule for the largest share of the RAM that gets addresses."""
        problem = self._task.problem
        budget, limit = problem.budget, TimeLimit(self._task.deadline)
        with suppress(OutOfTime), limit.part(_SHARE_FOR_SPARES).enforced():
            for share in _SPARE_SHARES:
                less = budget.model_copy(update={"ram_bytes": int(share * budget.ram_bytes)})
                greedy = greedy_schedule(Problem(problem.graph, less), thorough=False)
                if greedy is None:
                    continue
                plan = self._planned(greedy)
                if plan.arena_bytes <= budget.ram_bytes:
                    return Addressed(greedy, plan)
        return None

    def _planned(self, actions: Sequence[Action]) -> AddressPlan:
        """Addresses for a schedule, as far as they are found in a moment."""
        problem = self._task.problem
        graph, budget = problem.graph, problem.budget
        until = min(self._task.deadline, time.monotonic() + _LONGEST_MOMENT_S)
        return plan_addresses(graph, actions, budget.covers, budget.ram_bytes, until, work=A_MOMENT)
