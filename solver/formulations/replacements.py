"""Tensors of which the old or the new crosses an op, whichever order is chosen.

An op that may run before or after ``t`` reads ``old``, which is certainly in RAM before ``t``, and
writes ``new``, which is certainly read after it or persists in RAM: an update of parameters, say,
that another layer's backward op neither needs nor waits for. If the op runs after ``t``, it needs
``old``; if it runs before, ``new`` is needed later. Either is in RAM while ``t`` runs, or paged in
or recomputed after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.problem.problem import Problem
from solver.time_limit import check_time

SMALL = 1e-3
"""A tensor of a smaller share of the budget needs no rows where orders are open: they would cost
more than they prove."""


class Replacement(NamedTuple):
    """An op, a tensor that it reads, and one that it writes, by index."""

    op: int
    old: int
    new: int


class Replacements:
    """Replacements of a problem. No tensor is in two of them, so that their bytes add up.

    ``before[t, k]`` says that op ``k`` is first executed before op ``t`` in every order,
    ``crosses[t, i]`` that tensor ``i`` crosses ``t`` in every order: it counts there by itself.
    """

    def __init__(
        self,
        problem: Problem,
        before: npt.NDArray[np.bool_],
        crosses: npt.NDArray[np.bool_],
    ) -> None:
        self._all: list[Replacement] = []
        columns = []
        taken: set[int] = set()
        for k in range(len(problem.graph.ops)):
            check_time()
            for old, new in _pairs(problem, k):
                if taken & {old, new}:
                    continue
                around = _is_open(before, k) & is_made(problem, before, old)
                around &= is_needed(problem, before, new) & ~crosses[:, old] & ~crosses[:, new]
                around[list(_touching(problem, old, new))] = False
                if around.any():
                    taken |= {old, new}
                    self._all.append(Replacement(k, old, new))
                    columns.append(around)
        count = len(problem.graph.ops)
        self._around = np.array(columns, bool).T if columns else np.zeros((count, 0), bool)
        sizes = [min(problem.size[each.old], problem.size[each.new]) for each in self._all]
        self._bytes = np.array(sizes, float)

    def at(self, t: int) -> Iterator[Replacement]:
        """The replacements around op ``t``."""
        return (self._all[number] for number in np.flatnonzero(self._around[t]))

    def bytes_at(self, ops: slice, left: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bytes of the replacements around each op of a range.

        ``left`` is the share of each tensor that is neither paged in nor recomputed.
        """
        shares = [left[each.old] + left[each.new] - 1.0 for each in self._all]
        held = self._bytes * np.maximum(np.array(shares, float), 0.0)
        found: npt.NDArray[np.float64] = self._around[ops] @ held
        return found


def _pairs(problem: Problem, k: int) -> Iterator[tuple[int, int]]:
    """Tensors that op ``k`` reads and writes, in pairs, the largest ones first."""
    least = SMALL * problem.budget.ram_bytes

    def large(tensors: Sequence[int]) -> list[int]:
        found = [i for i in tensors if problem.size[i] >= max(1.0, least)]
        return sorted(found, key=lambda i: -problem.size[i])

    return zip(large(problem.reads[k]), large(problem.writes[k]), strict=False)


def _is_open(before: npt.NDArray[np.bool_], k: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = ~before[:, k] & ~before[k]
    found[k] = False
    return found


def is_made(problem: Problem, before: npt.NDArray[np.bool_], i: int) -> npt.NDArray[np.bool_]:
    """Whether a tensor is certainly in RAM at some time before each op."""
    if problem.starts_in_storage[i]:
        return np.asarray(before[:, list(problem.readers[i])].any(axis=1), bool)
    if problem.producer[i] < 0:
        return np.ones(len(before), bool)
    return before[:, problem.producer[i]]


def is_needed(problem: Problem, before: npt.NDArray[np.bool_], i: int) -> npt.NDArray[np.bool_]:
    """Whether a tensor is certainly needed in RAM at some time after each op."""
    if problem.graph.tensors[i].persist == "ram":
        return np.ones(len(before), bool)
    return np.asarray(before[list(problem.readers[i])].any(axis=0), bool)


def _touching(problem: Problem, *tensors: int) -> Iterator[int]:
    """Ops that read or write one of these tensors."""
    for i in tensors:
        yield from problem.readers[i]
        if problem.producer[i] >= 0:
            yield problem.producer[i]
