"""The referee: replays any schedule under the semantics of ``schedule/2``.

It recomputes energy, time and peak RAM, and shares no code with the formulations. Every schedule
that leaves the solver has passed the referee.

Time is that of a processor and of one channel to storage. A synchronous transfer occupies both. An
asynchronous transfer occupies the channel, and the processor for the graph's ``handover_s`` and
``processor_share`` of its time, but no longer than it takes; an action that depends on it waits for
its end. Whether a schedule is valid, and how much RAM it takes, does not depend on durations. Costs
are those of ops and transfers in isolation: the slowdown of one by the other, since both use the
memory bus, is not included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from devices.errors import Defect
from solver.options import Coverage
from solver.problem.footprint import uncounted_tensors
from solver.problem.graph import CostedGraph, Op, PageCost, Tensor
from solver.problem.kept import kept
from solver.problem.schedule import Action, Budget, Compute, Free, PageIn, PageOut
from solver.referee.clock import Clock

# Share of a sum of times by which it may differ when it is added up in another order.
_ROUNDING = 1e-12
# Most replays kept: a solve asks for that of the same schedule several times.
_MOST_KEPT = 4


class RefereeError(Defect):
    """A schedule violates the semantics or its budget.

    ``action`` is the index of the action at fault, or the number of actions if the fault shows at
    the end.
    """

    def __init__(self, action: int, reason: str) -> None:
        super().__init__(f"action {action}: {reason}")
        self.action = action
        self.reason = reason

    def __reduce__(self) -> tuple[type[RefereeError], tuple[int, str]]:
        """Make the error picklable, for the processes of a sweep."""
        return type(self), (self.action, self.reason)


class Late(RefereeError):
    """An otherwise valid schedule ends after its deadline."""


@dataclass(frozen=True)
class Moment:
    """One action as replayed.

    Attributes:
        action: The action.
        start_s: Its start, from the beginning of the step.
        time_s: How long it occupies the processor; of an asynchronous transfer the processor's
            share.
        energy_j: Its energy.
        bytes_during: Bytes in RAM during it, workspace included.
        bytes_after: Bytes in RAM after it.
        recomputation: Whether it computes an op again.
        waited_s: How long the processor waited for transfers before ``start_s``.
        transfer_start_s: Start of the transfer of a page-in or page-out.
        transfer_end_s: End of that transfer, which may be during later actions.
    """

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
    def is_beside_ops(self) -> bool:
        """Whether this is a transfer that runs beside ops."""
        return isinstance(self.action, PageIn | PageOut) and self.action.asynchronous

    @property
    def transfer_s(self) -> float:
        """Seconds that the channel was busy for this action."""
        if self.transfer_start_s is None or self.transfer_end_s is None:
            return 0.0
        return self.transfer_end_s - self.transfer_start_s


@dataclass(frozen=True)
class Replay:
    """A whole schedule as replayed.

    ``time_s`` is when both processor and channel have ended. ``energy_j`` is the sum of all costs.
    Costs include the board's idle power, so where a transfer overlaps with computing, the sum
    counts the idle share twice and is an overestimate. ``peak_action`` is the first action that
    reaches ``peak_bytes``. ``bytes_written_to_storage`` are those of the tensors, without what
    fills pages and without the second copy of rows of tables.
    """

    moments: tuple[Moment, ...]
    energy_j: float
    time_s: float
    peak_bytes: int
    peak_action: int
    bytes_written_to_storage: int

    @property
    def hidden_s(self) -> float:
        """Seconds of transfers hidden by computing, which do not lengthen the step."""
        busy_s = math.fsum(
            m.transfer_s + (m.time_s if isinstance(m.action, Compute) else 0.0)
            for m in self.moments
        )
        hidden_s = busy_s - self.time_s
        return hidden_s if hidden_s > _ROUNDING * busy_s else 0.0

    def time_due_s(self, budget: Budget) -> float:
        """Seconds that count against the deadline of ``budget``.

        With instantaneous paging only computing counts.
        """
        if not budget.instantaneous_paging:
            return self.time_s
        return math.fsum(m.time_s for m in self.moments if isinstance(m.action, Compute))


def replay(graph: CostedGraph, actions: Sequence[Action], covers: Coverage = "all") -> Replay:
    """Replay a schedule and recompute its energy, time and peak RAM.

    Args:
        graph: The costed graph.
        actions: The actions of one training step, ``free`` actions included.
        covers: Tensors that count as RAM.

    Returns:
        The replay, one :class:`Moment` for each action. A call with the same graph object and the
        same tuple as one of the last few gets that replay: nothing can change either of them.

    Raises:
        RefereeError: An action violates the semantics of ``schedule/2``.
    """
    if isinstance(actions, tuple):
        return _kept_replay(graph, actions, covers)
    return _replay(graph, actions, covers)


def _replay(graph: CostedGraph, actions: Sequence[Action], covers: Coverage) -> Replay:
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


_kept_replay = kept(_MOST_KEPT)(_replay)


def verify(graph: CostedGraph, actions: Sequence[Action], budget: Budget) -> Replay:
    """Replay a schedule and check it against a budget.

    Args:
        graph: The costed graph.
        actions: The actions of one training step, ``free`` actions included.
        budget: RAM, deadline, and whether paging and rematerialization are allowed.

    Returns:
        The replay.

    Raises:
        RefereeError: The schedule is invalid or violates the budget (:class:`Late` if only the
            deadline is missed).
    """
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
    """Whether an action pages a tensor whose home or required end is not storage."""
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
        # Tensors in RAM, each with the index of the action that last wrote, read or paged it out.
        self.ram = {tensor.name: -1 for tensor in sources if tensor.home != "storage"}
        # Tensors in RAM of which an asynchronous page-out has begun.
        self._leaving: set[str] = set()
        self._storage = {tensor.name for tensor in sources if tensor.home == "storage"}
        self.resident_bytes = sum(self._counted_bytes[name] for name in self.ram)
        self._done: set[str] = set()
        self._last_action = -1
        self.clock = Clock(0.0, max, graph.processor_time_s)
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
                span = self.clock.compute(op, op.time_s)
            case PageOut():
                cost = self._page_out(index, action)
                energy_j = cost.energy_j
                span = self.clock.page_out(action, cost.time_s)
            case PageIn():
                cost = self._page_in(index, action)
                energy_j = cost.energy_j
                during = self.resident_bytes
                span = self.clock.page_in(action, cost.time_s)
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
                raise RefereeError(end, f"{tensor.name!r} must persist in RAM but is not there")
            if tensor.persist == "storage" and tensor.name not in self._storage:
                raise RefereeError(
                    end, f"{tensor.name!r} must persist in storage but has no valid copy there"
                )
        for name in self.ram:
            if self._graph.tensor[name].persist != "ram":
                raise RefereeError(end, f"{name!r} is still in RAM though nothing needs it")

    def _compute(self, index: int, op: Op) -> int:
        if op.name in self._done and not op.recomputable:
            raise RefereeError(index, f"op {op.name!r} is not recomputable but was computed before")
        for name in op.reads:
            self._require_in_ram(index, name, f"op {op.name!r} reads")
            self.ram[name] = index
        for name in op.writes:
            if name in self.ram:
                raise RefereeError(
                    index,
                    f"op {op.name!r} recomputes {name!r}, which is still in RAM though nothing"
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
        self.bytes_written += tensor.stored_bytes
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
        # A tensor that is being paged out asynchronously may be freed at any later action: the
        # clock makes a free that comes too early wait.
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
