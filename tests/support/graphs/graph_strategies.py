"""Random small scheduling problems, random valid schedules, and optima by exhaustive search."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from solver.problem.footprint import least_ram_bytes
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.schedule import Action, Budget, Compute, PageIn, PageOut
from tests.support.graphs.graph_examples import unconstrained_peak

_SUFFIXES = st.sampled_from(["a", "a", "a", "ab"])
_FREE_OF_COST = PageCost(time_s=0.0, energy_j=0.0)
_PAGE_COSTS = st.sampled_from([PageCost(time_s=1.0, energy_j=float(e)) for e in (1, 2, 7)])


def examples(number: int) -> settings:
    """Hypothesis settings: the same ``number`` of examples every time, without time limits."""
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def small_graphs(draw: st.DrawFn) -> CostedGraph:
    """Small graphs.

    Up to five ops, some with two outputs, some in place, some not recomputable; up to two tensors
    that exist from the start; some tensors cannot be paged, some must persist.
    """
    tensors: list[Tensor] = []
    ops: list[Op] = []

    def add_tensor(name: str, *, written: bool) -> str:
        pageable = draw(st.integers(0, 3)) > 0
        page = draw(_PAGE_COSTS)
        home = None if written else draw(st.sampled_from(["ram", "storage"]))
        tensors.append(
            Tensor(
                name=name,
                bytes=draw(st.integers(1, 6)),
                kind="activation" if written else "parameter",
                home=home,
                page_out=page if pageable else None,
                page_in=page if pageable or home == "storage" else None,
                persist=draw(st.sampled_from([None, None, None, "ram", "storage"]))
                if pageable
                else None,
            )
        )
        return name

    at_hand = [add_tensor(f"s{i}", written=False) for i in range(draw(st.integers(0, 2)))]
    for k in range(draw(st.integers(2, 5))):
        reads = draw(st.lists(st.sampled_from(at_hand), unique=True, max_size=2)) if at_hand else []
        writes = [add_tensor(f"t{k}{suffix}", written=True) for suffix in draw(_SUFFIXES)]
        persistent = {t.name for t in tensors if t.persist}
        consumable = [name for name in reads if name not in persistent]
        in_place = {}
        if consumable and draw(st.integers(0, 3)) == 0:
            in_place = {writes[0]: consumable[0]}
            at_hand.remove(consumable[0])
        ops.append(
            Op(
                name=f"op{k}",
                kind="test",
                phase="forward",
                reads=tuple(reads),
                writes=tuple(writes),
                time_s=1.0,
                energy_j=float(draw(st.integers(0, 9))),
                workspace_bytes=draw(st.sampled_from([0, 0, 3])),
                recomputable=draw(st.integers(0, 4)) > 0,
                in_place=in_place,
            )
        )
        at_hand += writes
    return CostedGraph(name="random", ops=tuple(ops), tensors=tuple(tensors))


@st.composite
def tight_problems(draw: st.DrawFn) -> tuple[CostedGraph, Budget]:
    """A graph and a budget below what keeping everything needs.

    The budget lies between the least RAM of any schedule and one byte less than keeping everything
    takes. Half of the problems have a deadline; some exclude paging or recomputation.
    """
    graph = draw(small_graphs().filter(_is_interesting))
    slack_s = draw(st.sampled_from([None, None, 2.0, 4.0]))
    return graph, Budget(
        ram_bytes=draw(st.integers(least_ram_bytes(graph)[0], unconstrained_peak(graph) - 1)),
        deadline_s=None if slack_s is None else len(graph.ops) + slack_s,
        paging=draw(st.sampled_from([True, True, False])),
        rematerialization=draw(st.sampled_from([True, True, False])),
    )


def _is_interesting(graph: CostedGraph) -> bool:
    """Whether less RAM is possible, and exhaustive search (2^tensors in storage) is quick."""
    pageable = sum(1 for tensor in graph.tensors if tensor.page_out)
    return pageable <= 5 and least_ram_bytes(graph)[0] < unconstrained_peak(graph)


@dataclass
class _Available:
    """Actions possible next while a list is drawn, if nothing that is needed later is freed."""

    graph: CostedGraph
    ram: set[str] = field(default_factory=set)
    storage: set[str] = field(default_factory=set)
    done: dict[str, Op] = field(default_factory=dict)

    def extras(self) -> list[Action]:
        """Valid recomputations and page transfers; they do not advance the step."""
        tensor = self.graph.tensor
        return [
            *(
                Compute(op=op.name)
                for op in self.done.values()
                if op.recomputable and self.ram.issuperset(op.reads)
            ),
            *(PageOut(tensor=name) for name in sorted(self.ram) if tensor[name].page_out),
            *(PageIn(tensor=name) for name in sorted(self.storage) if tensor[name].page_in),
        ]

    def act(self, action: Action) -> Action:
        """Apply an action to the state; returns the action."""
        match action:
            case Compute():
                op = next(op for op in self.graph.ops if op.name == action.op)
                self.ram.update(op.writes)
                self.ram.difference_update(op.in_place.values())
                self.done[op.name] = op
            case PageOut():
                self.storage.add(action.tensor)
            case PageIn():
                self.ram.add(action.tensor)
        return action


@st.composite
def action_lists(draw: st.DrawFn, graph: CostedGraph) -> list[Action]:
    """Valid lists of compute and paging actions, sensible or not, without free actions.

    Every op appears in the graph's order, with recomputations and page transfers in between.
    """
    sources = [t for t in graph.tensors if t.name not in graph.producer]
    state = _Available(graph)
    state.ram = {t.name for t in sources if t.home != "storage"}
    state.storage = {t.name for t in sources if t.home == "storage"}
    actions: list[Action] = []
    for op in graph.ops:
        for _ in range(draw(st.integers(0, 2))):
            extras = state.extras()
            actions += [state.act(draw(st.sampled_from(extras)))] if extras else []
        actions += [state.act(PageIn(tensor=n)) for n in op.reads if n not in state.ram]
        actions.append(state.act(Compute(op=op.name)))
    for t in graph.tensors:
        if t.persist == "ram" and t.name not in state.ram:
            actions.append(state.act(PageIn(tensor=t.name)))
        if t.persist == "storage" and t.name not in state.storage:
            actions.append(state.act(PageOut(tensor=t.name)))
    return actions


class _State(NamedTuple):
    """State of the search.

    ``last`` is the last op computed in this ``stage``; ``seen`` are the tensors that have been in
    RAM during it.
    """

    stage: int
    last: int
    ram: frozenset[str]
    storage: frozenset[str]
    seen: frozenset[str]


def least_energy_by_exhaustion(graph: CostedGraph, budget: Budget) -> float | None:
    """Least energy of any schedule within the restrictions below; None if none exists.

    First executions keep the graph's order; between two of them an op is recomputed at most once,
    and a paged tensor has one stretch in RAM. Shares no code with the solver but the file formats.
    """
    size = {t.name: t.bytes for t in graph.tensors}
    written = {name for op in graph.ops for name in op.writes}
    sources = [t for t in graph.tensors if t.name not in written]
    ram = frozenset(t.name for t in sources if t.home != "storage")
    storage = frozenset(t.name for t in sources if t.home == "storage")
    if sum(size[n] for n in ram) > budget.ram_bytes:
        return None
    must_ram = {t.name for t in graph.tensors if t.persist == "ram"}
    must_storage = {t.name for t in graph.tensors if t.persist == "storage"}
    # A* search: the remaining cost is at least that of the ops not computed yet.
    left = [
        PageCost(
            time_s=sum(op.time_s for op in graph.ops[stage:]),
            energy_j=sum(op.energy_j for op in graph.ops[stage:]),
        )
        for stage in range(len(graph.ops) + 1)
    ]
    deadline_s = float("inf") if budget.deadline_s is None else budget.deadline_s + 1e-9
    moves = _Moves(graph, budget)
    counter = itertools.count()
    queue = [(left[0].energy_j, 0.0, next(counter), _State(0, -1, ram, storage, ram))]
    fastest: dict[_State, float] = {}
    while queue:
        energy_j, time_s, _, state = heapq.heappop(queue)
        if time_s >= fastest.get(state, float("inf")):
            continue
        fastest[state] = time_s
        finished = state.stage == len(graph.ops)
        if finished and must_ram <= state.ram and must_storage <= state.storage:
            return energy_j
        for cost, following in moves.after(state):
            ahead = left[following.stage]
            least_j = energy_j - left[state.stage].energy_j + cost.energy_j + ahead.energy_j
            # Without a deadline, time does not distinguish states.
            later_s = 0.0 if budget.deadline_s is None else time_s + cost.time_s
            is_new = later_s < fastest.get(following, float("inf"))
            if is_new and later_s + ahead.time_s <= deadline_s:
                heapq.heappush(queue, (least_j, later_s, next(counter), following))
    return None


class _Moves:
    """The moves of a problem; :meth:`after` gives all that are possible in a state, with costs.

    Pages are written as late as possible: right before the tensor is freed, unless it is
    overwritten or persists.
    """

    def __init__(self, graph: CostedGraph, budget: Budget) -> None:
        self._budget = budget
        overwritten = {name for op in graph.ops for name in op.in_place.values()}
        self._bytes = {t.name: t.bytes for t in graph.tensors}
        # Tensors that may be paged out, or in, and those that may stay in RAM after that.
        self._page_out = {
            t.name: t.page_out
            for t in graph.tensors
            if t.page_out and (budget.paging or t.persist == "storage")
        }
        self._page_in = {
            t.name: t.page_in
            for t in graph.tensors
            if t.page_in and (budget.paging or t.home == "storage")
        }
        self._may_stay = {t.name for t in graph.tensors if t.persist == "storage"} | overwritten
        self._ops = [
            (
                op,
                frozenset(op.reads),
                frozenset(op.writes),
                frozenset(op.in_place.values()),
                op.workspace_bytes
                - sum(min(self._bytes[w], self._bytes[r]) for w, r in op.in_place.items()),
                PageCost(time_s=op.time_s, energy_j=op.energy_j),
            )
            for op in graph.ops
        ]

    def _bytes_of(self, names: frozenset[str]) -> int:
        return sum(map(self._bytes.__getitem__, names))

    def after(self, state: _State) -> Iterator[tuple[PageCost, _State]]:
        stage, last, ram, storage, seen = state
        for name in ram:
            freed = ram - {name}
            yield _FREE_OF_COST, _State(stage, last, freed, storage, seen)
            cost = self._page_out.get(name)
            if cost and name not in storage:
                saved = storage | {name}
                yield cost, _State(stage, last, freed, saved, seen)
                if name in self._may_stay:
                    yield cost, _State(stage, last, ram, saved, seen)
        left_bytes = self._budget.ram_bytes - self._bytes_of(ram)
        for name in storage - ram - seen:
            cost = self._page_in.get(name)
            if cost and self._bytes[name] <= left_bytes:
                yield cost, _State(stage, last, ram | {name}, storage, seen | {name})
        for k in range(last + 1, min(stage + 1, len(self._ops))):
            op, reads, writes, replaced, extra_bytes, cost = self._ops[k]
            first = k == stage
            if not first and not (op.recomputable and self._budget.rematerialization):
                continue
            if not reads <= ram or self._bytes_of(writes - ram) + extra_bytes > left_bytes:
                continue
            after = (ram | writes) - replaced
            if first:
                yield cost, _State(stage + 1, -1, after, storage, frozenset())
            else:
                yield cost, _State(stage, k, after, storage, seen | after)
