"""Small changes of a schedule that remove bytes from RAM while the arena is full."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut
from solver.time_limit import check_time


@dataclass(frozen=True)
class Change:
    """A change of a schedule: its approximate cost, the bytes removed for a while, and the result.

    ``make`` returns the actions: computing and paging in order, without frees. They may be invalid:
    the referee must check them.
    """

    cost_j: float
    bytes: int
    make: Callable[[], tuple[Action, ...]]


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

    Raises :class:`~solver.time_limit.OutOfTime` after the enforced time limit.
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
        # Number of crowded actions before each one.
        change = [0] * (len(self._unfreed) + 2)
        for first, end in crowded:
            change[before[max(first, 0)]] += 1
            change[before[end]] -= 1
        self._crowded_before = [0, *accumulate(depth > 0 for depth in accumulate(change))]
        self._paged_out: dict[str, list[int]] = {}
        for index, action in enumerate(self._unfreed):
            if isinstance(action, PageOut):
                self._paged_out.setdefault(action.tensor, []).append(index)

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
        return begin < end and self._crowded_before[end] > self._crowded_before[begin]

    def _waits(self) -> Iterator[_Wait]:
        problem = self._problem
        last_touch = {i: -1 for i, starts in enumerate(problem.starts_in_ram) if starts}
        for index, action in enumerate(self._unfreed):
            check_time()
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
        begin, end = wait.begin + 1, wait.end
        if end < len(self._unfreed) and isinstance(self._unfreed[end], PageOut):
            yield Change(0.0, size_bytes, partial(self._moved, end, begin))
            return
        producer = problem.producer[wait.tensor]
        if producer >= 0 and problem.recomputable[producer]:
            op = problem.graph.ops[producer]
            again = Compute(op=op.name)
            yield Change(op.energy_j, size_bytes, partial(self._with, {end: again}))
        if not problem.can_page_in[wait.tensor]:
            return
        assert tensor.page_in is not None
        page_in = PageIn(tensor=tensor.name)
        paged_out = self._paged_out.get(tensor.name, [])
        if problem.starts_in_storage[wait.tensor] or (paged_out and paged_out[0] < begin):
            cost_j = tensor.page_in.energy_j
            yield Change(cost_j, size_bytes, partial(self._with, {end: page_in}))
        elif problem.can_page_out[wait.tensor]:
            assert tensor.page_out is not None
            cost_j = tensor.page_in.energy_j
            # The earlier copy stays valid and replaces later ones.
            replaced = {index for index in paged_out if index >= end}
            if not replaced:
                cost_j += tensor.page_out.energy_j
            added: dict[int, Action] = {begin: PageOut(tensor=tensor.name), end: page_in}
            yield Change(cost_j, size_bytes, partial(self._with, added, replaced))

    def _with(
        self, added: Mapping[int, Action], removed: Collection[int] = ()
    ) -> tuple[Action, ...]:
        """The actions, with one more before some of them, and without some."""
        result: list[Action] = []
        for index, action in enumerate(self._unfreed):
            if index in added:
                result.append(added[index])
            if index not in removed:
                result.append(action)
        if len(self._unfreed) in added:
            result.append(added[len(self._unfreed)])
        return tuple(result)

    def _moved(self, index: int, to: int) -> tuple[Action, ...]:
        """The actions, with the one at ``index`` before the one that is at ``to``."""
        actions = self._unfreed
        if to < index:
            return (*actions[:to], actions[index], *actions[to:index], *actions[index + 1 :])
        return (*actions[:index], *actions[index + 1 : to], actions[index], *actions[to:])

    def _later(self, index: int) -> Iterator[Change]:
        """Change that delays a page-in or a recomputation until right before its first use."""
        actions = self._unfreed
        _, made = self._needs_and_makes(actions[index])
        other = index + 1
        if not made:
            return
        while other < len(actions) and made.isdisjoint(self._needs_and_makes(actions[other])[0]):
            check_time()
            other += 1
        if other > index + 1:
            size_bytes = sum(self._problem.size[i] for i in made)
            yield Change(0.0, size_bytes, partial(self._moved, index, other))

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
