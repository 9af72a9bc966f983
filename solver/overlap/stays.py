"""``Stays``: the parts of a schedule that stay fixed when only the timing of transfers changes.

These are the ops in their order, the stays of tensors in RAM, and the transfers of each stay. Time
is counted in *gaps*: gap ``p`` is right before compute action ``p``, and the last gap is after all
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from solver.problem.footprint import extra_bytes
from solver.problem.graph import Op
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut


@dataclass(eq=False)
class Transfer:
    """One page-in or page-out.

    ``action`` is its asynchronous and ``alone`` its synchronous form. ``source`` is the page-out
    whose copy a page-in reads, if any.
    """

    number: int
    action: PageIn | PageOut
    alone: PageIn | PageOut
    time_s: float
    stay: Stay
    source: Transfer | None = None

    @property
    def is_out(self) -> bool:
        return isinstance(self.action, PageOut)


@dataclass(eq=False)
class Stay:
    """One stay of a tensor in RAM.

    It begins with the compute action ``made``, with ``page_in``, or with the step (both None).
    ``first`` and ``last`` are the first and last compute actions that need it; a tensor that
    persists is needed by the last gap. If nothing needs it, ``first`` is where it begins and
    ``last`` is smaller.
    """

    tensor: str
    size: int
    first: int
    last: int
    made: int | None = None
    page_in: Transfer | None = None
    before: Stay | None = None
    outs: list[Transfer] = field(default_factory=list)
    overwritten: bool = False
    persists: bool = False

    @property
    def is_needed(self) -> bool:
        return self.last >= self.first


class Stays:
    """All stays of a valid schedule. ``processor_time_s`` is that of its graph.

    ``profile`` is the bytes in RAM during each compute action and, last, at the end of the step, if
    every page-in comes as late and every page-out ends as early as possible.
    """

    def __init__(self, problem: Problem, actions: Sequence[Action]) -> None:
        self._problem = problem
        self.processor_time_s = problem.graph.processor_time_s
        self._ops = {op.name: op for op in problem.graph.ops}
        self.computed: list[Op] = []
        self.all: list[Stay] = []
        self.transfers: list[Transfer] = []
        self._in_ram: dict[str, Stay] = {}
        self._latest: dict[str, Stay] = {}
        self._copy: dict[str, Transfer] = {}
        for i, tensor in enumerate(problem.graph.tensors):
            if problem.starts_in_ram[i]:
                self._begin(tensor.name, first=0, last=-1)
        for action in actions:
            self._follow(action)
        end = len(self.computed)
        for stay in self._in_ram.values():
            if not stay.is_needed and stay.page_in is not None:
                stay.first = end
            stay.persists, stay.last = True, end
        self.profile = self._profile()
        # Sorted by the compute action that needs them.
        self.page_ins = sorted(
            (stay.page_in for stay in self.all if stay.page_in is not None),
            key=lambda page_in: page_in.stay.first,
        )
        self._beginning: list[list[Stay]] = [[] for _ in range(end + 1)]
        self._there_after: list[list[Stay]] = [[] for _ in range(end + 1)]
        self._ending: list[list[Stay]] = [[] for _ in range(end + 1)]
        self._needed: list[list[Transfer]] = [[] for _ in range(end + 1)]
        self._next = {stay.before: stay for stay in self.all if stay.before is not None}
        for stay in self.all:
            self._place(stay)

    def beginning_at(self, gap: int) -> list[Stay]:
        """Stays whose page-in must begin by the gap, or that begin with its compute action."""
        return self._beginning[gap]

    def there_after(self, gap: int) -> list[Stay]:
        """Stays that begin with the compute action of a gap, or with the step for -1."""
        return self._there_after[gap + 1]

    def ending_at(self, gap: int) -> list[Stay]:
        """Stays to free that no compute action needs from this gap on."""
        return self._ending[gap]

    def needed_by(self, gap: int) -> list[Transfer]:
        """Transfers that must have ended before the compute action of the gap."""
        return self._needed[gap]

    def next_of(self, stay: Stay) -> Stay | None:
        """The next stay of the same tensor."""
        return self._next.get(stay)

    def _place(self, stay: Stay) -> None:
        if stay.page_in is None:
            self._there_after[0 if stay.made is None else stay.made + 1].append(stay)
        else:
            self._needed[stay.first].append(stay.page_in)
        if stay.page_in is not None or stay.made is not None:
            self._beginning[stay.first].append(stay)
        if stay.overwritten:
            self._needed[stay.last] += stay.outs
        elif not stay.persists and (stay.page_in is None or stay.is_needed):
            self._ending[stay.last + 1].append(stay)

    def _begin(self, name: str, first: int, last: int) -> Stay:
        size = self._problem.size[self._problem.tensor_index[name]]
        stay = Stay(name, size, first, last, before=self._latest.get(name))
        self._in_ram[name] = self._latest[name] = stay
        self.all.append(stay)
        return stay

    def _follow(self, action: Action) -> None:
        gap = len(self.computed)
        match action:
            case Compute():
                op = self._ops[action.op]
                for name in op.reads:
                    stay = self._in_ram[name]
                    if not stay.is_needed and stay.page_in is not None:
                        stay.first = gap
                    stay.last = gap
                for name in op.writes:
                    self._begin(name, first=gap, last=gap).made = gap
                for name in op.in_place.values():
                    self._in_ram.pop(name).overwritten = True
                self.computed.append(op)
            case PageOut():
                stay = self._in_ram[action.tensor]
                out = self._transfer(action, stay)
                stay.outs.append(out)
                self._copy[action.tensor] = out
            case PageIn():
                stay = self._begin(action.tensor, first=gap, last=gap - 1)
                stay.page_in = self._transfer(action, stay)
                stay.page_in.source = self._copy.get(action.tensor)
            case Free():
                del self._in_ram[action.tensor]

    def _transfer(self, action: PageIn | PageOut, stay: Stay) -> Transfer:
        tensor = self._problem.graph.tensor[action.tensor]
        cost = tensor.page_out if isinstance(action, PageOut) else tensor.page_in
        assert cost is not None
        other = PageOut if isinstance(action, PageOut) else PageIn
        beside, alone = (other(tensor=action.tensor, asynchronous=a) for a in (True, False))
        transfer = Transfer(len(self.transfers), beside, alone, cost.time_s, stay)
        self.transfers.append(transfer)
        return transfer

    def _profile(self) -> list[int]:
        change = [0] * (len(self.computed) + 2)
        for stay in self.all:
            if stay.first <= stay.last:
                change[stay.first] += stay.size
                change[stay.last + 1] -= stay.size
        profile = list(accumulate(change[:-1]))
        for gap, op in enumerate(self.computed):
            profile[gap] += extra_bytes(op, self._problem.size_of)
        return profile
