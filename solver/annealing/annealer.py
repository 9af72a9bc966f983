"""``Annealer``: annealing in a thread. The C library does not block the other threads."""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.annealing.events import EventArray, Events, Objective
from solver.annealing.library import library
from solver.problem.problem import Problem
from solver.problem.replaced import Replaced
from solver.problem.schedule import Action

# Longest call of the C library between checks whether to stop; a round has at least four calls.
_SLICE_S = 0.1
_POLL_S = 0.05
# Seconds of the first round per op, limits of that time, and seconds of the longest round.
_FIRST_S_PER_OP, _FIRST_ROUND_S, _LONGEST_ROUND_S = 0.002, (0.02, 0.5), 20.0
# Penalty for exceeding the budget, in temperatures, that the weights aim at; it falls to 0 over the
# last quarter of a round.
_LEEWAY = 10.0
# Shares of the RAM for which rounds are in turn, if schedules must get addresses. Their number has
# no divisor in common with that of the kinds of rounds, so that each kind meets each share.
_PACKING_SHARES = (1.0, 0.98, 0.96)


@dataclass(frozen=True)
class _Round:
    """A kind of round: temperatures in mean costs of an op, and length as a multiple.

    A round that ``saves_fewer`` may page out what the best schedule pages out, but for one tensor.
    """

    hot: float
    cold: float
    free_order: bool
    from_start: bool
    weight: float
    saves_fewer: bool = False


# Rounds near the best schedule, farther from it, and from the initial schedule. Where a page-out
# costs much more than an op, the recomputations that make up for one less are found only if no
# other page-out may take its place: hence the rounds that save fewer.
_ROUNDS = (
    _Round(0.1, 0.001, free_order=False, from_start=False, weight=1),
    _Round(1.0, 0.003, free_order=True, from_start=True, weight=4),
    _Round(0.3, 0.001, free_order=False, from_start=True, weight=4),
    _Round(1.0, 0.003, free_order=True, from_start=False, weight=2, saves_fewer=True),
    _Round(3.0, 0.003, free_order=True, from_start=False, weight=2),
    _Round(0.1, 0.001, free_order=True, from_start=False, weight=1),
    _Round(1.0, 0.003, free_order=False, from_start=True, weight=4),
    _Round(1.0, 0.003, free_order=False, from_start=False, weight=2, saves_fewer=True),
    _Round(10.0, 0.003, free_order=False, from_start=False, weight=2),
    _Round(10.0, 0.02, free_order=True, from_start=True, weight=4),
)
_NEAR = _ROUNDS[0]


