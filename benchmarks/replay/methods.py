"""Methods side by side on one board: one program with every method's schedule, run in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Network, Problem, Progress, profiled, solved
from benchmarks.replay.turns import Runs, Scheduled, run_in_turns
from devices.description import DeviceDescription
from devices.documents.readable import si, size
from devices.replay import ExpectedStep
from profiler.run.options import ProfileOptions
from replay.expectation import expected_step
from replay.reporting.report import value_check
from solver.addresses.alignment import aligned
from solver.addresses.plan import plan_addresses, with_addresses
from solver.baselines.registry import run_baseline
from solver.problem.problem import Problem as SchedulingProblem
from solver.problem.schedule import Action, Budget, Schedule
from solver.time_limit import TimeLimit
from tests.support.graphs.schedules import UNSEARCHED, schedule_of

METHODS = ("keep-everything", "paging-only", "remat-only", "capuchin-like")
_ROUNDS = 2
_ADDRESSES_S = 10.0


_HEAD = (
    "method",
    "arena",
    "within the budget",
    "time, predicted",
    "time, measured",
    "energy, predicted",
    "energy, measured",
    "touched",
    "written a step",
    "values",
)

_TEXT = """
{network} on `{device}`, under {share:.0%} of its peak ({budget}), parameters in {parameters}. The
network is profiled ({blocks} blocks), scheduled by every method (at most {limit:g} s each) and run.
All schedules are in one program and run in turns, {rounds} rounds of {steps} steps.

- *Arena* is the RAM of the schedule with addresses, in the smallest arena that was found. Published
  methods count RAM as a sum of bytes, so they may exceed the budget with addresses.
- Times and energies are those of a step. Predicted energy is {predicted}; measured energy is
  {measured}.
- *Touched* is how much of the arena the board used.
- *Values* are identical if the checksums of loss, gradients and everything that is kept equal those
  of the unscheduled step.
"""


@dataclass(frozen=True)
class Question:
    """What to run: one network under one share of its peak."""

    description: DeviceDescription
    network: Network
    share: float
    steps: int
    profiling: ProfileOptions
    limit_s: float


@dataclass(frozen=True)
class Row:
    """A method's schedule that was run. ``energy_j`` is None where no step has an energy."""

    method: str
    arena_bytes: int
    budget_bytes: int
    expected: ExpectedStep
    time_s: float
    energy_j: float | None
    touched_bytes: int
    written_bytes: float
    identical: bool

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.method,
            size(self.arena_bytes),
            "yes" if self.arena_bytes <= self.budget_bytes else "no",
            si(self.expected.time_s.median, "s"),
            si(self.time_s, "s"),
            si(self.expected.energy_j.median, "J"),
            "–" if self.energy_j is None else si(self.energy_j, "J"),
            size(self.touched_bytes),
            size(self.written_bytes),
            "identical" if self.identical else "NOT IDENTICAL",
        )


def methods_page(question: Question, versions: Sequence[str], progress: Progress) -> Page:
    known = profiled(question.description, question.network, question.profiling, progress)
    problem = known.problem(question.share)
    schedules = _schedules(problem, question.limit_s, progress)
    subjects = [Scheduled(problem.graph, schedule) for schedule in schedules.values()]
    runs = run_in_turns(
        question.description, problem.step, subjects, question.steps, _ROUNDS, progress
    )
    cells = [row.cells for row in _rows(problem, schedules, runs)]
    blank = ("–",) * (len(_HEAD) - 2)
    cells += [(name, "no schedule", *blank) for name in (*METHODS, "ours") if name not in schedules]
    text = _TEXT.format(
        network=question.network,
        device=question.description.name,
        share=question.share,
        budget=size(problem.budget_bytes),
        parameters=problem.step.parameters_in,
        blocks=question.profiling.blocks,
        limit=question.limit_s,
        rounds=_ROUNDS,
        steps=question.steps,
        predicted=known.profile.energy_source,
        measured=runs.energy_source,
    )
    return Page("Methods side by side", text, [Table(_HEAD, cells)], versions)


def _schedules(problem: Problem, limit_s: float, progress: Progress) -> dict[str, Schedule]:
    """Schedules by method. Methods that find none are left out."""
    schedules: dict[str, Schedule] = {}
    for name in METHODS:
        progress(f"{name}: scheduling")
        found = _baseline(problem, name, limit_s)
        if found is not None:
            schedules[name] = found
    progress("ours: scheduling")
    schedules["ours"] = solved(problem, limit_s)
    return {name: schedule for name, schedule in schedules.items() if schedule.actions}


def _rows(problem: Problem, schedules: Mapping[str, Schedule], runs: Runs) -> Iterator[Row]:
    for number, (name, schedule) in enumerate(schedules.items()):
        watched, timed = runs.watched[number], runs.timed[number]
        steps = [step for record in timed for step in record.sound_steps]
        joules = [step.energy_j for step in steps if step.energy_j is not None]
        counters = timed[-1].counters
        assert counters is not None
        check = value_check(
            "the unscheduled step on the board",
            watched.plan,
            watched.steps,
            runs.reference.plan,
            runs.reference.steps,
        )
        yield Row(
            name,
            watched.plan.arena_bytes,
            problem.budget_bytes,
            expected_step(problem.graph, schedule),
            statistics.median(step.time_s for step in steps),
            statistics.median(joules) if joules else None,
            counters.touched_bytes,
            counters.bytes_out / counters.steps,
            check.identical,
        )


def _baseline(problem: Problem, name: str, limit_s: float) -> Schedule | None:
    """Schedule of a published method, with addresses in the smallest arena found. The arena may
    exceed the budget, because published methods count RAM as a sum of bytes. None if the method
    finds no schedule."""
    graph = problem.graph
    ram_bytes = problem.budget_bytes
    if name == "keep-everything":
        ram_bytes = 1 << 62
    result = run_baseline(name, SchedulingProblem(graph, Budget(ram_bytes=ram_bytes)), limit_s)
    if result.actions is None:
        return None
    until = time.monotonic() + _ADDRESSES_S
    plan = plan_addresses(graph, result.actions, "all", problem.budget_bytes, until)
    # As `solve` places those of its schedules.
    plan = aligned(plan, max(plan.arena_bytes, problem.budget_bytes), TimeLimit(until))
    actions: tuple[Action, ...] = with_addresses(result.actions, plan)
    return schedule_of(
        graph,
        actions,
        arena_bytes=plan.arena_bytes,
        solver=UNSEARCHED.model_copy(update={"formulation": name}),
        budget=Budget(ram_bytes=max(plan.arena_bytes, problem.budget_bytes)),
        resident_address=plan.resident_address,
    )
