"""Who is made of whom while a schedule is decided on the way: what can be computed again, and what
must stay because something else could not be otherwise."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from solver.problem.problem import Problem


class Lineage:
    """Tensors by index. ``resident`` is what is in RAM and ``stored`` what is in storage; both
    belong to the caller. ``references`` counts the uses to come, as a framework's reference count
    does: 0 means dead, not how far away the next use is."""

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
        """Whether it may go because it can be computed again, or read again from storage."""
        return self._remakeable[i] or i in self._stored

    def relatives(self, i: int) -> Iterator[int]:
        """What it is made of and what has been made of it."""
        problem = self._problem
        if problem.producer[i] >= 0:
            yield from problem.reads[problem.producer[i]]
        for k in problem.readers[i]:
            yield from (o for o in problem.writes[k] if o in self.made)

    def needed_to_restore(self, tensors: Iterable[int], going: Container[int] = ()) -> set[int]:
        """All that would be read to have ``tensors`` in RAM again, once ``going`` has left it."""

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
        """Whether something alive could have to be computed from ``i`` once more."""
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
        """``i`` is gone for good: what is made of it directly cannot be made again."""
        pending = [i]
        while pending:
            for k in self._problem.readers[pending.pop()]:
                for o in self._problem.writes[k]:
                    if o in self.made and self._remakeable[o]:
                        self._remakeable[o] = False
                        if o not in self._resident and o not in self._stored:
                            pending.append(o)
