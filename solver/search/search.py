"""``Search``: rounds of an engine on a program, with cuts for solutions that the referee rejects.

The referee checks the schedule of every solution. If one exceeds the budget, memory rows that
exclude it are added.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from solver.engines.engine import Engine
from solver.engines.messages import Bound, EngineMessage, Finished, Incumbent
from solver.engines.proofs import Proof
from solver.formulations.compact.formulation import CompactFormulation
from solver.formulations.formulation import Formulation
from solver.formulations.scaled_costs import Objective
from solver.formulations.staged import RESTRICTIONS
from solver.options import SolverOptions
from solver.overlap.alone import runs_beside_ops
from solver.overlap.overlap import meet_deadline, one_at_a_time, overlap_transfers
from solver.problem.claims import Claim, Evidence, ScheduleClass
from solver.problem.problem import Problem
from solver.problem.replaced import Replaced
from solver.problem.schedule import Action
from solver.referee.referee import Late, RefereeError, Replay, replay, verify
from solver.time_limit import OutOfTime, TimeLimit

# How a search ends; "spent": nothing is left to try, and nothing is proven.
Ending: TypeAlias = Literal["proven", "infeasible", "time_limit", "spent", "interrupted"]
# Builds the formulation of a problem and an objective; simplified, if it can be, when True.
Build: TypeAlias = Callable[[Problem, Objective, bool], Formulation]

# Largest number of relaxations solved before the integer program.
_MOST_RELAXATIONS = 12
# Shortest time that an engine with a rejected solution may continue.
_LEAST_PATIENCE_S = 5.0
# Difference of two values of an objective, relative, that the tolerances of engines explain.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Progress:
    """State of a search: value of the incumbent and proven bound, None while unknown.

    Both are in the unit of the objective: joules, seconds or bytes. ``seconds`` is elapsed time;
    ``phase`` says what is done at present.
    """

    seconds: float
    round: int
    value: float | None
    bound: float | None
    phase: str = "searching"


class _FalseProof(Exception):
    """An engine proved what the best schedule refutes; the text says what, for a note."""


class Companion(Protocol):
    """A search that runs at the same time and exchanges schedules, such as annealing."""

    def found(self) -> tuple[Action, ...] | None:
        """The best schedule, if it is new since the last call; otherwise None."""
        ...

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Suggest a schedule to continue from, if it is better."""
        ...


def build_compact(problem: Problem, objective: Objective, simplify: bool) -> CompactFormulation:
    """Build the compact formulation of a problem."""
    return CompactFormulation(problem, objective, simplify=simplify)


