"""Better schedules near a good one: the program with most of its columns fixed.

Large-neighbourhood search (Shaw, CP 1998): free are either all decisions of a stretch of stages, or
all decisions on what some stretches of ops make, in whatever stage. The stretches are drawn at
random; how long they are follows how the engine gets on with them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from solver.compact import CompactProgram
from solver.engine import Engine, EngineError, EngineName
from solver.engine_messages import Finished, Incumbent
from solver.overlap import meet_deadline
from solver.problem import Problem
from solver.program import Program
from solver.referee import RefereeError, verify
from solver.schedule import Step

# What one run of the engine may take, and what is so short that the next may be larger.
_MOST_S, _SHORT_S = 6.0, 1.5
# Free columns to begin with, and at least.
_FIRST_FREE, _FEWEST_FREE = 2500, 200
# How long it is waited for; while it builds its program it does not listen.
_LONGEST_FAREWELL_S = 1.0
# How often rows are added where a solution is refused, before the neighbourhood is given up.
_MOST_REPAIRS = 3


class Improver:
    """Looks for schedules of less energy in a thread, with one engine after the other in a process
    of its own, beside the search proper. A context manager."""

    def __init__(
        self, problem: Problem, steps: tuple[Step, ...], engine: EngineName, *, simplify: bool
    ) -> None:
        self._problem = problem
        self._engine: EngineName = engine
        self._simplify = simplify
        self._offered: tuple[Step, ...] | None = steps
        self._found: tuple[Step, ...] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._improve, daemon=True)

    def offer(self, steps: tuple[Step, ...]) -> None:
        """A schedule to go on from, if it is better."""
        self._offered = steps

    def found(self) -> tuple[Step, ...] | None:
        """The best schedule since this was last asked, if there is a new one."""
        found, self._found = self._found, None
        return found

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
        self._thread.join(_LONGEST_FAREWELL_S)

    def _improve(self) -> None:
        chance = random.Random(0)  # noqa: S311
        vicinity = Vicinity(CompactProgram(self._problem, simplify=self._simplify))
        most_free = _FIRST_FREE
        while not self._stopped.is_set():
            offered, self._offered = self._offered, None
            if offered is not None:
                vicinity.move_to(offered)
            if vicinity.values is None:
                self._stopped.wait(1.0)
                continue
            began = time.monotonic()
            free = vicinity.stretch(most_free, chance)
            try:
                explored = vicinity.explore(free, self._engine, self._stopped)
            except EngineError:
                return  # it only helps; the search proper says what is wrong with the engine
            if vicinity.better is not None:
                self._found, vicinity.better = vicinity.better, None
            if not explored:
                most_free = max(_FEWEST_FREE, most_free * 2 // 3)
            elif time.monotonic() - began < _SHORT_S:
                most_free = min(len(vicinity.places), most_free * 5 // 4)


class Vicinity:
    """A solution of a program, and what is near it. ``better`` is the schedule of the last solution
    that :meth:`explore` moved to."""

    def __init__(self, compact: CompactProgram) -> None:
        self.places = _places(compact)
        self.values: list[float] | None = None
        self.better: tuple[Step, ...] | None = None
        self._objective = float("inf")
        self._compact = compact

    def move_to(self, steps: tuple[Step, ...]) -> None:
        """If the program has this schedule and it is better."""
        values = self._compact.values_of(steps)
        if values is not None:
            objective = self._compact.program.objective(values)
            if objective < self._objective:
                self.values, self._objective = values, objective

    def stretch(self, most_free: int, chance: random.Random) -> set[int]:
        """Columns close to a random stage, or to some random ops; all that page out."""
        end = len(self._compact.problem.graph.ops)
        by_op = chance.random() < 0.75
        centres = [chance.randrange(end) for _ in range(chance.choice((1, 3, 6)) if by_op else 1)]
        distance = {
            column: min(abs(place[by_op] - centre) for place in where for centre in centres)
            for column, where in self.places.items()
        }
        closest = sorted(distance, key=lambda column: distance[column])[:most_free]
        return {*closest, *self._compact.page_out.values()}

    def explore(self, free: set[int], engine_name: EngineName, stopped: threading.Event) -> bool:
        """Move to the best solution with all columns but the ``free`` ones as they are. True if it
        is the best for certain."""
        deadline = time.monotonic() + _MOST_S
        for _ in range(_MOST_REPAIRS):
            assert self.values is not None
            part = _Part(self._compact.program, self.values, free)
            best: Incumbent | None = None
            explored = False
            with Engine(engine_name) as engine:
                for said in engine.minimise(
                    part.program,
                    absolute_gap=1e-6,
                    threads=1,
                    start=part.start,
                    deadline=deadline,
                ):
                    match said:
                        case Incumbent():
                            best = said
                        case Finished():
                            explored = said.outcome == "optimal"
                    if stopped.is_set():
                        return False
            if best is None or self._take(part.complete(best.values)):
                return explored
        return False

    def _take(self, values: list[float]) -> bool:
        """False if the schedule is over budget and rows were added that say so."""
        objective = self._compact.program.objective(values)
        if objective >= self._objective - 1e-9:
            return True
        problem = self._compact.problem
        steps = self._compact.steps(values)
        try:
            verify(problem.graph, meet_deadline(problem, steps), problem.budget)
        except RefereeError:
            return not self._compact.memory_cuts(values, problem.budget.ram_bytes, per_stage=20)
        self.values, self._objective, self.better = values, objective, steps
        return True


def _places(compact: CompactProgram) -> dict[int, list[tuple[int, int]]]:
    """For each column of a decision the stages it concerns, each with the op that makes what it is
    about (-1: none does)."""
    producer = compact.problem.producer
    places: dict[int, list[tuple[int, int]]] = {}
    for (stage, k), column in compact.recompute.items():
        places.setdefault(column, []).append((stage, k))
    for table in (compact.retain, compact.page_in):
        for (stage, i), column in table.items():
            places.setdefault(column, []).append((stage, producer[i]))
    for i, column in compact.page_out.items():
        places.setdefault(column, []).append((producer[i], producer[i]))
    return places


class _Part:
    """A program with all columns fixed that are integer and not ``free``."""

    def __init__(self, whole: Program, values: Sequence[float], free: set[int]) -> None:
        self._values = list(values)
        self._columns = [
            column
            for column, integer in enumerate(whole.integer)
            if not integer or (column in free and whole.lower[column] < whole.upper[column])
        ]
        number = {column: n for n, column in enumerate(self._columns)}
        self.program = Program(
            [whole.lower[c] for c in self._columns],
            [whole.upper[c] for c in self._columns],
            [whole.cost[c] for c in self._columns],
            [whole.integer[c] for c in self._columns],
        )
        for row in whole.rows:
            terms, right_side = [], row.right_side
            for column, coefficient in zip(row.columns, row.coefficients, strict=True):
                if column in number:
                    terms.append((number[column], coefficient))
                else:
                    right_side -= coefficient * values[column]
            if terms:
                self.program.row(terms, row.sense, right_side)
        self.start = [values[c] for c in self._columns]

    def complete(self, values: Sequence[float]) -> list[float]:
        """The whole program's values."""
        whole = list(self._values)
        for column, value in zip(self._columns, values, strict=True):
            whole[column] = value
        return whole
