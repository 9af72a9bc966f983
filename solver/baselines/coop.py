"""Coop: rematerialization with a contiguous memory pool (Zhang et al., NeurIPS 2023)."""

from __future__ import annotations

from collections import deque

from solver.baselines.allocator import Arena, ArenaBlock
from solver.baselines.baseline import BaselineResult
from solver.baselines.eviction import OnlineEviction
from solver.problem.problem import Problem


def coop(problem: Problem, time_limit_s: float, _threads: int) -> BaselineResult:
    """Evict contiguous blocks of least total cost / staleness whenever RAM runs out.

    The evicted blocks are neighbours and just large enough together. Cheap tensors are allocated
    from the lower end of the arena and expensive ones from the upper end, so that cheap ones become
    neighbours. An op that works in place takes over the bytes.
    """
    return Coop(problem, time_limit_s).run()


class Coop(OnlineEviction):
    """The eviction rule of Coop."""

    works_in_place = True

    def __init__(self, problem: Problem, time_limit_s: float) -> None:
        super().__init__(problem, Arena(problem.budget.ram_bytes, "first"), time_limit_s)
        written = [sum(problem.size[i] for i in writes) for writes in problem.writes]
        total = sum(written)
        # Costs per byte of element-wise ops and of matrix products differ widely: the mean over the
        # step separates them.
        mean_density = problem.least_energy_j / total if total else 0.0
        self._expensive = [
            op.energy_j > mean_density * bytes_written
            for op, bytes_written in zip(problem.graph.ops, written, strict=True)
        ]

    def goes_to_top(self, op: int) -> bool:
        return self._expensive[op]

    def evict_for(self, size_bytes: int) -> bool:
        window = self.cheapest_window(size_bytes)
        for i in window:
            self.evict(i)
        return bool(window)

    def cheapest_window(self, size_bytes: int) -> list[int]:
        """Tensors in the cheapest sequence of neighbouring blocks of at least ``size_bytes``.

        The blocks are evictable or free. Returns an empty list if no such sequence is long enough.
        Two pointers pass over the addresses once.
        """
        best: list[int] = []
        least = (float("inf"), 0)
        window: deque[tuple[ArenaBlock, float]] = deque()
        window_bytes = 0
        for block in self.arena.blocks():
            if block.owner is not None and not self._is_evictable(block.owner):
                window.clear()
                window_bytes = 0
                continue
            window.append((block, 0.0 if block.owner is None else self._cost_rate_w(block.owner)))
            window_bytes += block.size_bytes
            while window_bytes >= size_bytes:
                # Sum anew each time: running differences would accumulate rounding errors.
                owners = [b.owner for b, _ in window if b.owner is not None]
                rank = (sum(cost for _, cost in window), len(owners))
                if rank < least:
                    least, best = rank, owners
                window_bytes -= window.popleft()[0].size_bytes
        return best

    def _is_evictable(self, owner: int) -> bool:
        return owner >= 0 and self.may_be_evicted(owner)

    def _cost_rate_w(self, i: int) -> float:
        return self.projected_cost_j(i) / self.staleness_s(i)
