"""A lower bound on the energy of every schedule, in whatever order, without a program.

Take any op as a *cut*. Whatever is made before it (by ops that it depends on) and read after it (by
ops that depend on it) is in RAM while it runs, or must be had back later: paged in, or its producer
computed once more. RAM is limited, and each tensor costs at least so much to have back, so that
leaving as little as possible to be had back is a knapsack, whose relaxation (Dantzig 1957) bounds
what all schedules spend beyond computing every op once and moving what must be moved. The best cut
of a training step is often its loss.
"""

from __future__ import annotations

import math

from solver.graph import PageCost
from solver.problem import Problem

# Cuts that are looked at, spread evenly; of the best one the neighbours too.
_MOST_CUTS = 400


def any_order_bound_j(problem: Problem) -> float:
    """No schedule of ``problem`` uses less energy, whatever the order of its ops."""
    cuts = _Cuts(problem)
    end = len(problem.graph.ops)
    stride = 1 + end // _MOST_CUTS
    best_j, best = max((cuts.spent_j(cut), cut) for cut in range(0, end, stride))
    nearby = range(max(0, best - stride + 1), min(end, best + stride))
    return _unavoidable_j(problem) + max([best_j, *map(cuts.spent_j, nearby)])


def _unavoidable_j(problem: Problem) -> float:
    """Of computing every op once, bringing each tensor that lives in storage and is needed in RAM
    once, and writing what must be in storage in the end."""
    transfers = [problem.least_energy_j]
    for i, tensor in enumerate(problem.graph.tensors):
        if problem.starts_in_storage[i]:
            if problem.readers[i] or tensor.persist == "ram":
                transfers.append(_joules(tensor.page_in))
        elif tensor.persist == "storage":
            transfers.append(_joules(tensor.page_out))
    return math.fsum(transfers)


def _joules(cost: PageCost | None) -> float:
    return math.inf if cost is None else cost.energy_j


class _Cuts:
    """Sets of ops are the bits of whole numbers."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        ops = range(len(problem.graph.ops))
        self._before = [0] * len(ops)
        for k in ops:
            for producer in {problem.producer[i] for i in problem.reads[k]} - {-1}:
                self._before[k] |= self._before[producer] | 1 << producer
        # Those that must persist in RAM are read by one more op, after all others.
        last_read = 1 << len(ops)
        self._after = [last_read] * len(ops)
        self._readers = []
        for i, tensor in enumerate(problem.graph.tensors):
            readers = sum(1 << k for k in problem.readers[i])
            self._readers.append(readers | last_read if tensor.persist == "ram" else readers)
        for k in reversed(ops):
            for i in problem.writes[k]:
                for reader in problem.readers[i]:
                    self._after[k] |= self._after[reader] | 1 << reader
        self._restoring_j = _restoring_j(problem)

    def spent_j(self, cut: int) -> float:
        """What every schedule spends to have back what cannot stay in RAM while ``cut`` runs."""
        problem = self._problem
        touched = {*problem.reads[cut], *problem.writes[cut]}
        op = problem.graph.ops[cut]
        free_bytes = problem.budget.ram_bytes - op.workspace_bytes
        free_bytes -= sum(problem.size[i] for i in touched)
        free_bytes += sum(
            min(problem.size[problem.tensor_index[w]], problem.size[problem.tensor_index[r]])
            for w, r in op.in_place.items()
        )
        before, after = self._before[cut], self._after[cut]
        worth = []
        for i, readers in enumerate(self._readers):
            if not readers & after or i in touched or not problem.size[i]:
                continue
            producer = problem.producer[i]
            if producer >= 0 and not before >> producer & 1:
                continue
            # Bringing it once is counted already.
            if problem.starts_in_storage[i] and not readers & before:
                continue
            worth.append((self._restoring_j[i] / problem.size[i], problem.size[i]))
        worth.sort(reverse=True)
        spent = []
        for joules_per_byte, size_bytes in worth:
            kept_bytes = min(size_bytes, max(free_bytes, 0))
            free_bytes -= size_bytes
            if joules_per_byte < math.inf:  # otherwise it stays, or there is no schedule
                spent.append(joules_per_byte * (size_bytes - kept_bytes))
        return math.fsum(spent)


def _restoring_j(problem: Problem) -> list[float]:
    """What it costs at least to have each tensor in RAM again after it was not.

    An op that makes several tensors counts with an equal share for each. What an op overwrote must
    itself be had back before the op can run again.
    """
    found = []
    for i, tensor in enumerate(problem.graph.tensors):
        joules = math.inf
        if problem.can_page_in[i]:
            joules = _joules(tensor.page_in)
            if not problem.starts_in_storage[i] and tensor.persist != "storage":
                joules += _joules(tensor.page_out)
        found.append(joules)
    for k, op in enumerate(problem.graph.ops):
        if problem.recomputable[k]:
            computing_j = op.energy_j + sum(found[i] for i in problem.consumes[k])
            for i in problem.writes[k]:
                found[i] = min(found[i], computing_j / len(problem.writes[k]))
    return found
