"""The referee's clock: times of the processor and of the channel to storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from solver.problem.graph import Op
from solver.problem.schedule import PageIn, PageOut

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A time, or times at several costs at once.
Seconds = TypeVar("Seconds", float, "NDArray[np.float64]")


@dataclass(frozen=True)
class TimeSpan(Generic[Seconds]):
    """Times of an action on the processor, and of its transfer on the channel."""

    start_s: Seconds
    time_s: Seconds
    waited_s: Seconds
    transfer_start_s: Seconds | None = None
    transfer_end_s: Seconds | None = None


class Clock(Generic[Seconds]):
    """Time of the processor and of the channel.

    The channel moves one tensor at a time, in the order of the actions. ``zero`` is the time at
    which the step begins; ``latest`` returns the latest of several times. ``working`` returns the
    processor's time for a transfer beside ops that takes so long; it begins when the transfer is
    handed over.
    """

    def __init__(
        self,
        zero: Seconds,
        latest: Callable[[Sequence[Seconds]], Seconds],
        working: Callable[[Seconds], Seconds],
    ) -> None:
        self._zero: Seconds = zero
        self._processor_s: Seconds = zero
        self._channel_s: Seconds = zero
        self._working: Callable[[Seconds], Seconds] = working
        self._latest: Callable[[Sequence[Seconds]], Seconds] = latest
        # Ends of the last page-ins and page-outs of tensors that have bytes in RAM.
        self._coming: dict[str, Seconds] = {}
        self._going: dict[str, Seconds] = {}

    @property
    def end_s(self) -> Seconds:
        return self._latest((self._processor_s, self._channel_s))

    def compute(self, op: Op, time_s: Seconds) -> TimeSpan[Seconds]:
        start_s, waited_s = self._wait(coming=op.reads, going=op.in_place.values())
        self._processor_s = start_s + time_s
        return TimeSpan(start_s, time_s, waited_s)

    def page_out(self, action: PageOut, time_s: Seconds) -> TimeSpan[Seconds]:
        start_s, waited_s = self._wait(coming=(action.tensor,))
        if not action.asynchronous:
            return self._transfer(time_s, waited_s)
        begin_s, worked_s = self._hand_over(time_s)
        self._going[action.tensor] = self._channel_s
        return TimeSpan(start_s, worked_s, waited_s, begin_s, self._channel_s)

    def page_in(self, action: PageIn, time_s: Seconds) -> TimeSpan[Seconds]:
        # No wait for a page-out of the same tensor: the channel keeps the order of transfers.
        if not action.asynchronous:
            return self._transfer(time_s, self._zero)
        start_s = self._processor_s
        begin_s, worked_s = self._hand_over(time_s)
        self._coming[action.tensor] = self._channel_s
        return TimeSpan(start_s, worked_s, self._zero, begin_s, self._channel_s)

    def free(self, name: str) -> TimeSpan[Seconds]:
        start_s, waited_s = self._wait(coming=(name,), going=(name,))
        return TimeSpan(start_s, self._zero, waited_s)

    def _wait(
        self, coming: Iterable[str] = (), going: Iterable[str] = ()
    ) -> tuple[Seconds, Seconds]:
        """Wait for transfers of tensors; return the time then and the seconds waited."""
        ends_s = [self._processor_s]
        ends_s += [self._coming.pop(name) for name in coming if name in self._coming]
        ends_s += [self._going.pop(name) for name in going if name in self._going]
        return self._wait_until(self._latest(ends_s))

    def _wait_until(self, start_s: Seconds) -> tuple[Seconds, Seconds]:
        waited_s = start_s - self._processor_s
        self._processor_s = start_s
        return start_s, waited_s

    def _hand_over(self, time_s: Seconds) -> tuple[Seconds, Seconds]:
        """Give a transfer to the channel; return its start, and the processor's time for it."""
        begin_s = self.end_s
        self._channel_s = begin_s + time_s
        worked_s = self._working(time_s)
        self._processor_s = self._processor_s + worked_s
        return begin_s, worked_s

    def _transfer(self, time_s: Seconds, waited_s: Seconds) -> TimeSpan[Seconds]:
        """Make a synchronous transfer, which occupies the processor once the channel is free."""
        start_s, queued_s = self._wait_until(self.end_s)
        self._channel_s = self._processor_s = start_s + time_s
        return TimeSpan(start_s, time_s, waited_s + queued_s, start_s, self._channel_s)
