"""Dynamic tensor rematerialization (Kirisame et al., ICLR 2021)."""

from __future__ import annotations

from solver.baselines.allocator import Arena
from solver.baselines.baseline import BaselineResult
from solver.baselines.eviction import OnlineEviction
from solver.problem.problem import Problem


def dtr(problem: Problem, time_limit_s: float, _threads: int) -> BaselineResult:
    """Evict the tensor of least h = cost / (bytes · staleness) whenever RAM runs out.

    Tensors are evicted one by one until the allocator finds a hole. The cost is that of the evicted
    neighbourhood (``h_DTR-eq`` of the paper), here in joules. An op that works in place gets a copy
    to write on.
    """
    return _Dtr(problem, Arena(problem.budget.ram_bytes, "best"), time_limit_s).run()


class _Dtr(OnlineEviction):
    works_in_place = False

    def evict_for(self, size_bytes: int) -> bool:  # noqa: ARG002
        size = self.problem.size
        candidates = [i for i in sorted(self.resident) if size[i] and self.may_be_evicted(i)]
        if not candidates:
            return False
        self.evict(
            min(
                candidates,
                key=lambda i: self.projected_cost_j(i) / (size[i] * self.staleness_s(i)),
            )
        )
        return True

    def goes_to_top(self, op: int) -> bool:  # noqa: ARG002
        return False
