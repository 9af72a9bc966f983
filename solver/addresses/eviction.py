"""Schedules that fit a budget as a sum, made to fit an arena by paging tensors out of the way.

One pass over the actions gives every tensor an address when it enters RAM: the smallest gap that
holds it. Where no gap does, tensors that the action does not need make room: they are freed once a
copy of them is in storage, and paged in again before they are read. Of all places, that is taken
whose tensors cost least to page per action until they are read. If no place is left among what the
action needs, everything is paged out, and what it needs is paged in again side by side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from solver.addresses.packing import load_of
from solver.addresses.plan import AddressPlan
from solver.addresses.residencies import blocks_of, spans_of
from solver.problem.graph import Op, Tensor
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut
from solver.time_limit import check_time


class _Stuck(Exception):
    """Something that cannot be paged is in the way."""


def evict_into_arena(
    problem: Problem, actions: Sequence[Action]
) -> tuple[tuple[Action, ...], AddressPlan] | None:
    """Change a schedule so that it fits into an arena of the size of the budget.

    Args:
        problem: The problem; its budget covers everything and allows paging.
        actions: A valid schedule, ``free`` actions included.

    Returns:
        The schedule with the plan of its addresses; None if tensors that cannot be paged are in the
        way. The referees have to confirm both.

    Raises:
        OutOfTime: The time limit has passed.
    """
    if not problem.budget.paging or problem.budget.covers != "all":
        return None
    run = _Run(problem, actions)
    try:
        run.all()
    except _Stuck:
        return None
    changed = with_frees(
        problem.graph, [action for action in run.done if not isinstance(action, Free)]
    )
    blocks = blocks_of(problem.graph, changed, "all")
    offsets = tuple(run.placed[block.residencies[0].tensor].popleft() for block in blocks)
    ends = (offset + block.bytes for offset, block in zip(offsets, blocks, strict=True))
    plan = AddressPlan(blocks, offsets, max(ends, default=0), max(load_of(spans_of(blocks))))
    return changed, plan


@dataclass(frozen=True)
class _Block:
    start: int
    bytes: int

    @property
    def end(self) -> int:
        return self.start + self.bytes


@dataclass
class _Run:
    problem: Problem
    actions: Sequence[Action]
    done: list[Action] = field(default_factory=list)
    placed: dict[str | None, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    """Offsets of a tensor each time that it enters RAM, and of all workspaces (None)."""
    _at: dict[str | None, _Block] = field(default_factory=dict)
    _away: set[str] = field(default_factory=set)
    """Tensors that are in RAM in the given schedule, and were paged out of the way."""
    _stored: set[str] = field(default_factory=set)
    _uses: dict[str, list[int]] = field(default_factory=dict)
    _index: int = 0

    def all(self) -> None:
        """Do all actions."""
        graph = self.problem.graph
        self._ops = {op.name: op for op in graph.ops}
        self._tensor = graph.tensor
        self._arena_bytes = self.problem.budget.ram_bytes
        for index, action in enumerate(self.actions):
            for name in self._ops[action.op].reads if isinstance(action, Compute) else ():
                self._uses.setdefault(name, []).append(index)
        start = 0
        for tensor in graph.tensors:
            if tensor.name in graph.producer:
                continue
            if tensor.home == "storage":
                self._stored.add(tensor.name)
            else:
                self._put(tensor.name, _Block(start, tensor.bytes))
                start += tensor.bytes
        for index, action in enumerate(self.actions):
            check_time()
            self._index = index
            self._do(action)
        for name in sorted(self._away):
            self._bring(name, set())

    def _do(self, action: Action) -> None:
        match action:
            case Compute():
                op = self._ops[action.op]
                try:
                    self._compute(op, action)
                except _Stuck:
                    self._clear(op)
                    self._compute(op, action)
            case PageOut(tensor=name):
                if name not in self._away:
                    self.done.append(action)
                    self._stored.add(name)
            case PageIn(tensor=name):
                self._bring(name, set())
            case Free(tensor=name):
                if name in self._away:
                    self._away.discard(name)
                else:
                    self._drop(name)

    def _compute(self, op: Op, action: Compute) -> None:
        needed: set[str | None] = {*op.reads}
        for name in op.reads:
            if name in self._away or name not in self._at:
                self._bring(name, needed)
        size = {name: self._tensor[name].bytes for name in (*op.reads, *op.writes)}
        in_place = {w for w, read in op.in_place.items() if min(size[w], size[read])}
        if any(size[w] > size[op.in_place[w]] for w in in_place):
            raise _Stuck
        made: dict[str | None, _Block] = {}
        sizes: list[tuple[str | None, int]] = [
            (name, size[name]) for name in op.writes if name not in in_place
        ]
        sizes.append((None, op.workspace_bytes))
        try:
            for new, size_bytes in sorted(sizes, key=lambda each: -each[1]):
                made[new] = self._at[new] = self._room(size_bytes, needed)
                needed.add(new)
        except _Stuck:
            for new in made:
                del self._at[new]
            raise
        self._at.pop(None, None)
        for new, block in made.items():
            if block.bytes:
                self.placed[new].append(block.start)
        for written in in_place:
            self._at[written] = self._at.pop(op.in_place[written])
        for written in op.in_place:
            if written not in in_place:
                self._at.pop(op.in_place[written])
        self.done.append(action)

    def _clear(self, op: Op) -> None:
        """Page everything out, and what the op reads in again."""
        for name in [name for name in self._at if name is not None]:
            self._evict(name)
        for name in op.reads:
            self._bring(name, {*op.reads})

    def _bring(self, name: str, needed: set[str | None]) -> None:
        if name in self._at:
            return
        block = self._room(self._tensor[name].bytes, needed)
        self._put(name, block)
        self.done.append(PageIn(tensor=name))
        self._away.discard(name)

    def _put(self, name: str, block: _Block) -> None:
        self._at[name] = block
        if block.bytes:
            self.placed[name].append(block.start)

    def _drop(self, name: str) -> None:
        del self._at[name]
        self.done.append(Free(tensor=name))

    def _evict(self, name: str) -> None:
        if self._cost_j(name) == inf:
            raise _Stuck
        if name not in self._stored:
            self.done.append(PageOut(tensor=name))
            self._stored.add(name)
        self._drop(name)
        self._away.add(name)

    def _cost_j(self, name: str | None) -> float:
        """Energy to page a tensor out, if that is needed, and in again."""
        if name is None:
            return inf
        tensor: Tensor = self._tensor[name]
        if tensor.page_in is None or (name not in self._stored and tensor.page_out is None):
            return inf
        out_j = 0.0 if name in self._stored or tensor.page_out is None else tensor.page_out.energy_j
        return out_j + tensor.page_in.energy_j

    def _room(self, size_bytes: int, needed: set[str | None]) -> _Block:
        """A place for ``size_bytes``, made free if necessary without what is ``needed``."""
        check_time()
        blocks = sorted(
            ((block.start, block.end, name) for name, block in self._at.items() if block.bytes),
            key=lambda each: each[:2],
        )
        gap = self._smallest_gap(blocks, size_bytes)
        if gap is not None:
            return _Block(gap, size_bytes)
        starts = {0, self._arena_bytes - size_bytes}
        for start, end, _ in blocks:
            starts.update((end, start - size_bytes))
        ends = [end for _, end, _ in blocks]
        best: tuple[float, int, list[str]] | None = None
        for start in sorted(starts):
            if start < 0 or start + size_bytes > self._arena_bytes:
                continue
            cost, names = 0.0, []
            for low, _, name in blocks[bisect_left(ends, start + 1) :]:
                if low >= start + size_bytes:
                    break
                cost += inf if name in needed else self._cost_j(name) / self._distance(name)
                names.append(name or "")
            if cost < (inf if best is None else best[0]):
                best = cost, start, names
        if best is None:
            raise _Stuck
        for name in best[2]:
            self._evict(name)
        return _Block(best[1], size_bytes)

    def _smallest_gap(
        self, blocks: Sequence[tuple[int, int, str | None]], size_bytes: int
    ) -> int | None:
        best, best_bytes, end_before = None, inf, 0
        for start, end, _ in (*blocks, (self._arena_bytes, self._arena_bytes, None)):
            if size_bytes <= start - end_before < best_bytes:
                best, best_bytes = end_before, start - end_before
            end_before = max(end_before, end)
        return best

    def _distance(self, name: str | None) -> int:
        """Number of actions until a tensor is read."""
        uses = self._uses.get(name or "", [])
        index = bisect_left(uses, self._index)
        return (uses[index] if index < len(uses) else len(self.actions)) - self._index + 1
