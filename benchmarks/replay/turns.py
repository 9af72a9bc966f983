"""Several schedules of one step in one program, run in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from benchmarks.replay.cases import Cases, Network, Profiled, Progress, profiled
from devices.description import DeviceDescription
from devices.errors import JoulewrightError
from devices.operation import OpSpec
from devices.plan import ExecutionPlan
from networks.data import generated_batches
from networks.training.initial import initial_values
from networks.training.step import TrainingStep
from profiler.statistics import median_interval
from replay.lowering.lowering import lower, unscheduled
from replay.running.measured import ReplayRecord
from replay.running.opening import open_replay
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Schedule

_SEED = 0
_BATCHES = 8


@dataclass(frozen=True)
class Question(Cases):
    """What to run, and in how many rounds."""

    rounds: int


class Row(Protocol):
    """Figures of a case."""

    @property
    def cells(self) -> tuple[str, ...]: ...


_Row = TypeVar("_Row", bound=Row)


def rows_in_turns(
    question: Question,
    row_of: Callable[[Question, Profiled, float, Progress], _Row | str],
    width: int,
    progress: Progress,
) -> tuple[list[_Row], list[tuple[str, ...]]]:
    """Profile every network, and run it under every share of its peak.

    Args:
        question: What to run.
        row_of: Runs a case; returns its row, or why it has none.
        width: Cells of a row.
        progress: Called with what is done, and with every finished row.

    Returns:
        The rows, and the cells of all cases: those without a row say why.
    """
    rows: list[_Row] = []
    cells: list[tuple[str, ...]] = []
    for network, share, row in _cases(question, row_of, progress):
        if isinstance(row, str):
            cells.append((str(network), f"{share:.0%}", row, *("–",) * (width - 3)))
        else:
            rows.append(row)
            cells.append(row.cells)
        progress(" | ".join(cells[-1]))
    return rows, cells


def _cases(
    question: Question,
    row_of: Callable[[Question, Profiled, float, Progress], _Row | str],
    progress: Progress,
) -> Iterator[tuple[Network, float, _Row | str]]:
    for network in question.networks:
        try:
            known = profiled(question.description, network, question.profiling, progress)
        except JoulewrightError as error:
            yield from ((network, share, f"failed: {error}") for share in question.shares)
            continue
        for share in question.shares:
            try:
                row = row_of(question, known, share, progress)
            except JoulewrightError as error:
                row = f"failed: {error}"
            yield network, share, row


@dataclass(frozen=True)
class Scheduled:
    """A schedule, and the costs with which it was found."""

    graph: CostedGraph
    schedule: Schedule


@dataclass(frozen=True)
class Runs:
    """Records of every schedule, and of the unscheduled step. ``timed`` has one record a round."""

    watched: Sequence[ReplayRecord]
    timed: Sequence[Sequence[ReplayRecord]]
    reference: ReplayRecord
    energy_source: str


def run_in_turns(
    description: DeviceDescription,
    step: TrainingStep,
    subjects: Sequence[Scheduled],
    steps: int,
    rounds: int,
    progress: Progress,
) -> Runs:
    """Run schedules of a step: watched once, then every one of them in each round.

    The order in a round alternates, so that a board that warms up favours none.
    """

    def plans(workspace_bytes: Mapping[OpSpec, int]) -> Sequence[ExecutionPlan]:
        lowered = [lower(step, each.graph, each.schedule, workspace_bytes) for each in subjects]
        return [*lowered, unscheduled(step, workspace_bytes)]

    data = generated_batches(step, _BATCHES * step.batch, _SEED)
    batches = [data.batch(index) for index in range(steps)]
    initial = initial_values(step, _SEED)
    origin = subjects[0].graph.origin
    opened = open_replay(
        description,
        step.distinct_specs,
        plans,
        progress,
        matmul=None if origin is None else origin.matmul,
    )
    with opened as session:
        longest_s = max(each.schedule.time_s or 0.0 for each in subjects)

        def run(plan: int, *, watched: bool) -> ReplayRecord:
            return session.run(
                plan, initial, batches, steps=steps, watched=watched, expected_step_s=longest_s
            )

        numbers = range(len(subjects))
        reference = run(len(subjects), watched=True)
        watched = [run(number, watched=True) for number in numbers]
        timed: list[list[ReplayRecord]] = [[] for _ in numbers]
        for turn in range(rounds):
            progress(f"round {turn + 1} of {rounds}")
            for number in numbers if turn % 2 == 0 else reversed(numbers):
                timed[number].append(run(number, watched=False))
        return Runs(watched, timed, reference, session.energy_source or "not measured")


def ratio(ratios: Sequence[float]) -> str:
    """The median of the ratios of all rounds, with its 95 % interval."""
    if set(ratios) == {1.0}:
        return "1"
    interval = median_interval(ratios)
    return f"{interval.median:.3f} ({interval.low:.3f} to {interval.high:.3f})"
