"""Random small scheduling problems, and their optimum by exhaustive search."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

from hypothesis import strategies as st

from solver.graph import CostedGraph, Op, PageCost, Tensor
from solver.schedule import Budget


@st.composite
def small_graphs(draw: st.DrawFn) -> CostedGraph:
    """Up to five ops, some with two outputs, some in place, some not recomputable; up to two tensors
    that are there from the start; some tensors that cannot be paged, some that must persist."""
    tensors: list[Tensor] = []
    ops: list[Op] = []
    pages = st.sampled_from([PageCost(time_s=1.0, energy_j=float(e)) for e in (1, 2, 7)])

    def add_tensor(name: str, *, written: bool) -> str:
        pageable = draw(st.booleans())
        page = draw(pages)
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
        reads = (
            draw(st.lists(st.sampled_from(at_hand), unique=True, max_size=2)) if at_hand else []
        )
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


_SUFFIXES = st.sampled_from(["a", "a", "a", "ab"])


@dataclass(frozen=True)
class _State:
    """Stage, the last op done in it, what is in RAM and in storage, and what was in RAM earlier in
    this stage."""

    stage: int
    last: int
    ram: frozenset[str]
    storage: frozenset[str]
    seen: frozenset[str]


def least_energy_by_exhaustion(graph: CostedGraph, budget: Budget) -> float | None:
    """The least energy of any schedule with first executions in the graph's order, at most one
    recomputation of an op between two of them in that order, and one stretch in RAM of a tensor
    that is paged in; None if there is none. Shares no code with the solver but the file formats."""
    size = {t.name: t.bytes for t in graph.tensors}
    tensor = {t.name: t for t in graph.tensors}
    written = {name for op in graph.ops for name in op.writes}
    sources = [t for t in graph.tensors if t.name not in written]
    ram = frozenset(t.name for t in sources if t.home != "storage")
    start = _State(
        0, -1, ram, frozenset(t.name for t in sources if t.home == "storage"), ram
    )
    if sum(size[n] for n in ram) > budget.ram_bytes:
        return None
    must_ram = {t.name for t in graph.tensors if t.persist == "ram"}
    must_storage = {t.name for t in graph.tensors if t.persist == "storage"}
    counter = itertools.count()
    queue = [(0.0, 0.0, next(counter), start)]
    done: dict[_State, list[float]] = {}
    while queue:
        energy, time_s, _, state = heapq.heappop(queue)
        if any(time_s >= earlier for earlier in done.get(state, [])):
            continue
        done.setdefault(state, []).append(time_s)
        if state.stage == len(graph.ops):
            if must_ram <= state.ram and must_storage <= state.storage:
                return energy
        for cost_j, cost_s, following in _moves(graph, budget, state, tensor, size):
            if budget.deadline_s is None:
                cost_s = 0.0
            elif time_s + cost_s > budget.deadline_s + 1e-9:
                continue
            heapq.heappush(queue, (energy + cost_j, time_s + cost_s, next(counter), following))
    return None


def _moves(graph, budget, state, tensor, size):  # type: ignore[no-untyped-def]
    in_ram = sum(size[n] for n in state.ram)
    for name in state.ram:
        yield 0.0, 0.0, _State(
            state.stage, state.last, state.ram - {name}, state.storage, state.seen
        )
        page = tensor[name].page_out
        may_page_out = budget.paging or tensor[name].persist == "storage"
        if page and may_page_out and name not in state.storage:
            yield page.energy_j, page.time_s, _State(
                state.stage, state.last, state.ram, state.storage | {name}, state.seen
            )
    for name in state.storage - state.ram - state.seen:
        page = tensor[name].page_in
        may_page_in = budget.paging or tensor[name].home == "storage"
        if page and may_page_in and in_ram + size[name] <= budget.ram_bytes:
            yield page.energy_j, page.time_s, _State(
                state.stage,
                state.last,
                state.ram | {name},
                state.storage,
                state.seen | {name},
            )
    for k in range(state.last + 1, min(state.stage + 1, len(graph.ops))):
        op = graph.ops[k]
        first = k == state.stage
        if not first and not (op.recomputable and budget.rematerialization):
            continue
        if not set(op.reads) <= state.ram:
            continue
        ram = state.ram | set(op.writes)
        shared = sum(min(size[w], size[r]) for w, r in op.in_place.items())
        if sum(size[n] for n in ram) + op.workspace_bytes - shared > budget.ram_bytes:
            continue
        ram -= set(op.in_place.values())
        yield op.energy_j, op.time_s, _State(
            state.stage + first,
            -1 if first else k,
            ram,
            state.storage,
            frozenset() if first else state.seen | ram,
        )
