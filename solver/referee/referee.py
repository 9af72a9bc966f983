"""The referee: replays any schedule under the semantics of ``schedule/2`` and recomputes its
energy, time and peak. It shares no code with the formulations; nothing leaves the solver without
passing here.

Time is that of a processor and of one channel to the storage. A synchronous transfer occupies both;
an asynchronous one the channel alone, and whoever needs its end waits for it. Whether a schedule is
valid, and what RAM it takes, does not depend on how long anything takes. Costs are those of ops and
transfers by themselves: that one slows the other (both use the memory bus) is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from devices.errors import Defect
from solver.options import Coverage
from solver.problem.footprint import uncounted_tensors
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut
from solver.referee.clock import Clock


class RefereeError(Defect):
    """A schedule that breaks the semantics or its budget; ``action`` is the index of the action at
    fault, or the number of actions where the fault shows at the end."""

    def __init__(self, action: int, reason: str) -> None:
        super().__init__(f"action {action}: {reason}")
        self.action = action
        self.reason = reason

    def __reduce__(self) -> tuple[type[RefereeError], tuple[int, str]]:
        """Comes whole from a process that solves a point of a sweep."""
        return type(self), (self.action, self.reason)


class Late(RefereeError):
    """Nothing is wrong with the schedule but that it ends after its deadline."""


@dataclass(frozen=True)
class Moment:
    """One action as replayed: when it started, how long it kept the processor, what it cost, and
    the bytes in RAM during it (workspace included) and after it. ``recomputation`` marks a compute
    action whose op was done before. Before ``start_s`` the processor waited ``waited_s`` for
    transfers. ``transfer_start_s`` and ``transfer_end_s`` say when the bytes of a page-in or
    page-out move, which for an asynchronous one is beside the actions that follow; its own
    ``time_s`` is 0."""

    action: Action
    start_s: float
    time_s: float
    energy_j: float
    bytes_during: int
    bytes_after: int
    recomputation: bool = False
    waited_s: float = 0.0
    transfer_start_s: float | None = None
    transfer_end_s: float | None = None

    @property
    def transfer_s(self) -> float:
        """Seconds that the channel was busy for this action."""
        if self.transfer_start_s is None or self.transfer_end_s is None:
            return 0.0
        return self.transfer_end_s - self.transfer_start_s


@dataclass(frozen=True)
class Replay:
    """The whole schedule as replayed; ``peak_action`` is the first action that reaches the peak.

    ``time_s`` is when processor and channel have both ended. ``energy_j`` is the sum of all costs.
    These are gross, what the board draws idle included, so that where a transfer overlaps with
    computing the sum counts that share twice: it is if anything an overestimate.
    """

    moments: tuple[Moment, ...]
    energy_j: float
    time_s: float
    peak_bytes: int
    peak_action: int
    bytes_written_to_storage: int

    @property
    def hidden_s(self) -> float:
        """Seconds of transfers that took no time of the step: the processor computed meanwhile."""
        busy_s = math.fsum(
            m.transfer_s + (m.time_s if isinstance(m.action, Compute) else 0.0)
            for m in self.moments
        )
        return max(0.0, busy_s - self.time_s)

    def time_due_s(self, budget: Budget) -> float:
        """What counts against the deadline of ``budget``: with instantaneous paging, computing
        alone."""
        if not budget.instantaneous_paging:
            return self.time_s
        return math.fsum(m.time_s for m in self.moments if isinstance(m.action, Compute))


def replay(graph: CostedGraph, actions: Sequence[Action], covers: Coverage = "all") -> Replay:
    """Raises :class:`RefereeError` at the first action that breaks the semantics."""
    board = _Board(graph, covers)
    moments = [board.execute(index, action) for index, action in enumerate(actions)]
    board.finish(len(actions))
    peak_action = max(range(len(moments)), key=lambda i: moments[i].bytes_during)
    return Replay(
        moments=tuple(moments),
        energy_j=math.fsum(moment.energy_j for moment in moments),
        time_s=board.clock.end_s,
        peak_bytes=moments[peak_action].bytes_during,
        peak_action=peak_action,
        bytes_written_to_storage=board.bytes_written,
    )


def verify(graph: CostedGraph, actions: Sequence[Action], budget: Budget) -> Replay:
    """Replay and hold against the budget. Raises :class:`RefereeError`."""
    result = replay(graph, actions, budget.covers)
    if result.peak_bytes > budget.ram_bytes:
        raise RefereeError(
            result.peak_action,
            f"{result.peak_bytes} bytes in RAM, the budget is {budget.ram_bytes}",
        )
    for index, action in enumerate(actions):
        if not budget.paging and _pages_by_choice(graph, action):
            raise RefereeError(index, "pages, which this budget excludes")
        if not budget.rematerialization and result.moments[index].recomputation:
            raise RefereeError(index, "recomputes, which this budget excludes")
    # A sum of thousands of doubles may differ in its last digits from the solver's.
    due_s = result.time_due_s(budget)
    if budget.deadline_s is not None and due_s > budget.deadline_s * (1 + 1e-9):
        raise Late(len(actions), f"takes {due_s:.9g} s, the deadline is {budget.deadline_s:.9g} s")
    return result


def _pages_by_choice(graph: CostedGraph, action: Action) -> bool:
    """Unlike bringing what lives in storage, and putting there what must persist there."""
    match action:
        case PageIn():
            return graph.tensor[action.tensor].home != "storage"
        case PageOut():
            return graph.tensor[action.tensor].persist != "storage"
    return False


class _Board:
    """RAM and storage while a schedule runs."""

    def __init__(self, graph: CostedGraph, covers: Coverage) -> None:
        self._graph = graph
        self._ops = {op.name: op for op in graph.ops}
        uncounted = uncounted_tensors(graph, covers)
        self._counted_bytes = {
            tensor.name: 0 if tensor.name in uncounted else tensor.bytes for tensor in graph.tensors
        }
        sources = [tensor for tensor in graph.tensors if tensor.name not in graph.producer]
        # Tensors in RAM, each with the action that last made, read or paged it out.
        self.ram = {tensor.name: -1 for tensor in sources if tensor.home != "storage"}
        # Those of which an asynchronous page-out has begun since they came.
        self._leaving: set[str] = set()
        self._storage = {tensor.name for tensor in sources if tensor.home == "storage"}
        self.resident_bytes = sum(self._counted_bytes[name] for name in self.ram)
        self._done: set[str] = set()
        self._last_action = -1
        self.clock = Clock()
        self.bytes_written = 0

    def execute(self, index: int, action: Action) -> Moment:
        recomputation = False
        during = self.resident_bytes
        energy_j = 0.0
        match action:
            case Compute():
                op = self._op(index, action.op)
                recomputation = op.name in self._done
                during = self._compute(index, op)
                energy_j = op.energy_j
                span = self.clock.compute(op)
            case PageOut():
                cost = self._page_out(index, action)
                energy_j = cost.energy_j
                span = self.clock.page_out(action, cost)
            case PageIn():
                cost = self._page_in(index, action)
                energy_j = cost.energy_j
                during = self.resident_bytes
                span = self.clock.page_in(action, cost)
            case Free():
                self._free(index, action.tensor)
                span = self.clock.free(action.tensor)
        if not isinstance(action, Free):
            self._last_action = index
        return Moment(
            action,
            span.start_s,
            span.time_s,
            energy_j,
            during,
            self.resident_bytes,
            recomputation,
            span.waited_s,
            span.transfer_start_s,
            span.transfer_end_s,
        )

    def finish(self, end: int) -> None:
        for op in self._graph.ops:
            if op.name not in self._done:
                raise RefereeError(end, f"op {op.name!r} is never computed")
        for tensor in self._graph.tensors:
            if tensor.persist == "ram" and tensor.name not in self.ram:
                raise RefereeError(end, f"{tensor.name!r} must persist in RAM and is not there")
            if tensor.persist == "storage" and tensor.name not in self._storage:
                raise RefereeError(
                    end, f"{tensor.name!r} must persist in storage and has no valid copy there"
                )
        for name in self.ram:
            if self._graph.tensor[name].persist != "ram":
                raise RefereeError(end, f"{name!r} is still in RAM though nothing needs it")

    def _compute(self, index: int, op: Op) -> int:
        if op.name in self._done and not op.recomputable:
            raise RefereeError(index, f"op {op.name!r} is not recomputable and was done before")
        for name in op.reads:
            self._require_in_ram(index, name, f"op {op.name!r} reads")
            self.ram[name] = index
        for name in op.writes:
            if name in self.ram:
                raise RefereeError(
                    index,
                    f"op {op.name!r} makes {name!r} again, which is still in RAM though nothing"
                    f" needed it after action {self.ram[name]}",
                )
            self._hold(index, name)
        during = self.resident_bytes + op.workspace_bytes
        for written, read in op.in_place.items():
            during -= min(self._counted_bytes[written], self._counted_bytes[read])
            self._drop(read)
        self._done.add(op.name)
        return during

    def _page_out(self, index: int, action: PageOut) -> PageCost:
        name = action.tensor
        self._require_in_ram(index, name, "pages out")
        self._require_dma(index, action)
        tensor = self._graph.tensor[name]
        if tensor.page_out is None:
            raise RefereeError(index, f"pages out {name!r}, which has no page-out cost")
        self.ram[name] = index
        self._storage.add(name)
        if action.asynchronous:
            self._leaving.add(name)
        self.bytes_written += tensor.bytes
        return tensor.page_out

    def _page_in(self, index: int, action: PageIn) -> PageCost:
        name = action.tensor
        tensor = self._tensor(index, name)
        self._require_dma(index, action)
        if name in self.ram:
            raise RefereeError(index, f"pages in {name!r}, which is in RAM")
        if name not in self._storage:
            raise RefereeError(index, f"pages in {name!r}, of which storage has no valid copy")
        if tensor.page_in is None:
            raise RefereeError(index, f"pages in {name!r}, which has no page-in cost")
        self._hold(index, name)
        return tensor.page_in

    def _free(self, index: int, name: str) -> None:
        self._require_in_ram(index, name, "frees")
        # How long an asynchronous page-out needs the tensor is for the clock to know: its free may
        # stand anywhere, and waits where it stands too early.
        if self.ram[name] != self._last_action and name not in self._leaving:
            raise RefereeError(
                index,
                f"frees {name!r} late: nothing needed it after action {self.ram[name]},"
                f" and action {self._last_action} ran with it in RAM",
            )
        self._drop(name)

    def _hold(self, index: int, name: str) -> None:
        self.resident_bytes += self._counted_bytes[name]
        self.ram[name] = index

    def _drop(self, name: str) -> None:
        del self.ram[name]
        self._leaving.discard(name)
        self.resident_bytes -= self._counted_bytes[name]

    def _op(self, index: int, name: str) -> Op:
        if name not in self._ops:
            raise RefereeError(index, f"computes {name!r}, an op that the graph does not have")
        return self._ops[name]

    def _tensor(self, index: int, name: str) -> Tensor:
        if name not in self._graph.tensor:
            raise RefereeError(index, f"names {name!r}, a tensor that the graph does not have")
        return self._graph.tensor[name]

    def _require_in_ram(self, index: int, name: str, what: str) -> None:
        self._tensor(index, name)
        if name not in self.ram:
            raise RefereeError(index, f"{what} {name!r}, which is not in RAM")

    def _require_dma(self, index: int, action: PageIn | PageOut) -> None:
        if action.asynchronous and not self._graph.asynchronous_transfers:
            raise RefereeError(
                index,
                f"moves {action.tensor!r} asynchronously, which storage without DMA cannot",
            )
