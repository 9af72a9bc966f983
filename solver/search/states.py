"""Exhaustive search over the states of a small problem: optima and proofs for every schedule.

A state is what is in RAM, what has a valid copy in storage, and which ops are done. An action leads
from a state to another: compute an op, page a tensor in or out, free it. Best-first search over the
states finds the schedule of least energy, time or RAM, or proves that none exists. Any order of ops
and any number of recomputations are covered, so the result holds for every schedule.

Why it is exact:

- Every schedule is a path. The semantics free a tensor right after its last use; a path may free it
  at any time, which never needs less RAM, so no path is better than the best schedule. The tensors
  of a path are freed as the semantics require at the end (:func:`_as_actions`).
- Where time counts, a state is reached by labels with different clocks: when the processor and the
  channel are free, and when pending transfers end. Every later clock is a maximum of clocks plus
  constants, so it never decreases with an earlier one. A label whose value and clocks are no better
  than those of another label of the same state can be dropped.
- Labels leave the queue in the order of a lower bound on the value of every completion, which the
  ops that are not done give. The first label that completes the step is therefore optimal.
- A label is dropped if the processor cannot compute the ops that are not done by the deadline.
- With DMA all transfers are asynchronous. A synchronous one takes the processor to its end, and not
  for a share of its time only: no clock would be earlier with it.

The number of labels grows exponentially with the graph. The search gives up after a number of them;
it is meant for graphs of up to about a dozen ops, where other bounds leave a gap.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import le
from typing import Literal, NamedTuple, TypeAlias

from solver.formulations.scaled_costs import Objective
from solver.problem.liveness import with_frees, with_late_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut

# More tensors or ops than this are not worth starting with.
_MOST_OPS, _MOST_TENSORS = 14, 24
# Sums of the same times in another order differ by less, relative.
_ROUNDING = 1e-9

_Clocks: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Exhausted:
    """Result of a complete search: the best schedule and its value, both None if none exists."""

    actions: tuple[Action, ...] | None
    value: float | None


class _State(NamedTuple):
    ram: int
    stored: int
    done: int


# An action in short: what is done, and the index of the op or tensor.
_Move: TypeAlias = tuple[Literal["compute", "page_out", "page_in", "free", "start"], int]


class _Label(NamedTuple):
    value: float
    state: _State
    clocks: _Clocks
    parent: int
    move: _Move


def search_states(
    problem: Problem,
    objective: Objective,
    *,
    order: Literal["any", "given"] = "any",
    most_labels: int = 60_000,
    deadline: float = math.inf,
) -> Exhausted | None:
    """Search all schedules of a small problem.

    Args:
        problem: The problem. Its RAM budget does not count if memory is the objective, its deadline
            not if time is.
        objective: What to minimise: joules, seconds that count against a deadline, or bytes.
        order: ``given`` covers only schedules whose first executions keep the graph's order.
        most_labels: Number of labels after which the search gives up.
        deadline: When to give up, on ``time.monotonic``.

    Returns:
        The optimum, or None if the search gave up.
    """
    if len(problem.graph.ops) > _MOST_OPS or len(problem.graph.tensors) > _MOST_TENSORS:
        return None
    return _StateSearch(problem, objective, order == "given").run(most_labels, deadline)


class _StateSearch:
    """Bit sets for the tensors and ops of a problem, and the labels found so far."""

    def __init__(self, problem: Problem, objective: Objective, keeps_order: bool) -> None:
        self._problem, self._objective, self._keeps_order = problem, objective, keeps_order
        tensors = range(len(problem.graph.tensors))
        self._tensors = tensors
        self._reads = [_bits(reads) for reads in problem.reads]
        self._writes = [_bits(writes) for writes in problem.writes]
        self._consumes = [_bits(consumed) for consumed in problem.consumes]
        self._must_hold = _bits(i for i in tensors if problem.graph.tensors[i].persist == "ram")
        self._must_store = _bits(
            i for i in tensors if problem.graph.tensors[i].persist == "storage"
        )
        self._can_page_out = _bits(
            i
            for i in tensors
            if problem.graph.tensors[i].page_out is not None
            and (problem.budget.paging or self._must_store >> i & 1)
        )
        self._can_page_in = _bits(
            i
            for i in tensors
            if problem.graph.tensors[i].page_in is not None
            and (problem.budget.paging or problem.starts_in_storage[i])
        )
        latest_s = problem.latest_s
        self._latest_s = math.inf if latest_s is None or objective == "time" else latest_s
        self._late_s = self._latest_s * (1 + _ROUNDING)
        self._ram_bytes = math.inf if objective == "memory" else problem.budget.ram_bytes
        self._is_timed = objective == "time" or self._latest_s < math.inf
        self._labels: list[_Label] = []
        # The least place in the queue of the labels with the same state and clocks.
        self._queued: dict[tuple[_State, _Clocks], float] = {}
        # By bit set: bytes of tensors in RAM; joules and seconds of the ops that are not done.
        self._bytes: dict[int, int] = {}
        self._left: dict[int, tuple[float, float]] = {}

    def run(self, most_labels: int, deadline: float) -> Exhausted | None:
        problem = self._problem
        everything = (1 << len(problem.graph.ops)) - 1
        start = _State(
            _bits(i for i in self._tensors if problem.starts_in_ram[i]),
            _bits(i for i in self._tensors if problem.starts_in_storage[i]),
            0,
        )
        held = self._held(start.ram)
        if held > self._ram_bytes:
            return Exhausted(None, None)
        clocks = (0.0,) * (2 + 2 * len(self._tensors)) if self._is_timed else ()
        value = float(held) if self._objective == "memory" else 0.0
        queue: list[tuple[float, int]] = []
        reached: dict[_State, list[_Clocks]] = {}
        self._add(queue, _Label(value, start, clocks, -1, ("start", 0)))
        while queue:
            _, number = heapq.heappop(queue)
            label = self._labels[number]
            state = label.state
            known = reached.setdefault(state, [])
            if any(_no_later(one, label.clocks) for one in known):
                continue
            known.append(label.clocks)
            if (
                state.done == everything
                and not self._must_hold & ~state.ram
                and not self._must_store & ~state.stored
            ):
                return Exhausted(self._as_actions(number), label.value)
            if len(self._labels) > most_labels or time.monotonic() > deadline:
                return None
            for following in self._following(label, number):
                if following.state not in reached or not any(
                    _no_later(one, following.clocks) for one in reached[following.state]
                ):
                    self._add(queue, following)
        return Exhausted(None, None)

    def _add(self, queue: list[tuple[float, int]], label: _Label) -> None:
        left_j, left_s = self._left_of(label.state.done)
        if self._is_timed and label.clocks[0] + left_s > self._late_s:
            return
        match self._objective:
            case "energy":
                first = label.value + left_j
            case "time":
                first = max(label.value, label.clocks[0] + left_s)
            case "memory":
                first = label.value
        here = label.state, label.clocks
        if self._queued.get(here, math.inf) <= first:
            return
        self._queued[here] = first
        heapq.heappush(queue, (first, len(self._labels)))
        self._labels.append(label)

    def _left_of(self, done: int) -> tuple[float, float]:
        """Energy and time of the ops that are not done, which every completion needs."""
        if done not in self._left:
            left = [op for k, op in enumerate(self._problem.graph.ops) if not done >> k & 1]
            self._left[done] = sum(op.energy_j for op in left), sum(op.time_s for op in left)
        return self._left[done]

    # --- moves ----------------------------------------------------------------------------------

    def _following(self, label: _Label, number: int) -> Iterator[_Label]:
        problem, (ram, stored, done) = self._problem, label.state
        held = self._held(ram)
        for i in self._tensors:
            bit, tensor = 1 << i, problem.graph.tensors[i]
            if ram & bit:
                freed = label.state._replace(ram=ram & ~bit)
                clocks = self._wait(label.clocks, (i,), (i,))
                yield from self._label(label, number, ("free", i), freed, clocks)
                if self._can_page_out & bit and not stored & bit:
                    assert tensor.page_out is not None
                    yield from self._label(
                        label,
                        number,
                        ("page_out", i),
                        label.state._replace(stored=stored | bit),
                        self._transfer(
                            self._wait(label.clocks, (i,), ()), i, problem.page_out_due_s[i], True
                        ),
                        tensor.page_out.energy_j,
                    )
            elif stored & bit and self._can_page_in & bit:
                assert tensor.page_in is not None
                yield from self._label(
                    label,
                    number,
                    ("page_in", i),
                    label.state._replace(ram=ram | bit),
                    self._transfer(label.clocks, i, problem.page_in_due_s[i], False),
                    tensor.page_in.energy_j,
                    held + problem.size[i],
                )
        for k, op in enumerate(problem.graph.ops):
            bit = 1 << k
            if done & bit and not problem.recomputable[k]:
                continue
            if self._keeps_order and not done & bit and (bit - 1) & ~done:
                continue
            if self._reads[k] & ~ram or self._writes[k] & ram:
                continue
            clocks = self._wait(label.clocks, problem.reads[k], problem.consumes[k])
            if clocks:
                clocks = (clocks[0] + op.time_s, *clocks[1:])
            yield from self._label(
                label,
                number,
                ("compute", k),
                _State((ram | self._writes[k]) & ~self._consumes[k], stored, done | bit),
                clocks,
                op.energy_j,
                held + self._held(self._writes[k]) + problem.extra_bytes[k],
            )

    def _label(
        self,
        label: _Label,
        number: int,
        move: _Move,
        state: _State,
        clocks: _Clocks,
        energy_j: float = 0.0,
        during_bytes: int = 0,
    ) -> Iterator[_Label]:
        """The label after ``move``, if it is within the budget and the deadline."""
        end_s = max(clocks[0], clocks[1]) if clocks else 0.0
        if during_bytes > self._ram_bytes or end_s > self._latest_s:
            return
        match self._objective:
            case "energy":
                value = label.value + energy_j
            case "time":
                value = end_s
            case "memory":
                value = max(label.value, float(during_bytes))
        yield _Label(value, state, clocks, number, move)

    @property
    def _is_beside_ops(self) -> bool:
        return self._is_timed and self._problem.overlaps

    def _held(self, ram: int) -> int:
        if ram not in self._bytes:
            self._bytes[ram] = sum(self._problem.size[i] for i in self._tensors if ram >> i & 1)
        return self._bytes[ram]

    # --- clocks: processor, channel, then for each tensor the ends of its transfers in and out ---

    def _wait(self, clocks: _Clocks, coming: Sequence[int], going: Sequence[int]) -> _Clocks:
        """Let the processor wait for transfers into RAM and out of it."""
        if not self._is_beside_ops:
            return clocks
        pending = [2 + i for i in coming] + [2 + len(self._tensors) + i for i in going]
        if not any(clocks[p] for p in pending):
            return clocks
        changed = list(clocks)
        for p in pending:
            changed[0], changed[p] = max(changed[0], clocks[p]), 0.0
        return tuple(changed)

    def _transfer(self, clocks: _Clocks, i: int, due_s: float, is_out: bool) -> _Clocks:
        """Start a transfer of tensor ``i``, or make it if the storage has no DMA."""
        if not clocks:
            return clocks
        end_s = max(clocks[0], clocks[1]) + due_s
        if not self._is_beside_ops:
            return (clocks[0] + due_s, clocks[0] + due_s, *clocks[2:])
        changed = list(clocks)
        changed[0] += self._problem.graph.processor_time_s(due_s)
        changed[1] = changed[2 + i + (len(self._tensors) if is_out else 0)] = end_s
        return tuple(changed)

    # --- the schedule ---------------------------------------------------------------------------

    def _as_actions(self, number: int) -> tuple[Action, ...]:
        """The path to a label as a schedule that frees tensors as the semantics require.

        A tensor is freed right after its last use. Only a tensor that an asynchronous page-out
        still reads is freed where the path frees it, since an earlier free would wait.
        """
        path: list[Action] = []
        while (label := self._labels[number]).parent >= 0:
            path.append(self._action(label.move))
            number = label.parent
        path.reverse()
        plain = [action for action in path if not isinstance(action, Free)]
        actions = with_frees(self._problem.graph, plain)
        return (
            with_late_frees(self._problem.graph, actions, path) if self._is_beside_ops else actions
        )

    def _action(self, move: _Move) -> Action:
        kind, index = move
        if kind == "compute":
            return Compute(op=self._problem.graph.ops[index].name)
        name = self._problem.graph.tensors[index].name
        match kind:
            case "page_out":
                return PageOut(tensor=name, asynchronous=self._is_beside_ops)
            case "page_in":
                return PageIn(tensor=name, asynchronous=self._is_beside_ops)
        return Free(tensor=name)


def _no_later(clocks: _Clocks, other: _Clocks) -> bool:
    return all(map(le, clocks, other))


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in set(numbers))
