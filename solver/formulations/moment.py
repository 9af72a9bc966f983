"""Memory at the first execution of one op, in the crossing program: its columns and rows.

See :mod:`solver.formulations.crossing` for what the columns mean and why every schedule satisfies
the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.engines.program import Program
from solver.formulations.replacements import SMALL, Replacements
from solver.problem.footprint import footprint_bytes
from solver.problem.problem import Problem
from solver.time_limit import check_time

# Memory is scaled so that the budget is this much.
_SCALE = 1000.0


@dataclass(frozen=True)
class CrossingColumns:
    """What the moments of a crossing program share.

    ``again`` maps ops and ``paged`` tensors to columns of ``program``; ``before[t, k]`` says that
    op ``k`` is first executed before op ``t`` in every order. With ``open_ops``, columns say what
    is early where no order is certain.
    """

    problem: Problem
    program: Program
    again: dict[int, int]
    paged: dict[int, int]
    before: npt.NDArray[np.bool_]
    replacements: Replacements
    open_ops: bool


class _Share(NamedTuple):
    """Whether something happens before an op: 1, 0, or the value of a column."""

    constant: float
    column: int | None = None

    def times(self, factor: float) -> list[tuple[int, float]]:
        """The column, with a factor."""
        return [] if self.column is None else [(self.column, factor)]


_NEVER, _CERTAIN = _Share(0.0), _Share(1.0)


class Moment:
    """Columns of op ``t`` with memory rows, at its first execution.

    ``held`` maps tensors to columns (in RAM then), ``later`` ops (recomputed later), and ``early``
    ops that no order of the graph's reads puts before or after ``t`` (first executed before).
    """

    def __init__(self, shared: CrossingColumns, t: int, others: Mapping[int, Moment]) -> None:
        """Add the columns and rows, those that connect them with ``others`` (by op), too."""
        self.held: dict[int, int] = {}
        self.later: dict[int, int] = {}
        self.early: dict[int, int] = {}
        self._shared = shared
        self._t = t
        self._others = others
        self._unsettled: list[int] = []
        self._unlinked: list[int] = []
        self._at_hand = {*shared.problem.reads[t], *shared.problem.writes[t]}
        self._need_what_crosses()
        if not shared.open_ops:  # what is early says the same
            self._need_old_or_new()
        self._need_what_recomputing_reads()
        self._follow_the_graph()
        self._fit()
        for s, other in others.items() if shared.open_ops else ():
            if not (shared.before[t, s] or shared.before[s, t]):
                self._come_before_or_after(s, other)

    def _need_what_crosses(self) -> None:
        """A tensor that is made before ``t`` and read after it is held, or made again later."""
        program, problem = self._shared.program, self._shared.problem
        for i in range(len(problem.graph.tensors)):
            check_time()
            if i in self._at_hand or not problem.size[i]:
                continue
            made = self._made(i)
            for read in self._reads(i) if made != _NEVER else ():
                # held + made again >= made - read
                terms = [*self._sources(i), *made.times(-1.0), *read.times(1.0)]
                program.row(terms, ">", made.constant - read.constant)

    def _need_old_or_new(self) -> None:
        """Of a tensor and what replaces it before ``t`` or after, one is held or made again."""
        program, replacements = self._shared.program, self._shared.replacements
        for each in replacements.at(self._t):
            program.row([*self._sources(each.old), *self._sources(each.new)], ">", 1.0)

    def _reads(self, i: int) -> list[_Share]:
        """Whether each reader of a tensor runs before ``t``; those that must are left out."""
        problem, before = self._shared.problem, self._shared.before
        readers = problem.readers[i]
        if problem.graph.tensors[i].persist == "ram" or any(before[r, self._t] for r in readers):
            return [_NEVER]
        if not self._is_open(i):
            return []
        return [read for read in map(self._first_before, readers) if read != _CERTAIN]

    def _need_what_recomputing_reads(self) -> None:
        """Recomputing an op after ``t`` needs what it reads, if that is made before ``t``."""
        program, problem = self._shared.program, self._shared.problem
        while self._unsettled:
            k = self._unsettled.pop()
            for i in problem.reads[k]:
                if i in self._at_hand or not problem.size[i]:
                    continue
                made = self._made(i)
                if made != _NEVER:
                    # held + made again >= made + (k is recomputed later) - 1
                    terms = [*self._sources(i), *made.times(-1.0), (self.later[k], -1.0)]
                    program.row(terms, ">", made.constant - 1.0)

    def _fit(self) -> None:
        """What is held fits together with what ``t`` itself needs."""
        problem = self._shared.problem
        ram_bytes = problem.budget.ram_bytes
        scale = _SCALE / max(1, ram_bytes)
        footprint = footprint_bytes(problem.graph.ops[self._t], problem.size_of)
        self._shared.program.row(
            [(column, problem.size[i] * scale) for i, column in self.held.items()],
            "<",
            (ram_bytes - footprint) * scale,
        )

    def _sources(self, i: int) -> list[tuple[int, float]]:
        """Columns that sum to at least 1 if tensor ``i`` is in RAM later."""
        shared = self._shared
        if i not in self.held:
            self.held[i] = shared.program.column(integer=False)
        columns = [self.held[i]]
        k = shared.problem.producer[i]
        if k in shared.again:
            if k not in self.later:
                self.later[k] = shared.program.column(integer=False)
                shared.program.row([(self.later[k], 1.0), (shared.again[k], -1.0)], "<", 0.0)
                self._unsettled.append(k)
            columns.append(self.later[k])
        if i in shared.paged:
            columns.append(shared.paged[i])
        return [(column, 1.0) for column in columns]

    def _made(self, i: int) -> _Share:
        """Whether a tensor is in RAM at some time before ``t``."""
        problem = self._shared.problem
        if problem.starts_in_storage[i]:
            # It certainly is if an op before ``t`` reads it.
            is_read = any(self._shared.before[self._t, r] for r in problem.readers[i])
            return _CERTAIN if is_read else _NEVER
        k = problem.producer[i]
        if k < 0:
            return _CERTAIN
        is_known = self._is_open(i) or self._shared.before[self._t, k]
        return self._first_before(k) if is_known else _NEVER

    def _first_before(self, k: int) -> _Share:
        """Whether op ``k`` is first executed before ``t``."""
        t, before = self._t, self._shared.before
        if before[t, k]:
            return _CERTAIN
        if k == t or before[k, t]:
            return _NEVER
        if k not in self.early:
            self._add_early(k)
        return _Share(0.0, self.early[k])

    def _add_early(self, k: int) -> None:
        """Add the column of an op that may run before ``t`` or after it."""
        program, before = self._shared.program, self._shared.before
        column = self.early[k] = program.column(integer=False)
        self._unlinked.append(k)
        # What is early at a moment is early at each later one.
        for s, other in self._others.items():
            if k in other.early and before[self._t, s]:
                program.row([(column, 1.0), (other.early[k], -1.0)], ">", 0.0)
            elif k in other.early and before[s, self._t]:
                program.row([(column, 1.0), (other.early[k], -1.0)], "<", 0.0)

    def _follow_the_graph(self) -> None:
        """An early op comes after those that make what it reads."""
        problem, program = self._shared.problem, self._shared.program
        while self._unlinked:
            k = self._unlinked.pop()
            for i in problem.reads[k]:
                j = problem.producer[i]
                if j >= 0 and (first := self._first_before(j).column) is not None:
                    program.row([(first, 1.0), (self.early[k], -1.0)], ">", 0.0)

    def _come_before_or_after(self, s: int, other: Moment) -> None:
        """One of two moments comes first; what is early there is early at the other."""
        program = self._shared.program
        here, there = self._early(s), other._early(self._t)
        program.row([(here, 1.0), (there, 1.0)], "=", 1.0)
        for k in self.early.keys() & other.early.keys():
            ours, theirs = self.early[k], other.early[k]
            program.row([(ours, 1.0), (theirs, -1.0), (here, -1.0)], ">", -1.0)
            program.row([(theirs, 1.0), (ours, -1.0), (there, -1.0)], ">", -1.0)

    def _early(self, k: int) -> int:
        """The column of an op that may run before ``t`` or after it, and of what it follows."""
        if k not in self.early:
            self._add_early(k)
            self._follow_the_graph()
        return self.early[k]

    def _is_open(self, i: int) -> bool:
        """Whether rows are added for a tensor of which the graph leaves open whether it crosses."""
        problem = self._shared.problem
        return self._shared.open_ops and problem.size[i] >= SMALL * problem.budget.ram_bytes
