"""Numbering of the events of a step that keeps the graph's order.

As in Moccasin (Bartan et al., ICML 2023), stage ``t`` ends with the first execution of op ``t``;
before it, each earlier op has one event at which it may be recomputed, in the graph's order. The
paper numbers the ``n (n + 1) / 2`` events of ``n`` ops without gaps. Here every stage has the same
number of events. An event of an op is then an affine function of its stage, which solvers handle
without lists of values.
"""

from __future__ import annotations

from solver.problem.problem import Problem

# Event at which the step begins, and with it the residency of tensors that start in RAM.
BEGIN = 0


class Timeline:
    """Events of the ops and of the end of the step.

    An additional op, ``end_op``, ends the step: it reads the tensors that must persist in RAM.
    ``last[k]`` is the last stage in which computing op ``k`` is useful: ``k`` itself if it may not
    be recomputed, otherwise the last stage in which an op can read what it writes, directly or
    through other recomputations. ``stays`` marks tensors that never need to leave RAM: they count
    no bytes, are not written over, and are in RAM from their first execution on.
    """

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
        """Event at which op ``k`` is computed in ``stage``; stage ``k`` has its first execution."""
        return BEGIN + 1 + stage * self.stage_length + k
