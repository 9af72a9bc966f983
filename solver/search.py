"""The search: rounds of an engine on the compact program, every solution held before the referee,
memory rows added where it finds one over budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from solver.compact import CompactProgram
from solver.engine import Engine
from solver.engine_messages import Bound, Finished, Incumbent
from solver.options import SolverOptions
from solver.problem import Problem
from solver.referee import RefereeError, Replay, replay, verify
from solver.schedule import Compute, Step

Objective: TypeAlias = Literal["energy", "time", "memory"]
Ending: TypeAlias = Literal["proven", "infeasible", "stopped"]


@dataclass(frozen=True)
class Progress:
    """Where the search stands: the best schedule's value and the proven bound, in joules (seconds,
    bytes) or None while there is none."""

    seconds: float
    round: int
    value: float | None
    bound: float | None


@dataclass
class Search:
    """One search for the least energy (time within the budget, memory within the deadline).

    ``steps`` is the best verified schedule so far, ``bound`` what is proven. ``incumbent`` offers a
    schedule to begin with. :meth:`run` may be ended by its deadline or by Ctrl-C and then keeps what
    it has.
    """

    problem: Problem
    objective: Objective
    options: SolverOptions
    on_progress: Callable[[Progress], None] = lambda _progress: None
    steps: tuple[Step, ...] | None = None
    value: float | None = None
    bound: float | None = None
    rounds: int = 0
    build_s: float = 0.0
    engine_version: str = ""
    interrupted: bool = False
    _values: list[float] | None = field(default=None, repr=False)

    def offer(self, steps: tuple[Step, ...], values: list[float] | None = None) -> Replay:
        """Take a schedule if it is valid and better. Raises :class:`RefereeError` if it is wrong."""
        if self.objective == "memory":
            result = replay(self.problem.graph, steps, self.problem.budget.covers)
            deadline_s = self.problem.budget.deadline_s
            if deadline_s is not None and result.time_s > deadline_s * (1 + 1e-9):
                raise RefereeError(len(steps), "is late")
        else:
            result = verify(self.problem.graph, steps, self.problem.budget)
        value = {"energy": result.energy_j, "time": result.time_s}.get(
            self.objective, result.peak_bytes
        )
        if self.value is None or value < self.value:
            self.value, self.steps = value, steps
            if values is not None:
                self._values = values
        return result

    def run(self, deadline: float) -> Ending:
        """Until proven within the gap, proven infeasible, or ``deadline`` on ``time.monotonic``.

        Raises :class:`~solver.engine.EngineFailed`.
        """
        self._started = time.monotonic()
        with Engine(self.options.engine) as engine:
            compact = CompactProgram(self.problem, self.objective)
            self.build_s = time.monotonic() - self._started
            exact = True
            try:
                while True:
                    self.rounds += 1
                    last, finished = self._round(engine, compact, deadline, exact)
                    if self.proven:
                        return "proven"
                    if finished.outcome == "infeasible":
                        return "infeasible" if exact else "stopped"
                    if finished.outcome == "stopped" or last is None:
                        return "stopped"
                    exact &= self._add_memory_rows(compact, last)
            except KeyboardInterrupt:
                self.interrupted = True
                return "stopped"

    @property
    def proven(self) -> bool:
        if self.value is None or self.bound is None:
            return False
        return self.value - self.bound <= self.options.gap * abs(self.value) + 1e-12 * abs(
            self.value
        )

    def _round(
        self, engine: Engine, compact: CompactProgram, deadline: float, exact: bool
    ) -> tuple[Incumbent | None, Finished]:
        """One run of the engine; its last solution, and how it ended."""
        last: Incumbent | None = None
        scale = compact.constant or (self.value or compact.unit)
        saids = engine.minimise(
            compact.program,
            # A hair under the asked gap: rounding must not leave the proof just short of it.
            absolute_gap=0.999 * self.options.gap * scale / compact.unit,
            threads=self.options.threads,
            start=self._start(compact),
            deadline=deadline,
        )
        finished = Finished("stopped")
        for said in saids:
            match said:
                case Bound():
                    if exact:
                        self.bound = max(self.bound or 0.0, compact.value(said.objective))
                case Incumbent():
                    last = said
                    # Over budget inside a stage, where no row is yet? The next round has one.
                    with suppress(RefereeError):
                        self.offer(compact.steps(said.values), said.values)
                case Finished():
                    finished = said
            self.engine_version = engine.version
            self.on_progress(
                Progress(time.monotonic() - self._started, self.rounds, self.value, self.bound)
            )
            if self.proven:
                break
        return last, finished

    def _start(self, compact: CompactProgram) -> list[float] | None:
        if self._values is None:
            return None
        missing = len(compact.program.cost) - len(self._values)
        return [*self._values, *([0.0] * missing)]

    def _add_memory_rows(self, compact: CompactProgram, solution: Incumbent) -> bool:
        """Have RAM count wherever ``solution`` is over budget; whether the program stays exact."""
        budget = self.problem.budget.ram_bytes
        if self.objective == "memory":
            budget = round(compact.value(solution.objective))
        steps = compact.steps(solution.values)
        moments = replay(self.problem.graph, steps, self.problem.budget.covers).moments
        index = {op.name: k for k, op in enumerate(self.problem.graph.ops)}
        stage = 0
        added = False
        exceeded: dict[int, int] = {}
        for moment in moments:
            if not isinstance(moment.step, Compute):
                continue
            k = index[moment.step.op]
            if moment.bytes_during > budget:
                added |= compact.limit_memory_at(stage, k)
                exceeded[stage] = moment.bytes_during - budget
            if k == stage:
                stage += 1
        if added:
            return True
        # Every row that counts is there: the engine used its tolerance.
        for stage, excess in exceeded.items():
            compact.tighten_stage_memory(stage, excess)
        return False
