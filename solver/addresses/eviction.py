"""Schedules that fit a budget as a sum, made to fit an arena by paging tensors out of the way.

The tensors with which the step begins lie in the order of their sizes, large ones first: small ones
are next to the free room, and cheap to page where it is too small. One pass over the actions gives
every other tensor an address when it enters RAM, in a gap that holds it. Where no gap does, tensors
that the action does not need make room: they are freed once a copy of them is in storage, and paged
in again before they are read. Of all places, that is taken whose tensors cost least to page per
action until they are read. If no place is left among what the action needs, everything is paged
out, and what it needs is paged in again side by side.

A pass is short (``eviction.c``). Which gap a tensor takes, and how dear it is to
page it out of the way, are therefore searched: passes are repeated with other choices for some of
the tensors that had to make room.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from devices.errors import BuildFailed
from solver.addresses.packing import load_of
from solver.addresses.plan import AddressPlan
from solver.addresses.residencies import blocks_of, spans_of
from solver.compiled import load_compiled
from solver.problem.graph import PageCost
from solver.problem.liveness import with_frees
from solver.problem.problem import Problem
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut
from solver.time_limit import check_time

_COMPUTE, _PAGE_OUT, _PAGE_IN, _FREE = range(4)

# Temperature at the beginning of the search, relative to the energy of a mean transfer.
_HOT = 0.5
# Factor by which rounding can make the same transfers dearer.
_ROUNDED_UP = 1 + 1e-12


class _ProblemData(ctypes.Structure):
    """The struct ``Problem`` of ``eviction.c``."""

    _fields_ = (
        ("tensor_count", ctypes.c_int32),
        ("action_count", ctypes.c_int32),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("read_start", "reads", "write_start", "writes", "over", "workspace"),
                *("kinds", "what", "use_start", "uses", "bytes", "out_cost", "in_cost"),
                "at_first",
            )
        ),
        ("at_first_count", ctypes.c_int32),
        ("in_storage", ctypes.c_void_p),
        ("ram_bytes", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL:
    loaded = load_compiled(Path(__file__).with_name("eviction.c"))
    loaded.eviction_open.restype = ctypes.c_void_p
    loaded.eviction_open.argtypes = [ctypes.POINTER(_ProblemData), ctypes.c_uint64]
    loaded.eviction_search.restype = None
    loaded.eviction_search.argtypes = [ctypes.c_void_p, *[ctypes.c_double] * 3]
    loaded.eviction_best.restype = ctypes.c_int32
    loaded.eviction_best.argtypes = [ctypes.c_void_p] * 6
    loaded.eviction_close.restype = None
    loaded.eviction_close.argtypes = [ctypes.c_void_p]
    return loaded


def evict_into_arena(
    problem: Problem, actions: Sequence[Action], until: float = 0.0
) -> tuple[tuple[Action, ...], AddressPlan] | None:
    """Change a schedule so that it fits into an arena of the size of the budget.

    Args:
        problem: The problem; its budget covers everything and allows paging.
        actions: A valid schedule, ``free`` actions included.
        until: End of the search for choices that page less, on ``time.monotonic``. After it, one
            pass is made.

    Returns:
        The schedule with the plan of its addresses, which are multiples of the greatest common
        divisor of all sizes; None if tensors that cannot be paged are in the way, an op writes a
        tensor in place of a smaller one, or the C library cannot be compiled. The referees have to
        confirm both.

    Raises:
        OutOfTime: The time limit has passed.
    """
    if not problem.budget.paging or problem.budget.covers != "all":
        return None
    check_time()
    found = None
    with suppress(BuildFailed):
        found = _Eviction(problem, actions).best(until)
    if found is None:
        return None
    done, placed = found
    changed = with_frees(problem.graph, done)
    check_time()
    blocks = blocks_of(problem.graph, changed, "all")
    offsets = tuple(placed[block.residencies[0].tensor].popleft() for block in blocks)
    ends = (offset + block.bytes for offset, block in zip(offsets, blocks, strict=True))
    plan = AddressPlan(blocks, offsets, max(ends, default=0), max(load_of(spans_of(blocks))))
    return changed, plan


class _Eviction:
    """Problem and schedule as data for the C library."""

    def __init__(self, problem: Problem, actions: Sequence[Action]) -> None:
        self._problem = problem
        self._kept: list[npt.NDArray[Any]] = []
        self._op = {op.name: index for index, op in enumerate(problem.graph.ops)}
        self._paging_j = math.fsum(self._transfer_j(action) for action in actions)
        self.data = self._data(actions)

    def _transfer_j(self, action: Action) -> float:
        """Energy of an action if it is a transfer."""
        tensor = self._problem.graph.tensor
        match action:
            case PageOut():
                return _energy_j(tensor[action.tensor].page_out)
            case PageIn():
                return _energy_j(tensor[action.tensor].page_in)
            case _:
                return 0.0

    def _data(self, actions: Sequence[Action]) -> _ProblemData:
        problem, graph = self._problem, self._problem.graph
        index = problem.tensor_index
        steps = [self._step(action) for action in actions]
        uses: list[list[int]] = [[] for _ in graph.tensors]
        for number, (kind, what) in enumerate(steps):
            for tensor in problem.reads[what] if kind == _COMPUTE else ():
                uses[tensor].append(number)
        over = [
            index[op.in_place[name]] if name in op.in_place else -1
            for op in graph.ops
            for name in op.writes
        ]
        at_first = sorted(
            (i for i, starts in enumerate(problem.starts_in_ram) if starts),
            key=lambda i: -problem.size[i],
        )
        # Blocks are also placed from the top of the arena down, and must be aligned there too.
        unit = math.gcd(*problem.size, *(op.workspace_bytes for op in graph.ops)) or 1
        out = [t.page_out if can else None for t, can in self._tensors(problem.can_page_out)]
        back = [t.page_in if can else None for t, can in self._tensors(problem.can_page_in)]
        return _ProblemData(
            tensor_count=len(graph.tensors),
            action_count=len(steps),
            **self._lists("read", problem.reads),
            **self._lists("write", problem.writes),
            over=self._pointer(over, np.int32),
            workspace=self._pointer([op.workspace_bytes for op in graph.ops], np.int64),
            kinds=self._pointer([kind for kind, _ in steps], np.int32),
            what=self._pointer([what for _, what in steps], np.int32),
            **self._lists("use", uses),
            bytes=self._pointer(problem.size, np.int64),
            out_cost=self._pointer(map(_energy_j, out), np.float64),
            in_cost=self._pointer(map(_energy_j, back), np.float64),
            at_first=self._pointer(at_first, np.int32),
            at_first_count=len(at_first),
            in_storage=self._pointer(problem.starts_in_storage, np.uint8),
            ram_bytes=problem.budget.ram_bytes // unit * unit,
        )

    def _tensors(self, can: Sequence[bool]) -> Iterable[tuple[Any, bool]]:
        return zip(self._problem.graph.tensors, can, strict=True)

    def _step(self, action: Action) -> tuple[int, int]:
        index = self._problem.tensor_index
        match action:
            case Compute():
                return _COMPUTE, self._op[action.op]
            case PageOut():
                return _PAGE_OUT, index[action.tensor]
            case PageIn():
                return _PAGE_IN, index[action.tensor]
            case Free():
                return _FREE, index[action.tensor]

    def _lists(self, name: str, lists: Sequence[Sequence[int]]) -> dict[str, int]:
        starts = np.cumsum([0, *map(len, lists)])
        return {
            f"{name}_start": self._pointer(starts, np.int32),
            f"{name}s": self._pointer([item for items in lists for item in items], np.int32),
        }

    def _pointer(self, values: Iterable[Any], kind: npt.DTypeLike) -> int:
        array = np.fromiter(values, kind)
        self._kept.append(array)  # keeps alive the memory that C points to
        return array.ctypes.data

    @property
    def _mean_transfer_j(self) -> float:
        costs = [t.page_in.energy_j for t in self._problem.graph.tensors if t.page_in is not None]
        return math.fsum(costs) / len(costs) if costs else 0.0

    def best(self, until: float) -> tuple[list[Action], dict[str | None, deque[int]]] | None:
        """Actions without frees, and the offsets of each tensor in the order of its places."""
        library = _library()
        handle = library.eviction_open(ctypes.byref(self.data), 1)
        if not handle:
            raise MemoryError("not enough memory to page tensors out of the way")
        try:
            hot_j = _HOT * self._mean_transfer_j
            seconds = max(0.0, until - time.monotonic())
            library.eviction_search(handle, seconds, hot_j, self._paging_j * _ROUNDED_UP)
            return self._result(library, handle)
        finally:
            library.eviction_close(handle)

    def _result(
        self, library: ctypes.CDLL, handle: int
    ) -> tuple[list[Action], dict[str | None, deque[int]]] | None:
        done, placed = ctypes.POINTER(ctypes.c_int32)(), ctypes.POINTER(ctypes.c_int32)()
        offsets = ctypes.POINTER(ctypes.c_int64)()
        done_count, placed_count = ctypes.c_int64(), ctypes.c_int64()
        results = (done, done_count, placed, offsets, placed_count)
        if not library.eviction_best(handle, *map(ctypes.byref, results)):
            return None
        names = [*(tensor.name for tensor in self._problem.graph.tensors), None]
        actions = [self._action(done[2 * i], done[2 * i + 1]) for i in range(done_count.value)]
        places: dict[str | None, deque[int]] = defaultdict(deque)
        for i in range(placed_count.value):
            places[names[placed[i]]].append(offsets[i])
        return actions, places

    def _action(self, kind: int, what: int) -> Action:
        graph = self._problem.graph
        if kind == _COMPUTE:
            return Compute(op=graph.ops[what].name)
        name = graph.tensors[what].name
        return PageOut(tensor=name) if kind == _PAGE_OUT else PageIn(tensor=name)


def _energy_j(cost: PageCost | None) -> float:
    return math.inf if cost is None else cost.energy_j
