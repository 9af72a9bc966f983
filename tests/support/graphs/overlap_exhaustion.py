"""Optimum of small problems with transfers beside ops, by exhaustive search.

It shares no code with the solver but the file formats.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from solver.problem.graph import CostedGraph, Op
from solver.problem.schedule import Budget


class _State(NamedTuple):
    """State of the search.

    ``last`` is the last op computed in this ``stage``. ``unused`` tensors are in RAM and not read
    since they were paged in; ``gone`` ones have left RAM in this stage. ``moving`` are tensors in
    RAM with a transfer, and the time at which it ends. In a ``current`` state, no transfer ends
    before the processor is free, where it would delay nothing.
    """

    stage: int
    last: int
    ram: frozenset[str]
    storage: frozenset[str]
    unused: frozenset[str]
    gone: frozenset[str]
    processor_s: float
    channel_s: float
    moving: frozenset[tuple[str, float]]

    def ends_s(self, names: set[str]) -> float:
        """Time at which the processor is free and the transfers of these tensors have ended."""
        return max([self.processor_s, *(end for name, end in self.moving if name in names)])

    @property
    def current(self) -> _State:
        now_s = self.processor_s
        if self.channel_s >= now_s and all(end > now_s for _, end in self.moving):
            return self
        moving = frozenset((name, end) for name, end in self.moving if end > now_s)
        return self._replace(channel_s=max(self.channel_s, now_s), moving=moving)


def least_energy_beside_ops(graph: CostedGraph, budget: Budget) -> float | None:
    """Least energy within the restrictions of the compact formulation; None if no schedule exists.

    They apply to the schedule in which each transfer runs alone, with each page-in right before its
    tensor is needed.
    """
    sources = [t for t in graph.tensors if t.name not in graph.producer]
    ram = frozenset(t.name for t in sources if t.home != "storage")
    storage = frozenset(t.name for t in sources if t.home == "storage")
    must_ram = {t.name for t in graph.tensors if t.persist == "ram"}
    must_storage = {t.name for t in graph.tensors if t.persist == "storage"}
    if _bytes_of(graph, ram) > budget.ram_bytes:
        return None
    none: frozenset[str] = frozenset()
    first = _State(0, -1, ram, storage, none, none, 0.0, 0.0, frozenset())
    counter = itertools.count()
    queue = [(sum(op.energy_j for op in graph.ops), next(counter), first)]
    seen: set[_State] = set()
    deadline_s = float("inf") if budget.deadline_s is None else budget.deadline_s + 1e-9
    stages = range(len(graph.ops) + 1)
    left_s = [sum(op.time_s for op in graph.ops[stage:]) for stage in stages]
    # A* search: the remaining energy is at least that of the ops not computed yet.
    left_j = [sum(op.energy_j for op in graph.ops[stage:]) for stage in stages]
    while queue:
        least_j, _, state = heapq.heappop(queue)
        if state in seen:
            continue
        seen.add(state)
        finished = state.stage == len(graph.ops) and not must_ram & state.unused & state.gone
        if finished and must_ram <= state.ram and must_storage <= state.storage:
            return least_j
        for cost_j, moved in _moves(graph, budget, state):
            following = moved.current
            late = following.processor_s + left_s[following.stage] > deadline_s
            if following not in seen and not late and following.channel_s <= deadline_s:
                more_j = cost_j + left_j[following.stage] - left_j[state.stage]
                heapq.heappush(queue, (least_j + more_j, next(counter), following))
    return None


def _working_s(graph: CostedGraph, transfer_s: float) -> float:
    """Seconds of the processor for a transfer beside ops."""
    working_s = (graph.processor_share or 0.0) * transfer_s + (graph.handover_s or 0.0)
    return min(transfer_s, working_s)


def _moves(graph: CostedGraph, budget: Budget, state: _State) -> Iterator[tuple[float, _State]]:
    for name in state.ram:
        yield (
            0.0,
            state._replace(
                ram=state.ram - {name},
                unused=state.unused - {name},
                gone=state.gone | {name},
                processor_s=state.ends_s({name}),
                moving=_without(state, {name}),
            ),
        )
        tensor = graph.tensor[name]
        cost = tensor.page_out
        allowed = budget.paging or tensor.persist == "storage"
        if cost and allowed and name not in state.storage:
            end_s = max(state.processor_s, state.channel_s) + cost.time_s
            yield (
                cost.energy_j,
                state._replace(
                    storage=state.storage | {name},
                    processor_s=state.processor_s + _working_s(graph, cost.time_s),
                    channel_s=end_s,
                    moving=state.moving | {(name, end_s)},
                ),
            )
    for name in state.storage - state.ram:
        tensor = graph.tensor[name]
        cost = tensor.page_in
        allowed = budget.paging or tensor.home == "storage"
        if cost and allowed and _bytes_of(graph, state.ram | {name}) <= budget.ram_bytes:
            end_s = max(state.processor_s, state.channel_s) + cost.time_s
            yield (
                cost.energy_j,
                state._replace(
                    ram=state.ram | {name},
                    unused=state.unused | {name},
                    processor_s=state.processor_s + _working_s(graph, cost.time_s),
                    channel_s=end_s,
                    moving=state.moving | {(name, end_s)},
                ),
            )
    for k in range(state.last + 1, min(state.stage + 1, len(graph.ops))):
        op = graph.ops[k]
        repeatable = op.recomputable and budget.rematerialization
        if (k == state.stage or repeatable) and set(op.reads) <= state.ram:
            following = _computed(graph, state, k, op, budget.ram_bytes)
            if following is not None:
                yield op.energy_j, following


def _computed(graph: CostedGraph, state: _State, k: int, op: Op, ram_bytes: int) -> _State | None:
    reads, consumed = set(op.reads), set(op.in_place.values())
    ram = state.ram | set(op.writes)
    shared = sum(min(graph.tensor[w].bytes, graph.tensor[r].bytes) for w, r in op.in_place.items())
    if _bytes_of(graph, ram) + op.workspace_bytes - shared > ram_bytes:
        return None
    if set(op.writes) & state.ram:
        return None
    # The formulation excludes paging in a tensor in the stage in which it left RAM.
    if reads & state.unused & state.gone:
        return None
    coming_or_consumed = {name for name, _ in state.moving if name in state.unused & reads}
    state = state._replace(
        ram=ram - consumed,
        unused=state.unused - reads,
        gone=state.gone | consumed,
        processor_s=state.ends_s(coming_or_consumed | consumed) + op.time_s,
        moving=_without(state, consumed | coming_or_consumed),
    )
    if k == state.stage:
        return state._replace(stage=state.stage + 1, last=-1, gone=frozenset())
    return state._replace(last=k)


def _without(state: _State, names: set[str]) -> frozenset[tuple[str, float]]:
    return frozenset(pair for pair in state.moving if pair[0] not in names)


def _bytes_of(graph: CostedGraph, names: frozenset[str]) -> int:
    return sum(graph.tensor[name].bytes for name in names)
