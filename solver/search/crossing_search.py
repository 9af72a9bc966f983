"""``CrossingSearch``: bounds for any order from the crossing program, and sketches of schedules."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from solver.engines.engine import Engine
from solver.engines.messages import Bound, Finished, Incumbent, Silence
from solver.engines.proofs import Proof
from solver.formulations.crossing import CrossingProgram, OrderKept
from solver.options import EngineName
from solver.problem.problem import Problem

# Most rounds of adding rows to the linear relaxation, and then to the integer program.
_MOST_RELAXATIONS, _MOST_ROUNDS = 12, 8
# Most ops that get memory rows in one round. The first relaxation has rows for one op: it is solved
# many times sooner than with all, and proves almost as much. Their number doubles from there.
_AT_ONCE = 8
# With open ops, rows for an op may bring nothing: so many rounds in a row that do not raise the
# bound by this, relative, end the search.
_IDLE_ROUNDS, _NOTICEABLE = 2, 1e-4
# Difference of a bound and a solution, relative, that the tolerances of engines explain.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Proven:
    """A proven lower bound on the energy of every schedule.

    ``proof`` is the engine's; None if the bound follows from the costs alone.
    """

    bound_j: float
    proof: Proof | None = None


@dataclass(frozen=True)
class Sketch:
    """An outline of a schedule, which need not fit the budget.

    ``makes`` lists, for some ops (by index, in the graph's order), the ops to recompute and the
    tensors to page in right before each.
    """

    makes: dict[int, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class NoSchedule:
    """A proof that no schedule satisfies the budget and the deadline."""

    proof: Proof


@dataclass(frozen=True)
class FalseBound:
    """A solution of the program refutes a bound that the engine has proven; the search ends."""


News: TypeAlias = Proven | Sketch | NoSchedule | FalseBound | Silence


class CrossingSearch:
    """Rounds of an engine on one growing crossing program.

    ``build_s`` is the time spent on building the program. Without ``presolve`` the engine searches
    programs as they are, which it always does with ``open_ops``: HiGHS 1.15.1 with presolve has
    proved a bound of such a program that a solution refutes, a fifth above the optimum.
    """

    def __init__(
        self,
        problem: Problem,
        order: OrderKept,
        engine: EngineName,
        threads: int,
        *,
        presolve: bool = True,
        open_ops: bool = False,
    ) -> None:
        began = time.monotonic()
        self.crossing = CrossingProgram(problem, order, open_ops=open_ops)
        self.build_s = time.monotonic() - began
        self.rounds = 0
        self.engine_version = ""
        # False proofs of the engine, which were corrected.
        self.faults: list[str] = []
        self._engine = engine
        self._threads = threads
        self._presolve = presolve and not open_ops
        self._open_ops = open_ops
        # The best bound on the objective so far, and what it was after each round.
        self._least = -math.inf
        self._after_rounds: list[float] = []

    def run(self, relative_gap: float, deadline: float) -> Iterator[News]:
        """Search, and yield results as they are found, until ``deadline`` on ``time.monotonic``.

        Raises :class:`~devices.errors.EngineFailed`.
        """
        crossing = self.crossing
        values: Sequence[float] = [0.0] * len(crossing.program.cost)
        # Sums of costs need no engine, which takes long for many ops.
        tight = crossing.tightest(values, _AT_ONCE)
        yield Proven(max(map(crossing.knapsack_j, tight), default=crossing.bound_j(0.0)))
        if not tight:
            return
        with Engine(self._engine) as engine:
            for earlier in range(_MOST_RELAXATIONS):
                tight = crossing.tightest(values, min(2**earlier, _AT_ONCE))
                if not tight or self._has_stalled:
                    break
                self._add_memory_rows(tight)
                solution: Incumbent | None = None
                for message in self._minimise(engine, 0.0, deadline, relax=True):
                    if isinstance(message, Incumbent):
                        solution = message
                        yield self._proven(message.objective)
                    elif isinstance(message, NoSchedule):
                        yield message
                        return
                    else:
                        yield Silence()
                if solution is None:
                    return
                values = solution.values
                self._after_rounds.append(self._least)
            yield from self._rounds(engine, relative_gap, deadline)

    def _rounds(self, engine: Engine, relative_gap: float, deadline: float) -> Iterator[News]:
        crossing = self.crossing
        absolute_gap = relative_gap * crossing.constant / crossing.unit
        for _ in range(_MOST_ROUNDS):
            self.rounds += 1
            solution: Incumbent | None = None
            ended = False
            for message in self._minimise(engine, absolute_gap, deadline, relax=False):
                match message:
                    case Bound():
                        yield self._proven(message.objective)
                    case Incumbent() if self._is_refuted_by(message):
                        yield FalseBound()
                        return
                    case Incumbent():
                        solution = message
                        yield Silence()
                    case NoSchedule():
                        yield message
                        return
                    case Finished():
                        ended = message.outcome == "optimal"
                    case _:
                        yield Silence()
            if solution is None:
                return
            yield Sketch(sketch(crossing, solution.values))
            if not ended:
                return
            self._after_rounds.append(self._least)
            tight = crossing.tightest(solution.values, _AT_ONCE)
            if not tight or self._has_stalled:
                return
            self._add_memory_rows(tight)

    def _proven(self, objective: float) -> Proven:
        crossing = self.crossing
        self._least = max(self._least, objective)
        return Proven(crossing.bound_j(objective), Proof.of(crossing.program, objective))

    def _is_refuted_by(self, solution: Incumbent) -> bool:
        """Whether a solution needs less than a bound that the engine has proven."""
        slack = _TOLERANCE * (1.0 + abs(self._least))
        return solution.objective < self._least - slack and self.crossing.program.satisfied_by(
            solution.values
        )

    @property
    def _has_stalled(self) -> bool:
        """Whether the last rounds brought nothing, so that rows for more ops hardly will."""
        after = self._after_rounds
        if not self._open_ops or len(after) <= _IDLE_ROUNDS:
            return False
        crossing = self.crossing
        before_j, now_j = (crossing.bound_j(after[k]) for k in (-1 - _IDLE_ROUNDS, -1))
        return now_j <= before_j * (1.0 + _NOTICEABLE)

    def _add_memory_rows(self, ops: Sequence[int]) -> None:
        began = time.monotonic()
        for t in ops:
            self.crossing.add_memory_rows(t)
        self.build_s += time.monotonic() - began

    def _minimise(
        self, engine: Engine, absolute_gap: float, deadline: float, *, relax: bool
    ) -> Iterator[Bound | Incumbent | Finished | Silence | NoSchedule]:
        for message in engine.minimise(
            self.crossing.program,
            absolute_gap=absolute_gap,
            threads=self._threads,
            start=None,
            deadline=deadline,
            relax=relax,
            presolve=self._presolve,
        ):
            self.engine_version = engine.version
            self.faults += [fault for fault in engine.faults if fault not in self.faults]
            if isinstance(message, Finished) and message.outcome == "infeasible":
                yield NoSchedule(Proof.of(self.crossing.program, None))
            elif isinstance(message, Bound | Incumbent | Finished | Silence):
                yield message


def sketch(
    crossing: CrossingProgram, values: Sequence[float]
) -> dict[int, tuple[tuple[str, int], ...]]:
    """Convert a solution to a sketch: recompute or page in right before the next op that reads."""
    problem = crossing.problem
    # Actions in their order; a dict finds one of them without a search.
    makes: dict[int, dict[tuple[str, int], None]] = {}

    def chosen(table: dict[int, int], key: int) -> bool:
        return key in table and values[table[key]] > 0.5

    def action_for(i: int) -> tuple[str, int] | None:
        if chosen(crossing.paged, i):
            return "page_in", i
        k = problem.producer[i]
        return ("compute", k) if chosen(crossing.again, k) else None

    def make(i: int, before: int, held: dict[int, int]) -> None:
        """Make a tensor, after what its op reads: chains may be longer than calls can nest."""
        here = makes.setdefault(before, {})
        waiting = [(i, False)]
        while waiting:
            tensor, has_operands = waiting.pop()
            action = action_for(tensor)
            if action is None or action in here:
                continue
            if has_operands or action[0] == "page_in":
                here[action] = None
                continue
            missing = (r for r in problem.reads[action[1]] if r in held and not chosen(held, r))
            waiting += [(tensor, True), *((read, False) for read in reversed(list(missing)))]

    for t in sorted(crossing.moments):
        held = crossing.moments[t].held
        for i in crossing.crossing(t):
            after = [r for r in problem.readers[i] if r > t]
            if after and not chosen(held, i):
                make(i, min(after), held)
    return {before: tuple(actions) for before, actions in makes.items()}
