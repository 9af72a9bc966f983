"""Exhaustive search over the states of a small scheduling problem: the oracle of the tests.

The oracle is written from the semantics of ``costed-graph/1`` and ``schedule/2`` alone. It reads
the JSON documents and shares no code with solver, referee or clock. It knows every structure of the
formats: any order of ops, recomputation of anything that allows it, as often as it helps, paging,
homes, persistence, in-place ops, workspaces, deadlines, transfers beside ops, both coverages of the
budget.

A state is what is in RAM, what has a valid copy in storage, and which ops are done. A* search over
states finds the least energy. Where time counts, a state is reached by several
labels, each with the times at which processor, channel and pending transfers end; a label that is
later in nothing and cheaper in energy replaces another one, since every clock is a maximum of
earlier clocks plus constants. Transfers of storage with DMA are asynchronous throughout: compared
with a synchronous transfer, no clock ends later. A transfer that ends before the processor is free
delays nothing.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import le
from typing import Any, Literal, NamedTuple, TypeAlias

# A deadline is met up to rounding, as the contract has it.
_ROUNDING = 1e-9


class TooLarge(Exception):
    """The search has more labels than a test can wait for."""


class _State(NamedTuple):
    """Bit sets of tensors in RAM, of tensors with a valid copy in storage, and of done ops."""

    ram: int
    stored: int
    done: int


# When the processor is free; with transfers beside ops, then when the channel is and when the
# transfers of each tensor end: those into RAM, then those out of it. Empty if time is not counted.
_Clocks: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class _Op:
    reads: int
    writes: int
    consumed: int
    extra_bytes: int
    time_s: float
    energy_j: float
    recomputable: bool


class Oracle:
    """Optima of one graph under one budget, both as JSON documents of their formats.

    Args:
        graph: A ``costed-graph/1`` document; a dozen tensors are practical.
        budget: The ``budget`` of a ``schedule/2`` document.
        given_order: Count only schedules whose first executions keep the graph's order.
        most_labels: Give up after so many labels; every question then raises :class:`TooLarge`.
    """

    def __init__(
        self,
        graph: Mapping[str, Any],
        budget: Mapping[str, Any],
        *,
        given_order: bool = False,
        most_labels: int = 1_000_000,
    ) -> None:
        self._given_order = given_order
        self._most_labels = most_labels
        self._recompute = budget.get("rematerialization", True)
        self._paging = budget.get("paging", True)
        self._ram_bytes: int = budget["ram_bytes"]
        self._deadline_s: float | None = budget.get("deadline_s")
        self._instantaneous: bool = budget.get("instantaneous_paging", False)
        self._beside_ops: bool = graph.get("asynchronous_transfers", False)
        self._processor_share: float = graph.get("processor_share") or 0.0
        self._handover_s: float = graph.get("handover_s") or 0.0
        tensors = graph["tensors"]
        self._number = {tensor["name"]: bit for bit, tensor in enumerate(tensors)}
        uncounted = _uncounted(graph) if budget.get("covers", "all") == "activations" else set()
        self._bytes = [0 if t["name"] in uncounted else t["bytes"] for t in tensors]
        self._page_out = [t.get("page_out") for t in tensors]
        self._page_in = [t.get("page_in") for t in tensors]
        self._at_home = [t.get("home") == "storage" for t in tensors]
        self._must_store = self._set(t["name"] for t in tensors if t.get("persist") == "storage")
        self._must_hold = self._set(t["name"] for t in tensors if t.get("persist") == "ram")
        self._ops = [self._op(op) for op in graph["ops"]]
        # Sums by bit set: bytes of tensors; joules and seconds of the ops that are not done.
        self._sums: dict[int, int] = {}
        self._left: dict[int, tuple[float, float]] = {}
        written = 0
        for op in self._ops:
            written |= op.writes
        sources = [t for t in tensors if not written >> self._number[t["name"]] & 1]
        self._start = _State(
            self._set(t["name"] for t in sources if t.get("home") != "storage"),
            self._set(t["name"] for t in sources if t.get("home") == "storage"),
            0,
        )

    def least_energy_j(self) -> float | None:
        """Least energy of any schedule; None if none exists."""
        return self._least_energy_j

    @cached_property
    def _least_energy_j(self) -> float | None:
        return self._search("energy", self._ram_bytes)

    def least_time_s(self) -> float | None:
        """Time that counts against a deadline, of the fastest schedule; None if none exists.

        The budget's own deadline is ignored.
        """
        deadline_s, self._deadline_s = self._deadline_s, None
        try:
            return self._search("time", self._ram_bytes)
        finally:
            self._deadline_s = deadline_s

    def least_ram_bytes(self) -> int | None:
        """Smallest RAM budget under which a schedule exists; None if none is large enough."""
        least = max(self._held(op.reads | op.writes) + op.extra_bytes for op in self._ops)
        enough = sum(self._bytes) + max(op.extra_bytes for op in self._ops)
        if self._search("any", enough) is None:
            return None
        while least < enough:
            middle = (least + enough) // 2
            if self._search("any", middle) is None:
                least = middle + 1
            else:
                enough = middle
        return least

    # --- the problem ----------------------------------------------------------------------------

    def _set(self, names: Any) -> int:
        return sum(1 << self._number[name] for name in set(names))

    def _op(self, op: Mapping[str, Any]) -> _Op:
        in_place = op.get("in_place", {})
        shared = sum(
            min(self._bytes[self._number[written]], self._bytes[self._number[read]])
            for written, read in in_place.items()
        )
        return _Op(
            reads=self._set(op["reads"]),
            writes=self._set(op["writes"]),
            consumed=self._set(in_place.values()),
            extra_bytes=op.get("workspace_bytes", 0) - shared,
            time_s=op["time_s"],
            energy_j=op["energy_j"],
            recomputable=op.get("recomputable", True),
        )

    def _held(self, ram: int) -> int:
        if ram not in self._sums:
            self._sums[ram] = sum(size for bit, size in enumerate(self._bytes) if ram >> bit & 1)
        return self._sums[ram]

    def _left_of(self, done: int) -> tuple[float, float]:
        """Energy and time of the processor that every completion needs.

        A* search expands fewer states with them.
        """
        if done not in self._left:
            left = [op for number, op in enumerate(self._ops) if not done >> number & 1]
            self._left[done] = sum(op.energy_j for op in left), sum(op.time_s for op in left)
        return self._left[done]

    # --- the search -----------------------------------------------------------------------------

    def _search(self, objective: Literal["energy", "time", "any"], ram_bytes: int) -> float | None:
        """Least energy or time; for ``any``, zero if a schedule exists at all."""
        if self._held(self._start.ram) > ram_bytes:
            return None
        timed = objective == "time" or self._deadline_s is not None
        latest_s = math.inf if self._deadline_s is None else self._deadline_s * (1 + _ROUNDING)
        # Sums in another order differ by rounding.
        late_s = latest_s * (1 + _ROUNDING)
        everything = (1 << len(self._ops)) - 1
        count = itertools.count()
        clocks: _Clocks = ()
        if timed:
            clocks = (0.0,) * (2 + 2 * len(self._bytes) if self._beside_ops else 1)
        queue = [(0.0, next(count), 0.0, self._start, clocks)]
        queued: dict[tuple[_State, _Clocks], float] = {}
        reached: dict[_State, list[_Clocks]] = {}
        for _ in range(self._most_labels):
            if not queue:
                return None
            _, _, energy_j, state, clocks = heapq.heappop(queue)
            earlier = reached.setdefault(state, [])
            if any(_no_later(one, clocks) for one in earlier):
                continue
            earlier.append(clocks)
            if (
                state.done == everything
                and not self._must_hold & ~state.ram
                and not self._must_store & ~state.stored
            ):
                return {"energy": energy_j, "time": _end_s(clocks), "any": 0.0}[objective]
            for following, cost_j, after in self._moves(state, clocks, ram_bytes):
                left_j, left_s = self._left_of(following.done)
                end_s = soonest_s = 0.0
                if timed:
                    end_s = _end_s(after)
                    soonest_s = max(end_s, after[0] + left_s)
                    if end_s > latest_s or soonest_s > late_s:
                        continue
                total_j = energy_j + cost_j
                if objective == "energy":
                    first = total_j + left_j
                elif objective == "time":
                    first = soonest_s
                else:
                    first = float(-following.done.bit_count())  # any schedule: the nearest one
                if queued.get((following, after), math.inf) <= first:
                    continue
                queued[following, after] = first
                heapq.heappush(queue, (first, next(count), total_j, following, after))
        raise TooLarge

    def _moves(
        self, state: _State, clocks: _Clocks, ram_bytes: int
    ) -> Iterator[tuple[_State, float, _Clocks]]:
        """Every action that can follow, with its energy and the clocks after it."""
        held = self._held(state.ram)
        for bit, size in enumerate(self._bytes):
            flag = 1 << bit
            if state.ram & flag:
                freed = _State(state.ram & ~flag, state.stored, state.done)
                yield freed, 0.0, self._awaited(clocks, flag, flag)
                cost = self._page_out[bit]
                allowed = self._paging or self._must_store & flag
                if cost and allowed and not state.stored & flag:
                    stored = _State(state.ram, state.stored | flag, state.done)
                    yield stored, cost["energy_j"], self._moved(clocks, bit, cost, out=True)
            elif state.stored & flag:
                cost = self._page_in[bit]
                allowed = self._paging or self._at_home[bit]
                if cost and allowed and held + size <= ram_bytes:
                    present = _State(state.ram | flag, state.stored, state.done)
                    yield present, cost["energy_j"], self._moved(clocks, bit, cost, out=False)
        for number, op in enumerate(self._ops):
            flag = 1 << number
            if state.done & flag:
                if not (op.recomputable and self._recompute):
                    continue
            elif self._given_order and (flag - 1) & ~state.done:
                continue
            if op.reads & ~state.ram or op.writes & state.ram:
                continue
            if held + self._held(op.writes) + op.extra_bytes > ram_bytes:
                continue
            following = _State(
                (state.ram | op.writes) & ~op.consumed, state.stored, state.done | flag
            )
            yield following, op.energy_j, self._computed(clocks, op)

    # --- clocks ---------------------------------------------------------------------------------

    def _computed(self, clocks: _Clocks, op: _Op) -> _Clocks:
        """The clocks after an op, which waits for the transfers of what it reads and overwrites."""
        if not clocks:
            return clocks
        now_s, *others = self._awaited(clocks, op.reads, op.consumed)
        now_s += op.time_s
        return (now_s, *others[:1], *(end_s if end_s > now_s else 0.0 for end_s in others[1:]))

    def _moved(self, clocks: _Clocks, bit: int, cost: Mapping[str, float], *, out: bool) -> _Clocks:
        """The clocks after a transfer of one tensor was started, or made."""
        if self._instantaneous or not clocks:
            return clocks
        if not self._beside_ops:
            return (clocks[0] + cost["time_s"],)
        if out:
            clocks = self._awaited(clocks, 1 << bit, 0)
        end_s = _end_s(clocks) + cost["time_s"]
        working_s = self._processor_share * cost["time_s"] + self._handover_s
        clocks = _put(clocks, 0, clocks[0] + min(cost["time_s"], working_s))
        place = 2 + bit + (len(self._bytes) if out else 0)
        return _put(_put(clocks, 1, end_s), place, end_s)

    def _awaited(self, clocks: _Clocks, coming: int, going: int) -> _Clocks:
        """The clocks once transfers into RAM of the tensors in ``coming``, and those out of RAM of
        the tensors in ``going``, have ended."""
        ends_s = clocks[2:]
        if not any(ends_s):
            return clocks
        awaited = coming | going << len(self._bytes)
        now_s = max(
            clocks[0], *(end_s for place, end_s in enumerate(ends_s) if awaited >> place & 1), 0.0
        )
        return (now_s, clocks[1], *(end_s if end_s > now_s else 0.0 for end_s in ends_s))


def _end_s(clocks: _Clocks) -> float:
    """When processor and channel have ended; 0 where time counts nothing."""
    return max(clocks[:2], default=0.0)


def _no_later(clocks: _Clocks, other: _Clocks) -> bool:
    return all(map(le, clocks, other))


def _put(values: tuple[float, ...], index: int, value: float) -> tuple[float, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _uncounted(graph: Mapping[str, Any]) -> set[str]:
    """Tensors that ``covers: activations`` leaves out: parameters, optimizer state, the gradients
    that updates read, and what updates write."""
    updates = [op for op in graph["ops"] if op["phase"] == "update"]
    read = {name for op in updates for name in op["reads"]}
    written = {name for op in updates for name in op["writes"]}
    return written | {
        tensor["name"]
        for tensor in graph["tensors"]
        if tensor["kind"] in ("parameter", "optimizer_state")
        or (tensor["kind"] == "gradient" and tensor["name"] in read)
    }
