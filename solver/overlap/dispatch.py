"""List scheduling of transfers beside compute actions of fixed order.

For each gap, the channel gets transfers until the next gap: of those that can begin, the one that
is due first (Schrage's rule for one machine with release and due dates, 1971). A page-in can begin
when RAM has room for it until it is needed. A tensor that is paged out leaves RAM when its transfer
has ended, or when its bytes are needed, in which case the processor waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from solver.overlap.stays import Stay, Stays, Transfer
from solver.problem.schedule import Action, Compute, Free
from solver.time_limit import check_time

# Number of actions examined to see when RAM is needed, and number of page-ins that may overtake one
# that waits for room.
_AHEAD = 64
_OVERTAKING = 4


@dataclass(frozen=True)
class Plan:
    """Parameters of a dispatch, by transfer.

    No transfer begins before its gap in ``not_before``. ``earlier`` is subtracted from the gap at
    which it is due. With ``overtaking`` a page-in may begin before one that is due earlier and
    waits for room.
    """

    not_before: tuple[int, ...]
    earlier: tuple[int, ...]
    overtaking: bool = False


@dataclass(frozen=True)
class Dispatched:
    """Result of a dispatch.

    ``begun`` is the gap at which each transfer was given to the channel. ``waits`` lists each wait
    of the processor: the gap, the transfer waited for, and the seconds.
    """

    actions: tuple[Action, ...]
    time_s: float
    begun: tuple[int, ...]
    waits: tuple[tuple[int, Transfer, float], ...]


class Dispatch:
    """One run of the list scheduling."""

    def __init__(self, stays: Stays, ram_bytes: int, plan: Plan) -> None:
        self._stays = stays
        self._ram_bytes = ram_bytes
        self._plan = plan
        self._profile = list(stays.profile)
        self._end = len(stays.computed)
        self._actions: list[Action] = []
        self._processor_s = self._channel_s = 0.0
        self._ends_s: dict[int, float] = {}  # ends of the transfers given to the channel
        self._begun = [self._end] * len(stays.transfers)
        self._waits: list[tuple[int, Transfer, float]] = []
        # Page-outs that can begin.
        self._outs = [out for stay in stays.there_after(-1) for out in stay.outs]
        self._held: list[Stay] = []  # stays that only their page-outs still need
        self._gone: set[Stay] = set()
        self._first_in = 0  # all page-ins before this one have begun

    def run(self) -> Dispatched:
        for gap in range(self._end + 1):
            check_time()
            self._free_what_ended(gap)
            self._make_room(gap)
            self._begin_what_is_due(gap)
            if gap < self._end:
                self._feed(gap)
                self._compute(gap)
        for stay in list(self._held):
            self._free(stay, self._end)
        time_s = max(self._processor_s, self._channel_s)
        last = max(self._stays.transfers, key=lambda transfer: self._ends_s[transfer.number])
        self._wait_for(last, self._end)
        return Dispatched(tuple(self._actions), time_s, tuple(self._begun), tuple(self._waits))

    # --- one gap ------------------------------------------------------------------------------

    def _free_what_ended(self, gap: int) -> None:
        self._held += self._stays.ending_at(gap)
        for stay in list(self._held):
            if self._has_ended(stay):
                self._free(stay, gap)

    def _has_ended(self, stay: Stay) -> bool:
        """Whether every page-out of a stay has ended by now."""
        return all(self._ends_s.get(o.number, math.inf) <= self._processor_s for o in stay.outs)

    def _make_room(self, gap: int) -> None:
        """Free RAM for the compute action of the gap, and old copies of tensors about to return."""
        for stay in self._stays.beginning_at(gap):
            before = stay.before
            if before is not None and before in self._held:
                self._free(before, gap)
        while self._held and self._profile[gap] + self._held_bytes() > self._ram_bytes:
            self._free(min(self._held, key=lambda stay: self._leaves(stay, gap)), gap)

    def _leaves(self, stay: Stay, gap: int) -> tuple[float, int]:
        """Sort key for freeing: earliest end of its page-outs; transfers not begun come last."""
        ends = max(self._ends_s.get(out.number, math.inf) for out in stay.outs)
        return ends, min(self._due(out, gap) for out in stay.outs)

    def _begin_what_is_due(self, gap: int) -> None:
        for stay in self._stays.beginning_at(gap):
            page_in = stay.page_in
            if page_in is not None and page_in.number not in self._ends_s:
                self._begin(page_in, gap)
            if page_in is not None and not stay.is_needed:
                self._free(stay, gap)
        for out in list(self._outs):
            stay = out.stay
            if gap == self._end or (stay.overwritten and stay.last == gap):
                self._begin_here(out, gap)

    def _feed(self, gap: int) -> None:
        """Give the channel transfers until the compute action of the gap ends."""
        needed = [self._ends_s[transfer.number] for transfer in self._stays.needed_by(gap)]
        op_s = self._stays.computed[gap].time_s
        while self._channel_s < max(self._processor_s, *needed, 0.0) + op_s:
            candidates = [*self._outs_that_can_begin(gap), *self._ins_that_can_begin(gap)]
            if not candidates:
                return
            self._begin_here(min(candidates, key=lambda each: self._urgency(each, gap)), gap)

    def _compute(self, gap: int) -> None:
        op = self._stays.computed[gap]
        for transfer in self._stays.needed_by(gap):
            self._wait_for(transfer, gap)
        self._actions.append(Compute(op=op.name))
        self._processor_s += op.time_s
        self._outs += [out for stay in self._stays.there_after(gap) for out in stay.outs]

    # --- transfers that can begin, and their due dates ----------------------------------------

    def _urgency(self, transfer: Transfer, gap: int) -> tuple[int, bool, int]:
        due = self._due(transfer, gap) - self._plan.earlier[transfer.number]
        return due, not transfer.is_out, transfer.number

    def _due(self, transfer: Transfer, gap: int) -> int:
        """Gap by which a transfer should have ended."""
        stay = transfer.stay
        if not transfer.is_out:
            return stay.first
        if stay.overwritten or stay.persists:
            return stay.last
        again = self._stays.next_of(stay)
        latest = min(self._end if again is None else again.first, gap + _AHEAD)
        room = self._ram_bytes - stay.size
        for ahead in range(max(gap, stay.last + 1), latest):
            if self._profile[ahead] > room:
                return ahead
        return latest

    def _outs_that_can_begin(self, gap: int) -> Iterator[Transfer]:
        for out in self._outs:
            page_in = out.stay.page_in
            there = page_in is None or self._ends_s[page_in.number] <= self._processor_s
            if there and gap >= self._plan.not_before[out.number]:
                yield out

    def _ins_that_can_begin(self, gap: int) -> Iterator[Transfer]:
        ins = self._stays.page_ins
        while self._first_in < len(ins) and ins[self._first_in].number in self._ends_s:
            self._first_in += 1
        blocked = 0
        for page_in in ins[self._first_in : self._first_in + _AHEAD]:
            if page_in.number in self._ends_s or not page_in.stay.is_needed:
                continue
            if self._gains_nothing(page_in):  # it begins when it is needed
                continue
            if not self._is_in_storage(page_in):
                continue
            if gap < self._plan.not_before[page_in.number]:
                continue
            if self._has_room(page_in.stay, gap):
                yield page_in
                return
            blocked += 1
            if blocked > (_OVERTAKING if self._plan.overtaking else 0):
                return

    def _is_in_storage(self, page_in: Transfer) -> bool:
        """Whether the tensor is stored or being written, and absent from RAM."""
        source, before = page_in.source, page_in.stay.before
        return (source is None or source.number in self._ends_s) and (
            before is None or before in self._gone
        )

    def _has_room(self, stay: Stay, gap: int) -> bool:
        room = self._ram_bytes - stay.size
        return self._profile[gap] + self._held_bytes() <= room and all(
            self._profile[ahead] <= room for ahead in range(gap + 1, stay.first)
        )

    # --- actions --------------------------------------------------------------------------------

    def _begin_here(self, transfer: Transfer, gap: int) -> None:
        """Begin a transfer for its own sake.

        Only a page-out beside ops may keep its tensor in RAM until a later action.
        """
        stay = transfer.stay
        is_alone = self._begin(transfer, gap)
        if is_alone and transfer.is_out and stay in self._held and self._has_ended(stay):
            self._free(stay, gap)

    def _begin(self, transfer: Transfer, gap: int) -> bool:
        """Begin a transfer, and return whether it runs alone."""
        stay = transfer.stay
        if transfer.is_out:
            self._outs.remove(transfer)
            if stay.page_in is not None:
                self._wait_for(stay.page_in, gap)
        else:
            for ahead in range(gap, stay.first):
                self._profile[ahead] += stay.size
            self._outs += stay.outs
        working_s = self._stays.processor_time_s(transfer.time_s)
        # Then both forms of the transfer take as long.
        is_alone = self._gains_nothing(transfer) and self._channel_s <= self._processor_s
        self._channel_s = max(self._channel_s, self._processor_s) + transfer.time_s
        self._processor_s = self._channel_s if is_alone else self._processor_s + working_s
        self._ends_s[transfer.number] = self._channel_s
        self._begun[transfer.number] = gap
        self._actions.append(transfer.alone if is_alone else transfer.action)
        return is_alone

    def _gains_nothing(self, transfer: Transfer) -> bool:
        """Whether no op could run meanwhile, since the transfer needs the processor throughout."""
        return self._stays.processor_time_s(transfer.time_s) >= transfer.time_s > 0

    def _free(self, stay: Stay, gap: int) -> None:
        for out in stay.outs:
            if out.number not in self._ends_s:
                self._begin(out, gap)
        for transfer in (stay.page_in, *stay.outs):
            if transfer is not None:
                self._wait_for(transfer, gap)
        if stay in self._held:
            self._held.remove(stay)
        self._gone.add(stay)
        self._actions.append(Free(tensor=stay.tensor))

    def _wait_for(self, transfer: Transfer, gap: int) -> None:
        waited_s = self._ends_s[transfer.number] - self._processor_s
        if waited_s > 0:
            self._processor_s += waited_s
            self._waits.append((gap, transfer, waited_s))

    def _held_bytes(self) -> int:
        return sum(stay.size for stay in self._held)