class Annealer:
    """Searches for better schedules in a thread while its context is open.

    ``start`` is a valid schedule that may exceed the budget. ``free_order`` allows first executions
    to change their order. ``transfer_share`` is the share of the transfers' time that counts
    against the deadline.

    With ``packs``, only schedules are found that get addresses in the RAM by first fit in a few
    orders; :meth:`found_with_addresses` tells them. Few that need all of the RAM as a sum do, so
    that rounds are for all of it and for less in turn. Rounds begin with the initial schedule or
    with an offer: from the best one, they found slightly dearer schedules for small networks.

    The constructor raises :class:`~devices.errors.BuildFailed`.
    """

    def __init__(
        self,
        problem: Problem,
        start: Sequence[Action],
        *,
        objective: Objective = "energy",
        free_order: bool,
        transfer_share: float = 1.0,
        seed: int = 1,
        packs: bool = False,
    ) -> None:
        self._ram_bytes = float(problem.budget.ram_bytes)
        self._packs = packs
        self._shares = itertools.cycle(_PACKING_SHARES if packs else (1.0,))
        self._library = library()
        self._events = Events(problem, objective, transfer_share)
        op_count = len(problem.graph.ops)
        self._mean_cost = 1000.0 / op_count
        shortest_s, longest_s = _FIRST_ROUND_S
        self._first_round_s = min(longest_s, max(shortest_s, _FIRST_S_PER_OP * op_count))
        self._free_order = free_order
        self._start = self._events.sequence(start)
        self._handles = [
            self._library.sequence_open(
                ctypes.byref(self._events.data), self._events.capacity, free, seed
            )
            for free in (0, 1)
        ]
        if not all(self._handles):
            raise MemoryError("not enough memory for annealing")
        if packs:
            for handle in self._handles:
                self._library.sequence_pack(handle, self._ram_bytes)
        self._chance = random.Random(seed)  # noqa: S311
        self._offered: list[EventArray] = []
        self._is_late = False
        self._best: EventArray | None = None
        self._best_addresses: tuple[int, ...] = ()
        self._best_cost = inf
        self._is_news = False
        self._replaced = Replaced[EventArray]()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._anneal, daemon=True)

    def offer(self, actions: Sequence[Action]) -> None:
        """Suggest a schedule to continue from."""
        self._suggest(self._events.sequence(actions))

    def offer_sketch(self, makes: Mapping[int, Sequence[tuple[str, int]]]) -> None:
        """Suggest a sketch, which may exceed the budget: events to insert before ops."""
        self._suggest(self._events.sequence_of_sketch(makes))

    def _suggest(self, sequence: EventArray) -> None:
        with self._lock:
            self._offered.append(sequence)

    def find_sooner(self) -> None:
        """Count more of the transfers' time: what was found cannot meet the deadline."""
        self._is_late = True

    def found(self) -> tuple[Action, ...] | None:
        """The best schedule so far, if it is better than at the last call; otherwise None."""
        with self._lock:
            news, self._is_news = self._is_news, False
            best = self._best
        return self._events.actions(best.tolist()) if news and best is not None else None

    def found_with_addresses(self) -> tuple[tuple[Action, ...], tuple[int, ...]] | None:
        """The best schedule so far and the addresses of its blocks, in the order in which they
        begin; None if there is none."""
        with self._lock:
            best, addresses = self._best, self._best_addresses
        return None if best is None else (self._events.actions(best.tolist()), addresses)

    def earlier(self) -> Iterator[tuple[Action, ...]]:
        """Some schedules that the best one has replaced, latest first, put together one by one."""
        with self._lock:
            found = self._replaced.some
        for events in found:
            yield self._events.actions(events.tolist())

    @property
    def best_cost(self) -> float:
        """Cost of the best schedule so far in the C library's unit; infinite for none."""
        return self._best_cost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        for handle in self._handles:
            self._library.sequence_close(handle)

    # --- in the thread --------------------------------------------------------------------------

    def _anneal(self) -> None:
        rounds = self._rounds()
        while not self._stopped.is_set():
            if self._is_late:
                self._count_more_transfers()
            with self._lock:
                offered, self._offered = self._offered, []
            for sequence in offered:
                self._round(_NEAR, sequence, 2 * self._first_round_s)
            kind, duration_s = next(rounds)
            best = self._best
            start = self._start if best is None or kind.from_start else best
            self._round(kind, start, duration_s)

    def _count_more_transfers(self) -> None:
        self._is_late = False
        self._events.count_more_transfers()
        for handle in self._handles:
            self._library.sequence_retime(handle, self._events.data.base_seconds)
        with self._lock:
            self._best, self._best_cost, self._is_news = None, inf, False

    def _rounds(self) -> Iterator[tuple[_Round, float]]:
        for number in itertools.count():
            common_s = min(_LONGEST_ROUND_S, self._first_round_s * 1.5**number)
            for kind in _ROUNDS:
                if kind.free_order and not self._free_order:
                    continue
                if kind.from_start or not self._packs:
                    yield kind, kind.weight * common_s

    def _round(self, kind: _Round, start: EventArray, duration_s: float) -> None:
        barred: npt.NDArray[np.uint8] | None = None
        if kind.saves_fewer:
            saved = self._events.saved(start)
            if not saved:
                return
            start = self._events.without(start, self._chance.choice(saved))
            barred = self._events.not_saved(start)
        handle = self._handles[kind.free_order and self._free_order]
        # Whole bytes: sums of these are exact, so that what fits exceeds the limit by 0.
        limit_bytes = float(math.floor(next(self._shares) * self._ram_bytes))
        self._library.sequence_limit_ram(handle, limit_bytes)
        fits = self._library.sequence_restart(
            handle, _pointer(start), len(start), None if barred is None else _pointer(barred)
        )
        if not fits:
            return
        slice_s = min(_SLICE_S, duration_s / 4)
        slices = round(duration_s / slice_s)
        hot, cold = kind.hot * self._mean_cost, kind.cold * self._mean_cost
        cooling = (cold / hot) ** (1 / slices)
        for number in range(slices):
            if self._stopped.is_set() or (self._offered and number):
                break
            leeway = _LEEWAY * min(1.0, 4 * (1 - (number + 1) / slices))
            self._library.sequence_anneal(
                handle, hot * cooling**number, hot * cooling ** (number + 1), leeway, slice_s
            )
            self._take(handle)

    def _take(self, handle: int) -> None:
        cost = ctypes.c_double()
        events = np.empty(self._events.capacity, np.int32)
        length = self._library.sequence_best(handle, _pointer(events), ctypes.byref(cost))
        if not length or cost.value >= self._best_cost * (1 - 1e-12):
            return
        addresses = np.empty(self._library.sequence_best_addresses(handle, None), np.float64)
        self._library.sequence_best_addresses(handle, addresses.ctypes.data)
        with self._lock:
            if self._best is not None:
                self._replaced.append(self._best)
            self._best, self._best_cost = events[:length].copy(), cost.value
            self._best_addresses = tuple(map(int, addresses))
            self._is_news = True


def _pointer(array: EventArray | npt.NDArray[np.uint8]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def anneal(
    problem: Problem,
    actions: Sequence[Action],
    seconds: float,
    *,
    objective: Objective = "energy",
    free_order: bool,
    stop_at_first: bool = False,
    threads: int = 1,
) -> tuple[Action, ...] | None:
    """Anneal for ``seconds`` from ``actions``, which may exceed the budget.

    Returns the best schedule within the budget, or the first one with ``stop_at_first``, or None if
    none is found. Each of the ``threads`` has a seed of its own. Raises
    :class:`~devices.errors.BuildFailed`.
    """
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        annealers = []
        for seed in range(1, 1 + threads):
            annealer = Annealer(
                problem, actions, objective=objective, free_order=free_order, seed=seed
            )
            annealer.offer(actions)
            annealers.append(stack.enter_context(annealer))
        while time.monotonic() < until:
            time.sleep(_POLL_S)
            if stop_at_first and any(annealer.best_cost < inf for annealer in annealers):
                break
        best = min(annealers, key=lambda annealer: annealer.best_cost)
        return best.found()
