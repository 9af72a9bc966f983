"""Estimated cost of recomputing a tensor, including the evicted tensors that this requires.

This is the *evicted neighbourhood* of DTR (Kirisame et al., ICLR 2021) in its cheap form: evicted
tensors that are computed from one another are in one set of a union-find structure, which stores
the sum of their costs. When a tensor is recomputed, its cost is subtracted, but the set is not
split, since union-find cannot do that: sums stay exact, but neighbourhoods may be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class EvictedNeighbourhoods:
    """Sets of evicted tensors, by index.

    ``cost`` is the cost of computing each tensor from its inputs; ``neighbours`` returns the
    tensors that it is computed from and those computed from it.
    """

    def __init__(self, cost: Sequence[float], neighbours: Callable[[int], Iterable[int]]) -> None:
        self._cost = cost
        self._neighbours = neighbours
        # A tensor that is evicted once more is a new element: the old one stays in its old set.
        self._element: dict[int, int] = {}
        self._parent: list[int] = []
        self._sum: list[float] = []

    def evict(self, i: int) -> None:
        element = len(self._parent)
        self._parent.append(element)
        self._sum.append(self._cost[i])
        self._element[i] = element
        for neighbour in self._neighbours(i):
            if neighbour in self._element and neighbour != i:
                self._join(element, self._element[neighbour])

    def restore(self, i: int) -> None:
        """Record that tensor ``i`` is in RAM again."""
        if i in self._element:
            root = self._find(self._element.pop(i))
            self._sum[root] = max(0.0, self._sum[root] - self._cost[i])

    def cost_of(self, i: int) -> float:
        """Cost of ``i``, which is in RAM, and of the evicted tensors around it."""
        roots = {self._find(self._element[n]) for n in self._neighbours(i) if n in self._element}
        return self._cost[i] + sum(self._sum[root] for root in sorted(roots))

    def _find(self, element: int) -> int:
        root = element
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[element] != root:
            self._parent[element], element = root, self._parent[element]
        return root

    def _join(self, a: int, b: int) -> None:
        low, high = sorted((self._find(a), self._find(b)))
        if low != high:
            self._parent[high] = low
            self._sum[low] += self._sum[high]
