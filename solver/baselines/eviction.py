"""Online rematerialization, as in a framework that runs ops as they are called.

Ops run in the graph's order in an arena of the budget's size. If an allocation fails, tensors are
evicted by a rule (that of DTR or Coop). A missing tensor is recomputed recursively when it is read.
The future is unknown, except that a tensor is dead when its reference count is zero. A dead tensor
that can be recomputed is evicted at once (*eager eviction* in Kirisame et al., ICLR 2021). A tensor
that cannot be recomputed is never evicted. It is freed when no live tensor could have to be
recomputed from it or, if nothing else can be evicted, when no evicted tensor needs it
(*banishing*).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable

from solver.baselines.allocator import Arena
from solver.baselines.baseline import BaselineResult, judged
from solver.baselines.evicted import EvictedNeighbourhoods
from solver.baselines.lineage import Lineage
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.time_limit import check_time

# Owner of the workspace of the running op; tensors are numbered from 0.
_WORKSPACE = -1


class _OutOfMemory(Exception):
    """No tensor is left to evict."""


class _OutOfTime(Exception):
    """Recomputation exceeds the time limit."""


class OnlineEviction(ABC):
    """One run of an online method.

    Subclasses choose what to evict, where in the arena an op's tensors are allocated, and whether
    an op in place takes over the bytes (``works_in_place``) or gets a copy to write on.
    """

    works_in_place: bool

    def __init__(self, problem: Problem, arena: Arena, time_limit_s: float) -> None:
        self.problem = problem
        self.arena = arena
        self.resident: set[int] = set()
        self._deadline = time.monotonic() + time_limit_s
        self._stored = {i for i, stored in enumerate(problem.starts_in_storage) if stored}
        self._lineage = Lineage(problem, self.resident, self._stored)
        ops, producer = problem.graph.ops, problem.producer
        self._neighbourhoods = EvictedNeighbourhoods(
            [ops[k].energy_j if k >= 0 else 0.0 for k in producer], self._lineage.relatives
        )
        self._locks: Counter[int] = Counter()
        self._running: list[int] = []
        # Tensors whose bytes the next op takes over in place.
        self._going: frozenset[int] = frozenset()
        self._last_access_s = [0.0] * len(producer)
        self._clock_s = 0.0
        self._held: set[int] = set()
        self._actions: list[Action] = []

    @abstractmethod
    def evict_for(self, size_bytes: int) -> bool:
        """Evict tensors towards a hole of that size. False if nothing may be evicted."""

    @abstractmethod
    def goes_to_top(self, op: int) -> bool:
        """Whether tensors that ``op`` writes are allocated at the arena's upper end."""

    def run(self) -> BaselineResult:
        """Run the step and return its schedule."""
        try:
            self._run()
        except (_OutOfMemory, _OutOfTime) as error:
            return BaselineResult(
                None, str(error), self.arena.arena_bytes, self.arena.fragmentation
            )
        recomputed = sum(isinstance(a, Compute) for a in self._actions)
        recomputed -= len(self.problem.graph.ops)
        actions = with_frees(self.problem.graph, self._actions)
        result = judged(self.problem, actions, f"{recomputed} ops recomputed")
        return BaselineResult(
            result.actions, result.note, self.arena.arena_bytes, self.arena.fragmentation
        )

    # --- for eviction rules --------------------------------------------------------------------

    def may_be_evicted(self, i: int) -> bool:
        return (
            i in self.resident
            and not self._locks[i]
            and i not in self._stored
            and self._lineage.remakeable(i)
        )

    def projected_cost_j(self, i: int) -> float:
        """Energy of recomputing ``i`` and the evicted tensors around it."""
        return self._neighbourhoods.cost_of(i)

    def staleness_s(self, i: int) -> float:
        """Seconds since ``i`` was last read or written; never 0."""
        return max(self._clock_s - self._last_access_s[i], 1e-9 * self.problem.least_time_s, 1e-30)

    def evict(self, i: int) -> None:
        self._leave(i)
        self._neighbourhoods.evict(i)

    # --- the step ------------------------------------------------------------------------------

    def _run(self) -> None:
        problem, tensors = self.problem, self.problem.graph.tensors
        for i, starts in enumerate(problem.starts_in_ram):
            if starts:
                self._allocate(i, problem.size[i], to_top=False)
                self._enter(i)
        self._save(sorted(self.resident))
        for i in sorted(self.resident):
            self._bury_if_dead(i)
        for k in range(len(problem.graph.ops)):
            check_time()
            self._execute(k)
            for i in problem.reads[k]:
                self._lineage.references[i] -= 1
            self._save(problem.writes[k])
            for i in (*problem.reads[k], *problem.writes[k]):
                self._bury_if_dead(i)
            self._release_heirless()
        for i, tensor in enumerate(tensors):
            if tensor.persist == "ram":
                self._bring(i)
                self._locks[i] += 1

    def _save(self, tensors: Iterable[int]) -> None:
        """Page out those of ``tensors`` that must persist in storage; the copies are not read."""
        for i in tensors:
            if self.problem.graph.tensors[i].persist == "storage":
                self._actions.append(PageOut(tensor=self.problem.graph.tensors[i].name))

    def _execute(self, k: int) -> None:
        """Run op ``k`` for the first time."""
        for i in self.problem.reads[k]:
            self._locks[i] += 1
        for i in self.problem.reads[k]:
            self._bring(i)
        rescued = self._rescue(k)
        self._compute(k)
        for i in (*self.problem.reads[k], *rescued):
            self._locks[i] -= 1

    def _rescue(self, k: int) -> list[int]:
        """Recompute and lock evicted tensors that cannot be recomputed after op ``k``.

        These depend on a tensor that ``k`` writes over and that cannot be recomputed itself.
        """
        lost = {i for i in self.problem.consumes[k] if not self._lineage.remakeable(i)}
        rescued: list[int] = []
        while lost:
            at_risk = [
                i
                for i in self._lineage.evicted_and_alive()
                if not lost.isdisjoint(self._lineage.needed_to_restore([i]))
            ]
            if not at_risk:
                break
            self._bring(at_risk[0])
            self._locks[at_risk[0]] += 1
            rescued.append(at_risk[0])
        for i in lost:  # marked now, so that making room for k does not evict what needs it
            self._lineage.lose(i)
        return rescued

    def _bring(self, i: int) -> None:
        """Page in or recompute tensor ``i`` unless it is in RAM."""
        if i in self.resident:
            return
        if i in self._stored:
            self._page_in(i)
            return
        problem = self.problem
        depth = len(self._running)
        self._begin(problem.producer[i])
        while len(self._running) > depth:
            k = self._running[-1]
            missing = next((r for r in problem.reads[k] if r not in self.resident), None)
            if missing is None:
                self._compute(k)
                self._end()
            elif missing in self._stored:
                self._page_in(missing)
            else:
                self._begin(problem.producer[missing])

    def _begin(self, k: int) -> None:
        assert k >= 0, "a tensor was lost that something still needs"
        self._running.append(k)
        for i in self.problem.reads[k]:
            self._locks[i] += 1

    def _end(self) -> None:
        k = self._running.pop()
        for i in self.problem.reads[k]:
            self._locks[i] -= 1
        for i in (*self.problem.reads[k], *self.problem.writes[k]):
            self._bury_if_dead(i)

    def _page_in(self, i: int) -> None:
        self._allocate(i, self.problem.size[i], to_top=False)
        self._actions.append(PageIn(tensor=self.problem.graph.tensors[i].name))
        self._enter(i)

    def _compute(self, k: int) -> None:
        """Compute op ``k``, whose reads are in RAM and locked."""
        if time.monotonic() > self._deadline:
            raise _OutOfTime(f"stopped by the time limit after {len(self._actions)} actions")
        problem, op = self.problem, self.problem.graph.ops[k]
        size, index = problem.size, problem.tensor_index
        self._going = frozenset(problem.consumes[k])
        for i in problem.writes[k]:
            self._locks[i] += 1
        heirs = {
            index[w]: index[r]
            for w, r in op.in_place.items()
            if self.works_in_place and size[index[w]] <= size[index[r]]
        }
        # A tensor that is still in RAM keeps its address: its recomputed value is the same.
        new = [i for i in problem.writes[k] if i not in self.resident]
        for i in new:
            if i not in heirs:
                self._allocate(i, size[i], to_top=self.goes_to_top(k))
        if op.workspace_bytes:
            self._allocate(_WORKSPACE, op.workspace_bytes, to_top=self.goes_to_top(k))
            self.arena.release(_WORKSPACE)
        self._actions.append(Compute(op=op.name))
        self._clock_s += op.time_s
        for i in new:
            if i in heirs and size[i]:
                self.arena.hand_over(heirs[i], i, size[i])
                self.resident.discard(heirs[i])
            self._enter(i)
            self._lineage.made.add(i)
        for i in problem.consumes[k]:
            self._consume(i)
        self._going = frozenset()
        for i in (*problem.reads[k], *problem.writes[k]):
            self._last_access_s[i] = self._clock_s
        for i in problem.writes[k]:
            self._locks[i] -= 1

    def _consume(self, i: int) -> None:
        if i in self.resident:
            self._leave(i)
        self._held.discard(i)
        if self._lineage.remakeable(i):
            if i not in self._stored:
                self._neighbourhoods.evict(i)
        else:
            self._lineage.lose(i)

    # --- memory --------------------------------------------------------------------------------

    def _allocate(self, owner: int, size_bytes: int, *, to_top: bool) -> None:
        if not size_bytes:
            return
        while self.arena.allocate(owner, size_bytes, from_top=to_top) is None:
            check_time()
            if not self.evict_for(size_bytes) and not self._banish():
                raise _OutOfMemory(
                    f"out of memory: {size_bytes} bytes requested, {self.arena.free_bytes} free,"
                    f" {self.arena.largest_hole_bytes} of them contiguous, and nothing left to"
                    " evict"
                )

    def _enter(self, i: int) -> None:
        self.resident.add(i)
        self._last_access_s[i] = self._clock_s
        self._neighbourhoods.restore(i)

    def _leave(self, i: int) -> None:
        self.resident.discard(i)
        if self.problem.size[i]:
            self.arena.release(i)

    def _bury_if_dead(self, i: int) -> None:
        if i not in self.resident or self._lineage.references[i] or self._locks[i]:
            return
        if i in self._stored:
            self._leave(i)
        elif self._lineage.remakeable(i):
            self.evict(i)
        elif self._lineage.has_heirs(i):
            self._held.add(i)
        else:
            self._leave(i)

    def _release_heirless(self) -> None:
        for i in sorted(self._held):
            if not self._locks[i] and not self._lineage.has_heirs(i):
                self._held.discard(i)
                self._leave(i)

    def _banish(self) -> bool:
        """Free the largest dead tensor that no evicted tensor needs; False if none exists."""
        missing = [i for k in self._running for i in self.problem.reads[k]]
        needed = self._lineage.needed_to_restore(
            [*self._lineage.evicted_and_alive(), *missing], going=self._going
        )
        idle = [i for i in self._held - needed if not self._locks[i] and self.problem.size[i]]
        if not idle:
            return False
        largest = max(idle, key=lambda i: (self.problem.size[i], -i))
        self._held.discard(largest)
        self._leave(largest)
        self._lineage.lose(largest)
        return True
