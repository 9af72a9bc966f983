"""The events of a step that keeps the graph's order, numbered.

As in Moccasin (Bartan et al., ICML 2023): stage ``t`` ends with the first execution of op ``t``;
before it, each earlier op has one event at which it may be computed again, in the graph's order.
The paper numbers the ``n (n + 1) / 2`` events of ``n`` ops without gaps. Here every stage has as
many numbers, so that those of an op lie at equal distances: an event is an affine function of its
stage, which solvers treat without lists of values.
"""

from __future__ import annotations

from solver.problem.problem import Problem

# The step begins here: what is in RAM from the start is there from this event on.
BEGIN = 0


class Timeline:
    """One more op, ``end_op``, ends the step: it reads what must persist in RAM.

    ``last[k]`` is the last stage in which computing op ``k`` can be of use: for one that may not be
    computed again, and for one of which from then on nothing can want what it writes, directly or
    through other recomputations. ``stays`` are tensors that never have to leave: they count
    nothing, are not written over, and are in RAM from their first execution on."""

    def __init__(self, problem: Problem) -> None:
        self.end_op = len(problem.graph.ops)
        self.stage_length = self.end_op + 1
        self.after_end = self.event(self.end_op, self.end_op) + 1
        persistent = [i for i, t in enumerate(problem.graph.tensors) if t.persist == "ram"]
        self.reads = [*problem.reads, persistent]
        self.writes = [*problem.writes, []]
        self.consumes = [set(consumed) for consumed in (*problem.consumes, [])]
        self.readers = [
            (*readers, self.end_op) if t.persist == "ram" else readers
            for readers, t in zip(problem.readers, problem.graph.tensors, strict=True)
        ]
        written_over = set().union(*self.consumes)
        self.stays = [
            not size and not stored and i not in written_over
            for i, (size, stored) in enumerate(
                zip(problem.size, problem.starts_in_storage, strict=True)
            )
        ]
        self.last = list(range(self.end_op + 1))
        for k in reversed(range(self.end_op)):
            if problem.recomputable[k]:
                wanted = (i for i in self.writes[k] if not self.stays[i])
                uses = (self.last[j] for i in wanted for j in self.readers[i])
                self.last[k] = max(uses, default=k)

    def event(self, k: int, stage: int) -> int:
        """At which op ``k`` is computed in ``stage``; the first time in stage ``k``."""
        return BEGIN + 1 + stage * self.stage_length + k
