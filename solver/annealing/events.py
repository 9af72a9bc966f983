"""``Events``: a problem as data for the C library, and schedules as sequences of events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.annealing.library import ProblemData
from solver.problem.graph import Op, PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, PageIn, PageOut

Objective: TypeAlias = Literal["energy", "time"]
EventArray: TypeAlias = npt.NDArray[np.int32]

# Scaled cost of computing every op once.
_SCALED_LEAST_COST = 1000.0
# Share of the transfers' time from which all of it counts.
_MOST_SHARE = 0.98


class Events:
    """Events of a problem by number.

    They are the ops, a page-in for each tensor that can be paged in, the beginning (which writes
    the tensors in RAM then) and the end (which reads the tensors that must persist in RAM).
    ``unit`` is one unit of the C library's cost in joules or seconds. ``transfer_share`` is the
    share of the transfers' time that counts, below 1 if they run beside ops.
    """

    def __init__(self, problem: Problem, objective: Objective, transfer_share: float = 1.0) -> None:
        self.problem = problem
        self._transfer_share = transfer_share
        graph = problem.graph
        self._tensors = range(len(graph.tensors))
        self._op_count = len(graph.ops)
        self._pageable = [i for i in self._tensors if problem.can_page_in[i]]
        self.begin = self._op_count + len(self._pageable)
        self.end = self.begin + 1
        self._page_in = {i: self._op_count + n for n, i in enumerate(self._pageable)}
        self._by_energy = objective == "energy"
        least = problem.least_energy_j if self._by_energy else problem.least_time_s
        self.unit = (least or self._dearest_page()) / _SCALED_LEAST_COST or 1.0
        self._kept: list[npt.NDArray[Any]] = []
        self._seconds = np.array([*(op.time_s for op in graph.ops), *self._page_in_s(), 0.0, 0.0])
        self._save_seconds = np.array(self._save_s())
        self.data = self._data()

    def _dearest_page(self) -> float:
        costs = [c for t in self.problem.graph.tensors for c in (t.page_out, t.page_in) if c]
        return max((c.energy_j if self._by_energy else c.time_s for c in costs), default=0.0)

    # --- to C -----------------------------------------------------------------------------------

    def _data(self) -> ProblemData:
        problem, graph, budget = self.problem, self.problem.graph, self.problem.budget
        tensors, ops = graph.tensors, graph.ops
        nothing: list[list[int]] = [[] for _ in self._pageable]
        begin = [i for i in self._tensors if problem.starts_in_ram[i]]
        end = [i for i in self._tensors if tensors[i].persist == "ram"]
        page_ins = [tensors[i].page_in for i in self._pageable]
        places = [
            -1 if read is None else problem.tensor_index[read]
            for op in ops
            for read in map(op.in_place.get, op.writes)
        ]
        fields = {
            **self._lists("read", [*problem.reads, *nothing, [], end]),
            **self._lists("write", [*problem.writes, *([i] for i in self._pageable), begin, []]),
            **self._lists("consume", [*problem.consumes, *nothing, [], []]),
            "cost": self._doubles(
                [*map(self._scaled_cost, ops), *map(self._scaled_cost, page_ins), 0, 0]
            ),
            "seconds": self._pointer(self._seconds),
            "extra_bytes": self._doubles(
                [*problem.extra_bytes, *(0 for _ in self._pageable), 0, 0]
            ),
            "repeatable": self._bytes([*problem.recomputable, *(True for _ in page_ins), 0, 0]),
            "in_storage": self._bytes(problem.starts_in_storage),
            "bytes": self._doubles(problem.size),
            "save_cost": self._doubles(map(self._scaled_cost, self._saves)),
            "save_seconds": self._pointer(self._save_seconds),
            "compute_of": self._integers(problem.producer),
            "page_in_of": self._integers(self._page_in.get(i, -1) for i in self._tensors),
            "workspace_bytes": self._doubles(
                [*(op.workspace_bytes for op in ops), *(0 for _ in self._pageable), 0, 0]
            ),
            "place_of": self._integers([*places, *(-1 for _ in [*self._pageable, *begin])]),
        }
        deadline_s = math.inf if problem.latest_s is None else problem.latest_s
        return ProblemData(
            event_count=self.end + 1,
            tensor_count=len(tensors),
            op_count=self._op_count,
            **fields,
            ram_bytes=float(budget.ram_bytes),
            deadline_s=deadline_s,
            base_cost=sum(map(self._scaled_cost, self._unavoidable)),
            base_seconds=self._unavoidable_s(),
        )

    @property
    def _saves(self) -> list[PageCost | None]:
        """Cost of paging each tensor out before it is first paged in; None where storage has it
        anyway."""
        problem = self.problem
        return [
            tensor.page_out if self._is_a_choice(i) else None
            for i, tensor in enumerate(problem.graph.tensors)
        ]

    @property
    def _unavoidable(self) -> list[PageCost | None]:
        tensors, must = self.problem.graph.tensors, self.problem.must_page_out
        return [t.page_out for t, needed in zip(tensors, must, strict=True) if needed]

    def _page_in_s(self) -> list[float]:
        tensors = self.problem.graph.tensors
        return [self._transfer_s(tensors[i].page_in) for i in self._pageable]

    def _save_s(self) -> list[float]:
        return [self._transfer_s(cost) for cost in self._saves]

    def _unavoidable_s(self) -> float:
        return sum(map(self._transfer_s, self._unavoidable))

    def count_more_transfers(self) -> None:
        """Halve the share of the transfers' time that is not counted; in the end, all counts."""
        share = (1.0 + self._transfer_share) / 2
        self._transfer_share = share if share < _MOST_SHARE else 1.0
        self._seconds[self._op_count : self.begin] = self._page_in_s()
        self._save_seconds[:] = self._save_s()
        self.data.base_seconds = self._unavoidable_s()

    def _scaled_cost(self, cost: PageCost | Op | None) -> float:
        if cost is None:
            return 0.0
        return float(cost.energy_j if self._by_energy else cost.time_s) / self.unit

    def _transfer_s(self, cost: PageCost | None) -> float:
        if cost is None or self.problem.budget.instantaneous_paging:
            return 0.0
        return self._transfer_share * cost.time_s

    def _lists(self, name: str, lists: Sequence[Sequence[int]]) -> dict[str, int]:
        starts = np.cumsum([0, *map(len, lists)])
        return {
            f"{name}_start": self._integers(starts),
            f"{name}s": self._integers([item for items in lists for item in items]),
        }

    def _pointer(self, array: npt.NDArray[Any]) -> int:
        self._kept.append(array)  # keeps alive the memory that C points to
        return array.ctypes.data

    def _integers(self, values: Iterable[int]) -> int:
        return self._pointer(np.fromiter((int(v) for v in values), np.int32))

    def _doubles(self, values: Iterable[float]) -> int:
        return self._pointer(np.fromiter((float(v) for v in values), np.float64))

    def _bytes(self, values: Iterable[bool | int]) -> int:
        return self._pointer(np.fromiter((int(v) for v in values), np.uint8))

    # --- sequences ------------------------------------------------------------------------------

    def sequence(self, actions: Iterable[Action]) -> EventArray:
        """Convert a schedule to events. Page-outs are omitted, since they follow from page-ins."""
        number = {op.name: k for k, op in enumerate(self.problem.graph.ops)}
        events = [self.begin]
        for action in actions:
            match action:
                case Compute():
                    events.append(number[action.op])
                case PageIn():
                    events.append(self._page_in[self.problem.tensor_index[action.tensor]])
        return np.array([*events, self.end], np.int32)

    def actions(self, events: Iterable[int]) -> tuple[Action, ...]:
        """Convert events to a schedule.

        A tensor is paged out right after it is first written: later has no advantage.
        """
        graph = self.problem.graph
        chosen = list(events)
        paged_in = {self._pageable[e - self._op_count] for e in chosen if self._is_page_in(e)}
        saved = {i for i in paged_in if not self.problem.starts_in_storage[i]}
        saved.update(i for i in self._tensors if self.problem.must_page_out[i])
        actions: list[Action] = []
        for event in chosen:
            if event < self._op_count:
                actions.append(Compute(op=graph.ops[event].name))
                made = [i for i in self.problem.writes[event] if i in saved]
            elif event == self.begin:
                made = [i for i in saved if self.problem.producer[i] < 0]
            else:
                made = []
                if self._is_page_in(event):
                    name = graph.tensors[self._pageable[event - self._op_count]].name
                    actions.append(PageIn(tensor=name))
            saved.difference_update(made)
            actions += [PageOut(tensor=graph.tensors[i].name) for i in sorted(made)]
        return with_frees(graph, actions)

    def saved(self, events: EventArray) -> list[int]:
        """Tensors, ascending, that are paged out only because this sequence pages them in."""
        numbers = {int(event) for event in events}
        return [i for i in self._pageable if self._page_in[i] in numbers and self._is_a_choice(i)]

    def without(self, events: EventArray, tensor: int) -> EventArray:
        """A sequence without the page-ins of a tensor. It may exceed the budget."""
        return np.array([e for e in events if e != self._page_in[tensor]], np.int32)

    def not_saved(self, events: EventArray) -> npt.NDArray[np.uint8]:
        """1 for each tensor that this sequence would have to page out before it can page it in."""
        saved = set(self.saved(events))
        return np.array([self._is_a_choice(i) and i not in saved for i in self._tensors], np.uint8)

    def _is_a_choice(self, tensor: int) -> bool:
        """Whether storage has a copy of a tensor only if the schedule chooses to page it out."""
        problem = self.problem
        return not problem.starts_in_storage[tensor] and not problem.must_page_out[tensor]

    def _is_page_in(self, event: int) -> bool:
        return self._op_count <= event < self.begin

    def sequence_of_sketch(self, makes: Mapping[int, Sequence[tuple[str, int]]]) -> EventArray:
        """Convert a sketch to events: the ops in the graph's order, with ``makes`` before them."""
        events = [self.begin]
        for k in range(self._op_count):
            for action, index in makes.get(k, ()):
                events.append(index if action == "compute" else self._page_in[index])
            events.append(k)
        return np.array([*events, self.end], np.int32)

    @property
    def capacity(self) -> int:
        """Largest length of a sequence: every event about four times."""
        return 4 * (self.end + 1) + 64
