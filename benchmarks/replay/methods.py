"""Methods side by side: one network on one board, every method's schedule in one program, run in
turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.replay.cases import Network, Problem, Progress, profiled, solved
from devices.description import DeviceDescription
from devices.documents.readable import si, size
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from networks.data import generated_batches
from networks.training.initial import initial_values
from replay.expectation import expected_step
from replay.lowering.lowering import lower, unscheduled
from replay.reporting.report import value_check
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from solver.addresses.plan import plan_addresses, with_addresses
from solver.baselines.registry import run_baseline
from solver.problem.problem import Problem as SchedulingProblem
from solver.problem.schedule import Action, Budget, Schedule
from tests.support.graphs.schedules import UNSEARCHED, schedule_of

METHODS = ("keep-everything", "paging-only", "remat-only", "capuchin-like")
_ROUNDS = 2
_ADDRESSES_S = 10.0
_SEED = 0
_BATCHES = 8


@dataclass(frozen=True)
class Question:
    description: DeviceDescription
    network: Network
    share: float
    steps: int
    blocks: int
    limit_s: float


_HEAD = (
    "method",
    "arena",
    "within the budget",
    "time: predicted",
    "measured",
    "energy: predicted",
    "measured",
    "touched",
    "written a step",
    "values",
)


def methods(question: Question, progress: Progress) -> Iterator[str]:
    """Lines of Markdown."""
    known = profiled(question.description, question.network, question.blocks, progress)
    problem = known.problem(question.share)
    schedules: dict[str, Schedule] = {}
    for name in METHODS:
        progress(f"{name}: scheduling")
        found = _baseline(problem, name, question.limit_s)
        if found is not None:
            schedules[name] = found
    progress("ours: scheduling")
    schedules["ours"] = solved(problem, question.limit_s)
    schedules = {name: schedule for name, schedule in schedules.items() if schedule.actions}
    budget = f"{question.share:.0%} of its peak ({size(problem.budget_bytes)})"
    yield (
        f"{question.network} on {question.description.name}, {budget}, parameters in"
        f" {problem.step.parameters_in}; energy predicted is {known.profile.energy_source}"
    )
    yield ""
    yield f"| {' | '.join(_HEAD)} |"
    yield f"|{'---|' * len(_HEAD)}"
    yield from _rows(question, problem, schedules, progress)
    for name in METHODS:
        if name not in schedules:
            yield f"| {name} | finds nothing within the budget |{' |' * (len(_HEAD) - 2)}"


def _rows(
    question: Question, problem: Problem, schedules: Mapping[str, Schedule], progress: Progress
) -> Iterator[str]:
    def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        scheduled = [
            lower(problem.step, problem.graph, schedule, workspace_bytes)
            for schedule in schedules.values()
        ]
        return [*scheduled, unscheduled(problem.step, workspace_bytes)]

    data = generated_batches(problem.step, _BATCHES * problem.step.batch, _SEED)
    batches = [data.batch(index) for index in range(question.steps)]
    initial = initial_values(problem.step, _SEED)
    origin = problem.graph.origin
    opened = open_replay(
        question.description,
        problem.step.distinct_specs,
        plans,
        progress,
        matmul=None if origin is None else origin.matmul,
    )
    with opened as session:

        def run(plan: int, *, watched: bool) -> ReplayRecord:
            return session.run(
                plan, initial, batches, steps=question.steps, watched=watched, expected_step_s=1.0
            )

        reference = run(len(schedules), watched=True)
        watched = [run(number, watched=True) for number in range(len(schedules))]
        timed: list[list[ReplayRecord]] = [[] for _ in schedules]
        for turn in range(_ROUNDS):
            progress(f"round {turn + 1} of {_ROUNDS}")
            for number in range(len(schedules)):
                timed[number].append(run(number, watched=False))
        source = session.energy_source or "not measured"
    for number, (name, schedule) in enumerate(schedules.items()):
        steps = [step for record in timed[number] for step in record.sound_steps]
        joules = [step.energy_j for step in steps if step.energy_j is not None]
        counters = timed[number][-1].counters
        assert counters is not None
        check = value_check(
            "the unscheduled step on the board",
            watched[number].plan,
            watched[number].steps,
            reference.plan,
            reference.steps,
        )
        expected = expected_step(problem.graph, schedule)
        arena_bytes = watched[number].plan.arena_bytes
        cells = (
            name,
            size(arena_bytes),
            "yes" if arena_bytes <= problem.budget_bytes else "no",
            si(expected.time_s.median, "s"),
            si(statistics.median(step.time_s for step in steps), "s"),
            si(expected.energy_j.median, "J"),
            f"{si(statistics.median(joules), 'J')} ({source})" if joules else "–",
            size(counters.touched_bytes),
            size(counters.bytes_out / counters.steps),
            "identical" if check.identical else "NOT IDENTICAL",
        )
        yield f"| {' | '.join(cells)} |"


def _baseline(problem: Problem, name: str, limit_s: float) -> Schedule | None:
    """With addresses in the smallest arena that is found for it: published methods count sums of
    bytes, so that it may be larger than the budget. None if it finds nothing."""
    graph = problem.graph
    ram_bytes = problem.budget_bytes
    if name == "keep-everything":
        ram_bytes = 1 << 62
    result = run_baseline(name, SchedulingProblem(graph, Budget(ram_bytes=ram_bytes)), limit_s)
    if result.actions is None:
        return None
    until = time.monotonic() + _ADDRESSES_S
    plan = plan_addresses(graph, result.actions, "all", problem.budget_bytes, until)
    actions: tuple[Action, ...] = with_addresses(result.actions, plan)
    return schedule_of(
        graph,
        actions,
        arena_bytes=plan.arena_bytes,
        solver=UNSEARCHED.model_copy(update={"formulation": name}),
        budget=Budget(ram_bytes=max(plan.arena_bytes, problem.budget_bytes)),
        resident_address=plan.resident_address,
    )
