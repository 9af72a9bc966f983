"""Checkpointing along the forward pass, the basis of Chen's and Griewank's methods.

Both methods are defined on chains. Here a chain results from cutting the forward pass, in the
graph's order, into segments. The *state* at a cut is what the next segment is computed from. As in
Checkmate (Jain et al., MLSys 2020), cuts are made at *articulation points*, ops that every path
from before to after them passes through, or, since many graphs have few or none, anywhere in a
linearization.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut
from solver.time_limit import check_time


class Unavailable(Exception):
    """A tensor is needed that cannot be recomputed."""


def forward_end(problem: Problem) -> int:
    """Index of the first backward op; 0 if the graph has no backward pass."""
    phases = [op.phase for op in problem.graph.ops]
    return phases.index("backward") if "backward" in phases else 0


def articulation_points(problem: Problem) -> list[int]:
    """Forward ops that every path from before to after them passes through, ascending.

    The last forward op is excluded, and only ops that it depends on count.
    """
    end = forward_end(problem)
    if not end:
        return []
    on_the_way = {end - 1}
    for k in reversed(range(end)):
        if k in on_the_way:
            on_the_way.update(problem.producer[i] for i in problem.reads[k])
    points = []
    furthest = -1
    for k in range(end - 1):
        if k not in on_the_way:
            continue
        # ``furthest`` is the last forward op that reads a tensor written before op ``k``.
        if furthest <= k:
            points.append(k)
        readers = [j for i in problem.writes[k] for j in problem.readers[i] if j < end]
        furthest = max([furthest, *(j for j in readers if j in on_the_way)])
    return points


class CheckpointedPass:
    """Builds a schedule from the steps of a checkpointing method: advance, keep, turn.

    ``cuts`` are the forward ops that end a segment, ascending; the last segment ends with the
    forward pass. With ``whole_states`` the state at a cut is every tensor that later forward ops
    read; otherwise it is only what the op at the cut wrote, as in Checkmate's linearizations.

    Methods raise :class:`Unavailable` if a tensor is needed that cannot be recomputed.
    """

    def __init__(self, problem: Problem, cuts: Sequence[int], *, whole_states: bool = True) -> None:
        self._problem = problem
        self._end = forward_end(problem)
        self._ends = [*cuts, self._end - 1]
        self._starts = [0, *(cut + 1 for cut in cuts)]
        self.segment_count = len(self._ends)
        self._segment_of = [-1] * len(problem.producer)
        for number, (first, last) in enumerate(zip(self._starts, self._ends, strict=True)):
            for k in range(first, last + 1):
                for i in problem.writes[k]:
                    self._segment_of[i] = number
        # The last forward op that reads each tensor.
        self._last_forward_reader = [
            max((j for j in readers if j < self._end), default=-1) for readers in problem.readers
        ]
        self._state = [frozenset(self._state_at(cut, whole_states)) for cut in cuts]
        self._at_hand = {i for i, starts in enumerate(problem.starts_in_ram) if starts}
        self._stored = {i for i, stored in enumerate(problem.starts_in_storage) if stored}
        self._kept: set[int] = set()
        self._next = 0
        self._actions: list[Action] = []
        self._page_out(sorted(self._at_hand))

    def _state_at(self, cut: int, whole: bool) -> Iterable[int]:
        problem = self._problem
        if not whole:
            return problem.writes[cut]
        check_time()
        return (
            i
            for k in range(cut + 1)
            for i in problem.writes[k]
            if self._last_forward_reader[i] > cut
        )

    def advance(self, segment: int) -> None:
        """Compute the state after ``segment`` from the state before it.

        All other tensors that can be recomputed are dropped.
        """
        state = self._state[segment]
        if self._next <= self._ends[segment]:
            for k in range(self._starts[segment], self._ends[segment] + 1):
                self._compute(k)
            self._next = self._ends[segment] + 1
        else:
            self._have(state)
        self._drop(segment + 1, state)

    def keep(self, segment: int) -> None:
        """Keep the state after ``segment`` as a checkpoint."""
        self._kept.update(self._state[segment])

    def release(self, segment: int, still_kept: Iterable[int]) -> None:
        """Drop the checkpoint after ``segment``, except tensors of those after ``still_kept``."""
        shared = {i for other in still_kept for i in self._state[other]}
        self._kept -= self._state[segment] - shared

    def turn(self, segment: int) -> None:
        """Compute the tensors of ``segment`` that are still needed, then its backward pass.

        The state before ``segment`` must be in RAM. For the first segment the pass continues to
        the end of the step.
        """
        problem = self._problem
        state = self._state[segment - 1] if segment else frozenset()
        first = self._next
        if first < self._end:
            for k in range(first, self._end):
                self._compute(k)
            self._next = self._end
        else:
            self._have(
                i
                for k in range(self._starts[segment], self._ends[segment] + 1)
                for i in problem.writes[k]
                if any(j >= first for j in problem.readers[i])
            )
        op_count = len(problem.graph.ops)
        while self._next < op_count and (not segment or self._within(self._next, segment)):
            self._compute(self._next)
            self._next += 1
        self._drop(segment, state)

    def actions(self) -> tuple[Action, ...]:
        """The finished schedule."""
        problem = self._problem
        tensors = problem.graph.tensors
        self._have(i for i, tensor in enumerate(tensors) if tensor.persist == "ram")
        return with_frees(problem.graph, self._actions)

    def _within(self, k: int, segment: int) -> bool:
        """Whether backward op ``k`` needs this or a later segment, or only tensors in RAM."""
        reads = [i for i in self._problem.reads[k] if self._segment_of[i] >= 0]
        latest = max((self._segment_of[i] for i in reads), default=segment)
        return latest >= segment or self._at_hand.issuperset(reads)

    def _have(self, tensors: Iterable[int]) -> None:
        for i in tensors:
            if i in self._at_hand:
                continue
            if i in self._stored:
                self._page_in(i)
            else:
                self._compute(self._again(i))

    def _again(self, i: int) -> int:
        """Op to recompute for tensor ``i``."""
        k = self._problem.producer[i]
        if k < 0 or not self._problem.recomputable[k]:
            raise Unavailable(f"{self._problem.graph.tensors[i].name!r} cannot be recomputed")
        return k

    def _compute(self, k: int) -> None:
        """Compute op ``k``, after paging in or recomputing what it reads."""
        problem = self._problem
        pending = [k]
        while pending:
            check_time()
            op = pending[-1]
            missing = next((i for i in problem.reads[op] if i not in self._at_hand), None)
            if missing is None:
                self._actions.append(Compute(op=problem.graph.ops[op].name))
                self._at_hand.update(problem.writes[op])
                self._at_hand.difference_update(problem.consumes[op])
                if op >= self._next:
                    self._page_out(problem.writes[op])
                pending.pop()
            elif missing in self._stored:
                self._page_in(missing)
            else:
                pending.append(self._again(missing))

    def _page_in(self, i: int) -> None:
        self._actions.append(PageIn(tensor=self._problem.graph.tensors[i].name))
        self._at_hand.add(i)

    def _page_out(self, tensors: Iterable[int]) -> None:
        """Page out those of ``tensors`` that must persist in storage."""
        for i in tensors:
            tensor = self._problem.graph.tensors[i]
            if tensor.persist == "storage" and i not in self._stored:
                self._actions.append(PageOut(tensor=tensor.name))

    def _drop(self, segment: int, state: frozenset[int]) -> None:
        """Drop tensors that were written before ``segment`` and can be recomputed.

        Checkpoints, ``state`` and tensors that the forward pass has yet to read are kept.
        """
        check_time()
        problem = self._problem
        for i in list(self._at_hand):
            if (
                0 <= self._segment_of[i] < segment
                and i not in state
                and i not in self._kept
                and problem.recomputable[problem.producer[i]]
                and self._last_forward_reader[i] < self._next
            ):
                self._at_hand.discard(i)
