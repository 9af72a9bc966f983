"""Dependencies between tensors during an online method.

They determine which tensors can be recomputed, and which must stay so that others can be.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from solver.problem.problem import Problem


class Lineage:
    """Dependencies between tensors, by index.

    ``resident`` are the tensors in RAM and ``stored`` those in storage; both belong to the caller.
    ``references`` counts the remaining uses, as a framework's reference count does: a tensor with 0
    is dead.
    """

    def __init__(self, problem: Problem, resident: set[int], stored: set[int]) -> None:
        self._problem = problem
        self._resident = resident
        self._stored = stored
        self.made: set[int] = set()
        self.references = [
            len(readers) + (tensor.persist == "ram")
            for readers, tensor in zip(problem.readers, problem.graph.tensors, strict=True)
        ]
        self._remakeable = [k >= 0 and problem.recomputable[k] for k in problem.producer]

    def remakeable(self, i: int) -> bool:
        """Whether ``i`` can be recomputed or read from storage, and so may be freed."""
        return self._remakeable[i] or i in self._stored

    def relatives(self, i: int) -> Iterator[int]:
        """Tensors that ``i`` is computed from, and tensors computed from it so far."""
        problem = self._problem
        if problem.producer[i] >= 0:
            yield from problem.reads[problem.producer[i]]
        for k in problem.readers[i]:
            yield from (o for o in problem.writes[k] if o in self.made)

    def needed_to_restore(self, tensors: Iterable[int], going: Container[int] = ()) -> set[int]:
        """All tensors read to restore ``tensors`` to RAM after ``going`` has left it."""

        def to_be_computed(i: int) -> bool:
            return (i not in self._resident or i in going) and i not in self._stored

        needed: set[int] = set()
        pending = [i for i in tensors if to_be_computed(i)]
        while pending:
            for read in self._problem.reads[self._problem.producer[pending.pop()]]:
                if read not in needed:
                    needed.add(read)
                    if to_be_computed(read) and self._remakeable[read]:
                        pending.append(read)
        return needed

    def evicted_and_alive(self) -> list[int]:
        return [i for i in sorted(self.made) if i not in self._resident and self.references[i]]

    def has_heirs(self, i: int) -> bool:
        """Whether a live tensor could have to be recomputed from ``i``."""
        seen, pending = {i}, [i]
        while pending:
            for k in self._problem.readers[pending.pop()]:
                for o in self._problem.writes[k]:
                    if o in seen or o not in self.made or not self._remakeable[o]:
                        continue
                    if self.references[o]:
                        return True
                    seen.add(o)
                    pending.append(o)
        return False

    def lose(self, i: int) -> None:
        """Mark ``i`` as lost: tensors computed from it can no longer be recomputed."""
        pending = [i]
        while pending:
            for k in self._problem.readers[pending.pop()]:
                for o in self._problem.writes[k]:
                    if o in self.made and self._remakeable[o]:
                        self._remakeable[o] = False
                        if o not in self._resident and o not in self._stored:
                            pending.append(o)
