"""Small changes of a schedule that remove bytes from RAM while the arena is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut


@dataclass(frozen=True)
class Change:
    """A change of a schedule: its approximate cost, the bytes removed for a while, and the result.

    ``actions`` are computing and paging in order, without frees. They may be invalid: the referee
    must check them.
    """

    cost_j: float
    bytes: int
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class _Wait:
    """A tensor that is in RAM between two actions only because the second needs it.

    ``begin`` and ``end`` are the actions; -1 is before the first action.
    """

    tensor: int
    begin: int
    end: int


def changes(
    problem: Problem,
    actions: Sequence[Action],
    crowded: Sequence[tuple[int, int]],
    excess_bytes: int,
) -> list[Change]:
    """Changes that take bytes out of RAM during the ``crowded`` ranges of actions (first, end).

    A tensor can be absent for a while, be recomputed or paged in later, or be paged out earlier.
    Changes that remove at least ``excess_bytes`` come first, each group sorted by cost.
    """
    found = _Changes(problem, actions, crowded).all()
    return sorted(found, key=lambda change: (change.bytes < excess_bytes, change.cost_j))


class _Changes:
    def __init__(
        self, problem: Problem, actions: Sequence[Action], crowded: Sequence[tuple[int, int]]
    ) -> None:
        self._problem = problem
        self._op_index = {op.name: index for index, op in enumerate(problem.graph.ops)}
        self._unfreed = [action for action in actions if not isinstance(action, Free)]
        before = [0]  # number of actions other than frees before each action
        for action in actions:
            before.append(before[-1] + (not isinstance(action, Free)))
        self._crowded = [(before[max(first, 0)], before[end]) for first, end in crowded]

    def all(self) -> Iterator[Change]:
        for wait in self._waits():
            if self._is_crowded(wait.begin + 1, wait.end) and self._problem.size[wait.tensor]:
                yield from self._without(wait)
        done: set[str] = set()
        for index, action in enumerate(self._unfreed):
            first = isinstance(action, Compute) and action.op not in done
            if isinstance(action, Compute):
                done.add(action.op)
            if not first and self._is_crowded(index, index + 1):
                yield from self._later(index)

    def _is_crowded(self, begin: int, end: int) -> bool:
        return any(max(begin, b) < min(end, e) for b, e in self._crowded)

    def _waits(self) -> Iterator[_Wait]:
        problem = self._problem
        last_touch = {i: -1 for i, starts in enumerate(problem.starts_in_ram) if starts}
        for index, action in enumerate(self._unfreed):
            needed, made = self._needs_and_makes(action)
            for i in needed:
                if last_touch[i] + 1 < index:
                    yield _Wait(i, last_touch[i], index)
            last_touch.update(dict.fromkeys(needed | made, index))
        for i, tensor in enumerate(problem.graph.tensors):
            if tensor.persist == "ram" and last_touch[i] + 1 < len(self._unfreed):
                yield _Wait(i, last_touch[i], len(self._unfreed))

    def _without(self, wait: _Wait) -> Iterator[Change]:
        """Changes that keep a tensor out of RAM while nothing needs it."""
        problem = self._problem
        tensor, size_bytes = problem.graph.tensors[wait.tensor], problem.size[wait.tensor]
        earlier = self._unfreed[: wait.begin + 1]
        waiting = self._unfreed[wait.begin + 1 : wait.end]
        later = self._unfreed[wait.end :]
        if later and isinstance(later[0], PageOut):
            yield Change(0.0, size_bytes, (*earlier, later[0], *waiting, *later[1:]))
            return
        producer = problem.producer[wait.tensor]
        if producer >= 0 and problem.recomputable[producer]:
            op = problem.graph.ops[producer]
            again = Compute(op=op.name)
            yield Change(op.energy_j, size_bytes, (*earlier, *waiting, again, *later))
        if not problem.can_page_in[wait.tensor]:
            return
        assert tensor.page_in is not None
        page_in = PageIn(tensor=tensor.name)
        if problem.starts_in_storage[wait.tensor] or _pages_out(earlier, tensor.name):
            cost_j = tensor.page_in.energy_j
            yield Change(cost_j, size_bytes, (*earlier, *waiting, page_in, *later))
        elif problem.can_page_out[wait.tensor]:
            assert tensor.page_out is not None
            cost_j = tensor.page_in.energy_j
            if _pages_out(later, tensor.name):  # the earlier copy stays valid and replaces this one
                later = [a for a in later if not _pages_out([a], tensor.name)]
            else:
                cost_j += tensor.page_out.energy_j
            page_out = PageOut(tensor=tensor.name)
            yield Change(cost_j, size_bytes, (*earlier, page_out, *waiting, page_in, *later))

    def _later(self, index: int) -> Iterator[Change]:
        """Change that delays a page-in or a recomputation until right before its first use."""
        actions = self._unfreed
        _, made = self._needs_and_makes(actions[index])
        other = index + 1
        while other < len(actions) and made.isdisjoint(self._needs_and_makes(actions[other])[0]):
            other += 1
        if made and other > index + 1:
            rest = (*actions[index + 1 : other], actions[index], *actions[other:])
            size_bytes = sum(self._problem.size[i] for i in made)
            yield Change(0.0, size_bytes, (*actions[:index], *rest))

    def _needs_and_makes(self, action: Action) -> tuple[set[int], set[int]]:
        """Tensors that an action needs in RAM, and tensors that it brings into RAM."""
        problem = self._problem
        match action:
            case Compute():
                op = self._op_index[action.op]
                return set(problem.reads[op]), set(problem.writes[op])
            case PageOut():
                return {problem.tensor_index[action.tensor]}, set()
            case PageIn():
                return set(), {problem.tensor_index[action.tensor]}
            case Free():
                raise ValueError("actions contain a free action")


def _pages_out(actions: Sequence[Action], name: str) -> bool:
    return any(isinstance(action, PageOut) and action.tensor == name for action in actions)
