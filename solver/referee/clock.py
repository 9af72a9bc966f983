"""The referee's clock: times of the processor and of the channel to storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from solver.problem.graph import Op, PageCost
from solver.problem.schedule import PageIn, PageOut


@dataclass(frozen=True)
class TimeSpan:
    """Times of an action on the processor, and of its transfer on the channel."""

    start_s: float
    time_s: float
    waited_s: float
    transfer_start_s: float | None = None
    transfer_end_s: float | None = None


class Clock:
    """Time of the processor and of the channel.

    The channel moves one tensor at a time, in the order of the actions.
    """

    def __init__(self) -> None:
        self._processor_s = 0.0
        self._channel_s = 0.0
        # Ends of the last page-ins and page-outs of tensors that have bytes in RAM.
        self._coming: dict[str, float] = {}
        self._going: dict[str, float] = {}

    @property
    def end_s(self) -> float:
        return max(self._processor_s, self._channel_s)

    def compute(self, op: Op) -> TimeSpan:
        overwritten = op.in_place.values()
        start_s, waited_s = self._wait(
            [self._coming.pop(name, 0.0) for name in op.reads]
            + [self._going.pop(name, 0.0) for name in overwritten]
        )
        self._processor_s += op.time_s
        return TimeSpan(start_s, op.time_s, waited_s)

    def page_out(self, action: PageOut, cost: PageCost) -> TimeSpan:
        start_s, waited_s = self._wait([self._coming.pop(action.tensor, 0.0)])
        if not action.asynchronous:
            return self._transfer(cost, waited_s)
        begin_s = self._enqueue(cost)
        self._going[action.tensor] = self._channel_s
        return TimeSpan(start_s, 0.0, waited_s, begin_s, self._channel_s)

    def page_in(self, action: PageIn, cost: PageCost) -> TimeSpan:
        # No wait for a page-out of the same tensor: the channel keeps the order of transfers.
        if not action.asynchronous:
            return self._transfer(cost, 0.0)
        begin_s = self._enqueue(cost)
        self._coming[action.tensor] = self._channel_s
        return TimeSpan(self._processor_s, 0.0, 0.0, begin_s, self._channel_s)

    def free(self, name: str) -> TimeSpan:
        start_s, waited_s = self._wait([self._coming.pop(name, 0.0), self._going.pop(name, 0.0)])
        return TimeSpan(start_s, 0.0, waited_s)

    def _wait(self, ends_s: Iterable[float]) -> tuple[float, float]:
        """Wait until all of ``ends_s``; return the time then and the seconds waited."""
        start_s = max(self._processor_s, *ends_s, 0.0)
        waited_s = start_s - self._processor_s
        self._processor_s = start_s
        return start_s, waited_s

    def _enqueue(self, cost: PageCost) -> float:
        begin_s = max(self._processor_s, self._channel_s)
        self._channel_s = begin_s + cost.time_s
        return begin_s

    def _transfer(self, cost: PageCost, waited_s: float) -> TimeSpan:
        """Make a synchronous transfer, which occupies the processor once the channel is free."""
        start_s, queued_s = self._wait([self._channel_s])
        self._channel_s = self._processor_s = start_s + cost.time_s
        return TimeSpan(start_s, cost.time_s, waited_s + queued_s, start_s, self._channel_s)