@dataclass
class Search:
    """One search for the least energy (or time within the budget, or memory within the deadline).

    ``actions`` is the best verified schedule so far, ``value`` its objective and ``bound`` the
    proven lower bound. They are kept if :meth:`run` is ended by its deadline or by Ctrl-C.
    ``by`` is what proves the bound, or that no schedule exists after :meth:`run` has ended so.
    """

    problem: Problem
    objective: Objective
    options: SolverOptions
    on_progress: Callable[[Progress], None] = lambda _progress: None
    build: Build = build_compact
    companion: Companion | None = None
    actions: tuple[Action, ...] | None = None
    value: float | None = None
    bound: float | None = None
    by: Evidence = "costs"
    rounds: int = 0
    build_s: float = 0.0
    engine_version: str = ""
    # False proofs of the engine, which were corrected.
    faults: list[str] = field(default_factory=list)
    phase: str = "searching"
    restrictions: tuple[str, ...] = RESTRICTIONS
    # The actions in the form that formulations can express: without transfers beside ops.
    _plain: tuple[Action, ...] | None = None
    _rank: tuple[float, int] | None = None
    _replaced: Replaced[tuple[Action, ...]] = field(default_factory=Replaced)
    _exact: bool = True
    # The rest of a program with an unproven bound has no better solution.
    _is_spent: bool = False
    # Whether engines simplify programs first: not after a proof turned out to be false.
    _presolve: bool = True
    _started: float = field(default_factory=time.monotonic)

    def offer(self, actions: tuple[Action, ...]) -> Replay:
        """Make a schedule the incumbent if it is better, and return its replay.

        Transfers are run beside ops if the deadline or the objective requires it.

        Raises :class:`RefereeError` if the schedule is not valid.
        """
        plain = one_at_a_time(self.problem, actions) if runs_beside_ops(actions) else actions
        judged = self._judged(actions)
        actions = self._timed(judged, actions)
        result = verify(judged.graph, actions, judged.budget)
        value = {"energy": result.energy_j, "time": result.time_due_s(judged.budget)}.get(
            self.objective, result.peak_bytes
        )
        # Of two equally good schedules, prefer the one that writes less to storage. Energies and
        # times are sums of doubles, which differ in their last digits.
        compared = value if self.objective == "memory" else float(f"{value:.9g}")
        rank = (compared, result.bytes_written_to_storage)
        if self._rank is None or rank < self._rank:
            if self.actions is not None:
                self._replaced.append(self.actions)
            self.value, self.actions, self._rank = value, actions, rank
            self._plain = plain
        return result

    def offer_if_valid(self, actions: tuple[Action, ...]) -> None:
        """Make a schedule the incumbent if it is better and within the budget and deadline."""
        with suppress(RefereeError):
            self.offer(actions)

    @property
    def earlier(self) -> tuple[tuple[Action, ...], ...]:
        """Some schedules that the best one has replaced, latest first."""
        return tuple(self._replaced.some)

    def _judged(self, actions: tuple[Action, ...]) -> Problem:
        """The problem to verify ``actions`` against.

        If memory is the objective, its budget is the peak of ``actions``.
        """
        if self.objective != "memory":
            return self.problem
        graph, budget = self.problem.graph, self.problem.budget
        peak_bytes = replay(graph, actions, budget.covers).peak_bytes
        return Problem(graph, budget.model_copy(update={"ram_bytes": peak_bytes}))

    def _timed(self, judged: Problem, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Run transfers beside ops if possible and if the deadline or objective requires it."""
        if self.objective == "time" and judged.overlaps:
            return overlap_transfers(judged, actions)
        return meet_deadline(judged, actions)

    def run(self, deadline: float) -> Ending:
        """Search until proven within the gap, proven infeasible, or ``deadline``.

        ``deadline`` is on ``time.monotonic``. Raises :class:`~devices.errors.EngineFailed`.
        """
        try:
            with TimeLimit(deadline).enforced():
                return self._run(deadline)
        except OutOfTime:  # the program was not built in time
            return "time_limit"

    def _run(self, deadline: float) -> Ending:
        if self.objective != "energy":
            return self._search(self._built(simplify=False), deadline)
        unrestricted = self.bound, self.by
        simplified = self._built(simplify=True)
        ending = self._search(simplified, deadline)
        if ending != "infeasible":
            return ending
        whole = self._built(simplify=False)
        if whole.restrictions == simplified.restrictions:
            return ending  # nothing was simplified
        self.bound, self.by = unrestricted
        return self._search(whole, deadline)

    def _built(self, *, simplify: bool) -> Formulation:
        began = time.monotonic()
        formulation = self.build(self.problem, self.objective, simplify)
        self.build_s += time.monotonic() - began
        return formulation

    def _search(self, formulation: Formulation, deadline: float) -> Ending:
        """Search with a formulation; again without presolve after a false proof."""
        before = self.bound, self.by
        try:
            return self._search_rounds(formulation, deadline)
        except _FalseProof as fault:
            self.bound, self.by = before
            self.faults.append(f"{fault}{'' if self._presolve else ', even without presolve'}")
            if not self._presolve:
                return "spent"
        self._presolve = False
        return self._search(formulation, deadline)

    def _search_rounds(self, formulation: Formulation, deadline: float) -> Ending:
        self.restrictions = formulation.restrictions
        self._exact, self._is_spent = True, False
        try:
            if not self._cut_relaxation(formulation, deadline):
                return self._infeasible(formulation)
            while not self.proven:
                self.rounds += 1
                wrong, finished = self._round(formulation, deadline)
                if self.proven:
                    break
                if finished.outcome == "infeasible" and self._exact:
                    return self._infeasible(formulation)
                if self._is_spent:
                    return "spent"
                if time.monotonic() >= deadline:
                    return "time_limit"
                if wrong is not None:
                    self._rule_out(formulation, wrong)
                elif not self._expect_less(formulation):
                    return "spent"
        except KeyboardInterrupt:
            return "interrupted"
        return "proven"

    @property
    def proven(self) -> bool:
        return self.bound is not None and self._is_within_gap(self.bound)

    def _is_within_gap(self, bound: float) -> bool:
        if self.value is None:
            return False
        return self.value - bound <= (self.options.gap + 1e-12) * abs(self.value)

    def _cut_relaxation(self, formulation: Formulation, deadline: float) -> bool:
        """Solve the linear relaxation and add the memory rows that it violates, until none is.

        The relaxation is cheap to solve and its optimum is a first bound. Returns False if it is
        infeasible.
        """
        with Engine(self.options.engine) as engine:
            for _ in range(_MOST_RELAXATIONS):
                relaxed: Incumbent | None = None
                for message in self._minimise(
                    engine, formulation, deadline, self.options.threads, relax=True
                ):
                    if isinstance(message, Incumbent):
                        relaxed = message
                    if isinstance(message, Finished) and message.outcome == "infeasible":
                        return False
                if relaxed is None:
                    return True
                self._raise_bound(formulation, relaxed.objective)
                self.report()
                ram_bytes = self._budget_of(formulation, relaxed)
                if not formulation.add_memory_cuts(relaxed.values, ram_bytes, per_stage=1):
                    return True
        return True

    def _round(
        self, formulation: Formulation, deadline: float
    ) -> tuple[Incumbent | None, Finished]:
        """Run the engine once; return its best solution if the referee rejected it, and the ending.

        An engine does not look for solutions worse than its incumbent. A run whose incumbent was
        rejected is therefore soon ended.
        """
        wrong: Incumbent | None = None
        finished = Finished("stopped")
        began = time.monotonic()
        patience = deadline
        with Engine(self.options.engine) as engine:
            threads = max(1, self.options.threads - (self.companion is not None))
            for message in self._minimise(engine, formulation, deadline, threads):
                if self.companion is not None and (better := self.companion.found()) is not None:
                    self.offer(better)
                match message:
                    case Bound():
                        self._raise_bound(formulation, message.objective)
                    case Incumbent():
                        fault = self._fault(formulation, message)
                        wrong = None if fault is None else message
                        if fault is not None:
                            patience = min(patience, self._patience(fault, began, deadline))
                    case Finished():
                        finished = message
                self.report()
                if (
                    self.proven
                    or self._is_spent
                    or (wrong is not None and time.monotonic() > patience)
                ):
                    break
        return wrong, finished

    def _fault(self, formulation: Formulation, solution: Incumbent) -> RefereeError | None:
        """Offer the schedule of a solution; return why it is rejected, or None.

        It is rejected if it is invalid, or if it needs more RAM than the solution says. The latter
        is not a fault of the schedule if memory is the objective.
        """
        actions = formulation.decode(solution.values)
        try:
            result = self.offer(actions)
        except RefereeError as error:
            return error
        if self.companion is not None:
            self.companion.offer(actions)
        if result.peak_bytes > self._budget_of(formulation, solution):
            return RefereeError(result.peak_action, "needs more RAM than the solution says")
        return None

    def _patience(self, fault: RefereeError, began: float, deadline: float) -> float:
        """Time until which an engine may continue with a rejected solution."""
        if isinstance(fault, Late) and self.problem.overlaps and self._exact:
            # The program does not know how much of the transfers can be hidden. While it assumes
            # all of them, its bounds are valid.
            return began + (deadline - began) / 2
        now = time.monotonic()
        return now + max(_LEAST_PATIENCE_S, now - began)

    def _minimise(
        self,
        engine: Engine,
        formulation: Formulation,
        deadline: float,
        threads: int,
        *,
        relax: bool = False,
    ) -> Iterator[EngineMessage]:
        scale = formulation.costs.constant or self.value or formulation.costs.unit
        for message in engine.minimise(
            formulation.program,
            # Slightly below the requested gap, so that rounding cannot prevent the proof.
            absolute_gap=0.999 * self.options.gap * scale / formulation.costs.unit,
            threads=threads,
            start=None if relax or self._plain is None else formulation.encode(self._plain),
            deadline=deadline,
            relax=relax,
            presolve=self._presolve,
        ):
            self.engine_version = engine.version
            self.faults += [fault for fault in engine.faults if fault not in self.faults]
            yield message

    def _raise_bound(self, formulation: Formulation, objective: float) -> None:
        bound = formulation.costs.bound(objective)
        if self._exact:
            if (
                self.value is not None
                and bound > self.value
                and self._refutes(formulation, objective)
            ):
                raise _FalseProof("proved a bound that a solution refutes")
            if bound > (self.bound or 0.0):
                self.by = Proof.of(formulation.program, objective)
            self.bound = max(self.bound or 0.0, bound)
        elif self._is_within_gap(bound):
            self._is_spent = True

    def _infeasible(self, formulation: Formulation) -> Ending:
        """Believe that the program has no solution, unless the best schedule is one."""
        if self._refutes(formulation, None):
            raise _FalseProof("called a program infeasible that has a solution")
        self.by = Proof.of(formulation.program, None)
        return "infeasible"

    def _refutes(self, formulation: Formulation, objective: float | None) -> bool:
        """Whether the best schedule is a solution that contradicts what an engine proved.

        ``objective`` is the bound that it proved, None if it proved that no solution exists. A
        schedule that the program excludes contradicts neither.
        """
        values = None if self._plain is None else formulation.encode(self._plain)
        if values is None or not formulation.program.satisfied_by(values):
            return False
        if objective is None:
            return True
        least = formulation.program.objective(values)
        return objective > least + _TOLERANCE * (1.0 + abs(least))

    @property
    def claim(self) -> Claim:
        """The bound, for the class that the program covers."""
        return self.claim_of(self.bound or 0.0)

    def claim_of(self, least_j: float) -> Claim:
        """A claim about the class that the program covers, by what was proven last."""
        covers = ScheduleClass.named(self.restrictions, self.problem.graph.order)
        return Claim(least_j, self.problem.budget, covers, self.by)

    def report(self) -> None:
        """Report progress."""
        elapsed_s = time.monotonic() - self._started
        progress = Progress(elapsed_s, self.rounds, self.value, self.bound, self.phase)
        self.on_progress(progress)

    def _budget_of(self, formulation: Formulation, solution: Incumbent) -> int:
        """Bytes of RAM that a solution claims to need at most."""
        if self.objective == "memory":
            return round(formulation.costs.value(solution.objective))
        return self.problem.budget.ram_bytes

    def _expect_less(self, formulation: Formulation) -> bool:
        """If time is the objective, assume that fewer transfers can be hidden.

        This leads to other schedules. Returns whether that was possible; later bounds are unproven.
        """
        if self.objective != "time" or not formulation.deadline.charge(0.0):
            return False
        self._exact = False
        return True

    def _rule_out(self, formulation: Formulation, solution: Incumbent) -> None:
        """Add or tighten rows so that ``solution`` is excluded.

        Raises :class:`RefereeError` if it is neither over the budget nor late: then the formulation
        and the referee disagree, which is a defect.
        """
        ram_bytes = self._budget_of(formulation, solution)
        if formulation.add_memory_cuts(solution.values, ram_bytes, per_stage=20):
            return
        # No row is missing: fewer transfers can be hidden than the program assumed, or the engine
        # used its tolerance.
        self._exact = False
        actions = formulation.decode(solution.values)
        budget = self.problem.budget
        result = replay(self.problem.graph, actions, budget.covers)
        if result.peak_bytes > ram_bytes:
            formulation.memory.tighten(result.peak_bytes - ram_bytes)
        elif budget.deadline_s is not None and self.objective != "time":
            timed = self._timed(self._judged(actions), actions)
            result = replay(self.problem.graph, timed, budget.covers)
            if not formulation.deadline.charge(_share_to_charge(result, budget.deadline_s)):
                formulation.deadline.tighten(result.time_due_s(budget) - budget.deadline_s)
        else:
            self.offer(actions)


def _share_to_charge(late: Replay, deadline_s: float) -> float:
    """Share of the transfers' time to count against the deadline after a late schedule.

    It is half way between the share that would just meet the deadline and the share that the
    schedule does not hide.
    """
    transfers_s = math.fsum(moment.transfer_s for moment in late.moments)
    if not transfers_s:
        return 1.0
    hidden_s = late.hidden_s + (late.time_s - deadline_s) / 2
    return 1.0 - min(1.0, hidden_s / transfers_s)
