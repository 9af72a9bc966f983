"""The referee of addresses: replays a schedule over one arena and checks for overlaps.

It shares no code with the planner of addresses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.options import Coverage
from solver.problem.footprint import uncounted_tensors
from solver.problem.graph import CostedGraph, Op
from solver.problem.schedule import Action, Compute, Free, PageIn
from solver.referee.referee import RefereeError, replay


def verify_addresses(
    graph: CostedGraph,
    actions: Sequence[Action],
    resident_address: Mapping[str, int],
    arena_bytes: int,
    covers: Coverage = "all",
) -> None:
    """Check the addresses of a schedule in one arena.

    Args:
        graph: The costed graph.
        actions: The actions, with addresses.
        resident_address: Arena offset of each counted tensor in RAM when the step begins.
        arena_bytes: Size of the arena.
        covers: Tensors that count, and so have addresses.

    Raises:
        RefereeError: The schedule is invalid; an address is missing or superfluous; a tensor or a
            workspace leaves the arena or overlaps another; or a tensor written in place has another
            address than the tensor that it replaces.
    """
    replay(graph, actions, covers)
    arena = _Arena(graph, arena_bytes, covers)
    arena.begin(resident_address)
    for index, action in enumerate(actions):
        match action:
            case Compute():
                arena.compute(index, action)
            case PageIn():
                arena.page_in(index, action)
            case Free():
                arena.leave(action.tensor)


@dataclass(frozen=True)
class _Place:
    low: int
    high: int


class _Arena:
    def __init__(self, graph: CostedGraph, arena_bytes: int, covers: Coverage) -> None:
        self._graph = graph
        self._arena_bytes = arena_bytes
        self._ops = {op.name: op for op in graph.ops}
        uncounted = uncounted_tensors(graph, covers)
        self._bytes = {t.name: 0 if t.name in uncounted else t.bytes for t in graph.tensors}
        self._taken: dict[str, _Place] = {}
        # The same places, ascending. Only a tensor and the one that it overwrites share bytes, from
        # the same address on, so that no place ends after the one that follows it begins.
        self._in_order: list[tuple[int, int, str]] = []

    def begin(self, addresses: Mapping[str, int]) -> None:
        resident = [
            tensor.name
            for tensor in self._graph.tensors
            if tensor.name not in self._graph.producer and tensor.home != "storage"
        ]
        self._check_names(0, resident, addresses)
        for name, address in addresses.items():
            self._take(0, name, address, self._bytes[name])

    def compute(self, index: int, action: Compute) -> None:
        op = self._ops[action.op]
        addresses = action.address or {}
        self._check_names(index, op.writes, addresses)
        for name, address in addresses.items():
            overwritten = self._overwritten(op, name)
            if overwritten is not None and self._taken[overwritten].low != address:
                raise RefereeError(
                    index,
                    f"op {op.name!r} writes {name!r} at {address}, in place of {overwritten!r},"
                    f" which is at {self._taken[overwritten].low}",
                )
            self._take(index, name, address, self._bytes[name], beside=overwritten)
        self._workspace(index, op, action.workspace_address)
        for name in op.in_place.values():
            self.leave(name)

    def page_in(self, index: int, action: PageIn) -> None:
        addresses = {} if action.address is None else {action.tensor: action.address}
        self._check_names(index, [action.tensor], addresses)
        for name, address in addresses.items():
            self._take(index, name, address, self._bytes[name])

    def _workspace(self, index: int, op: Op, address: int | None) -> None:
        if (address is None) != (op.workspace_bytes == 0):
            found = "no address" if address is None else f"the address {address}"
            raise RefereeError(
                index, f"{op.workspace_bytes} bytes of workspace of op {op.name!r} have {found}"
            )
        if address is not None:
            workspace = f"the workspace of op {op.name}"
            self._take(index, workspace, address, op.workspace_bytes)
            self.leave(workspace)

    def _overwritten(self, op: Op, written: str) -> str | None:
        """The counted tensor that ``written`` replaces in place, if any."""
        read = op.in_place.get(written)
        return read if read is not None and self._bytes[read] else None

    def _check_names(self, index: int, names: Sequence[str], addresses: Mapping[str, int]) -> None:
        counted = {name for name in names if self._bytes[name]}
        for name in sorted(counted - set(addresses)):
            raise RefereeError(index, f"{name!r} has no address")
        for name in sorted(set(addresses) - counted):
            raise RefereeError(index, f"{name!r} has an address but needs none here")

    def _take(
        self, index: int, name: str, address: int, size_bytes: int, beside: str | None = None
    ) -> None:
        """Occupy bytes of the arena, which may overlap those of ``beside`` only."""
        place = _Place(address, address + size_bytes)
        if place.low < 0 or place.high > self._arena_bytes:
            raise RefereeError(
                index,
                f"{name!r} at {place.low} to {place.high} leaves the arena of"
                f" {self._arena_bytes} bytes",
            )
        for low, high, other in self._overlapping(place):
            if other != beside:
                raise RefereeError(
                    index,
                    f"{name!r} at {place.low} to {place.high} overlaps {other!r} at"
                    f" {low} to {high}",
                )
        self.leave(name)
        self._taken[name] = place
        insort(self._in_order, (place.low, place.high, name))

    def _overlapping(self, place: _Place) -> Iterator[tuple[int, int, str]]:
        after = bisect_left(self._in_order, (place.low, place.low, ""))
        if after and self._in_order[after - 1][1] > place.low:
            yield self._in_order[after - 1]
        while after < len(self._in_order) and self._in_order[after][0] < place.high:
            yield self._in_order[after]
            after += 1

    def leave(self, name: str) -> None:
        """Make the bytes of a tensor free; no effect on one without an address."""
        place = self._taken.pop(name, None)
        if place is not None:
            position = bisect_left(self._in_order, (place.low, place.high, name))
            del self._in_order[position]
