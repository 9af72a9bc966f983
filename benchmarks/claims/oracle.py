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
with a synchronous transfer, no clock ends later.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# A deadline is met up to rounding, as the contract has it.
_ROUNDING = 1e-9


class TooLarge(Exception):
    """The search has more labels than a test can wait for."""


class _State(NamedTuple):
    """Bit sets of tensors in RAM, of tensors with a valid copy in storage, and of done ops."""

    ram: int
    stored: int
    done: int


class _Clocks(NamedTuple):
    """When the processor and the channel are free, and when each tensor's transfers end."""

    processor_s: float
    channel_s: float
    coming_s: tuple[float, ...]
    going_s: tuple[float, ...]

    def no_later_than(self, other: _Clocks) -> bool:
        return (
            self.processor_s <= other.processor_s
            and self.channel_s <= other.channel_s
            and all(a <= b for a, b in zip(self.coming_s, other.coming_s, strict=True))
            and all(a <= b for a, b in zip(self.going_s, other.going_s, strict=True))
        )

    @property
    def end_s(self) -> float:
        return max(self.processor_s, self.channel_s)


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
        least, enough = 0, sum(self._bytes) + max(op.extra_bytes for op in self._ops)
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
        return sum(size for bit, size in enumerate(self._bytes) if ram >> bit & 1)

    def _left_j(self, done: int) -> float:
        """Energy that every completion needs: A* search expands fewer states with it."""
        return sum(op.energy_j for number, op in enumerate(self._ops) if not done >> number & 1)

    # --- the search -----------------------------------------------------------------------------

    def _search(self, objective: Literal["energy", "time", "any"], ram_bytes: int) -> float | None:
        """Least energy or time; for ``any``, zero if a schedule exists at all."""
        if self._held(self._start.ram) > ram_bytes:
            return None
        timed = objective == "time" or self._deadline_s is not None
        everything = (1 << len(self._ops)) - 1
        count, labels = itertools.count(), itertools.count()
        zeros = (0.0,) * len(self._bytes)
        queue = [(0.0, next(count), 0.0, self._start, _Clocks(0.0, 0.0, zeros, zeros))]
        reached: dict[_State, list[_Clocks]] = {}
        while queue:
            if next(labels) > self._most_labels:
                raise TooLarge
            _, _, energy_j, state, clocks = heapq.heappop(queue)
            earlier = reached.setdefault(state, [])
            if any(one.no_later_than(clocks) for one in earlier):
                continue
            earlier.append(clocks)
            if (
                state.done == everything
                and not self._must_hold & ~state.ram
                and not self._must_store & ~state.stored
            ):
                return {"energy": energy_j, "time": clocks.end_s, "any": 0.0}[objective]
            for following, cost_j, after in self._moves(state, clocks, ram_bytes):
                if timed:
                    if self._deadline_s is not None and after.end_s > self._deadline_s * (
                        1 + _ROUNDING
                    ):
                        continue
                else:
                    after = clocks
                total_j = energy_j + cost_j
                left_j = self._left_j(following.done)
                first = {"energy": total_j + left_j, "time": after.end_s, "any": 0.0}[objective]
                heapq.heappush(queue, (first, next(count), total_j, following, after))
        return None

    def _moves(
        self, state: _State, clocks: _Clocks, ram_bytes: int
    ) -> Iterator[tuple[_State, float, _Clocks]]:
        """Every action that can follow, with its energy and the clocks after it."""
        held = self._held(state.ram)
        for bit, size in enumerate(self._bytes):
            flag = 1 << bit
            if state.ram & flag:
                yield state._replace(ram=state.ram & ~flag), 0.0, _awaited(clocks, flag)
                cost = self._page_out[bit]
                allowed = self._paging or self._must_store & flag
                if cost and allowed and not state.stored & flag:
                    stored = state._replace(stored=state.stored | flag)
                    yield stored, cost["energy_j"], self._moved(clocks, bit, cost, out=True)
            elif state.stored & flag:
                cost = self._page_in[bit]
                allowed = self._paging or self._at_home[bit]
                if cost and allowed and held + size <= ram_bytes:
                    present = state._replace(ram=state.ram | flag)
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
            ready = _awaited(clocks, op.reads, op.consumed)
            after = ready._replace(processor_s=ready.processor_s + op.time_s)
            yield following, op.energy_j, after

    def _moved(self, clocks: _Clocks, bit: int, cost: Mapping[str, float], *, out: bool) -> _Clocks:
        """The clocks after a transfer of one tensor was started, or made."""
        if self._instantaneous:
            return clocks
        if out:
            clocks = _awaited(clocks, 1 << bit, 0)
        end_s = clocks.end_s + cost["time_s"]
        if not self._beside_ops:
            return clocks._replace(processor_s=end_s, channel_s=end_s)
        if out:
            return clocks._replace(channel_s=end_s, going_s=_put(clocks.going_s, bit, end_s))
        return clocks._replace(channel_s=end_s, coming_s=_put(clocks.coming_s, bit, end_s))


def _awaited(clocks: _Clocks, coming: int, going: int | None = None) -> _Clocks:
    """The clocks once transfers into RAM of the tensors in ``coming``, and those out of RAM of the
    tensors in ``going`` (the same ones by default), have ended."""
    going = coming if going is None else going
    now_s, coming_s, going_s = clocks.processor_s, clocks.coming_s, clocks.going_s
    for bit in range(len(coming_s)):
        if coming >> bit & 1 and coming_s[bit]:
            now_s, coming_s = max(now_s, coming_s[bit]), _put(coming_s, bit, 0.0)
        if going >> bit & 1 and going_s[bit]:
            now_s, going_s = max(now_s, going_s[bit]), _put(going_s, bit, 0.0)
    return clocks._replace(processor_s=now_s, coming_s=coming_s, going_s=going_s)


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
