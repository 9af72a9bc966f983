"""How right the predictions are: step time, RAM and values of schedules that were run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.replay.cases import Network, Progress, profiled, solved
from devices.description import DeviceDescription
from devices.documents.readable import si, size
from devices.replay import ExpectedStep
from networks.data import generated_batches
from profiler.statistics import median_interval
from replay.expectation import expected_step
from replay.runs import Replayed, Subject, Training, replay_schedule

_SEED = 0
_BATCHES = 8


@dataclass(frozen=True)
class Question:
    description: DeviceDescription
    networks: Sequence[Network]
    shares: Sequence[float]
    steps: int
    blocks: int
    limit_s: float


_HEAD = (
    "network",
    "budget",
    "parameters in",
    "predicted",
    "measured",
    "difference",
    "without transfers",
    "arena, bytes",
    "touched, bytes",
    "values",
    "unscheduled",
    "over it and what was added",
)


def accuracy(question: Question, progress: Progress) -> Iterator[str]:
    """Lines of Markdown. The last column is the measured step over the unscheduled step's measured
    time plus the predicted time of what the schedule recomputes and transfers, as far as transfers
    are not hidden behind ops."""
    yield f"| {' | '.join(_HEAD)} |"
    yield f"|{'---|' * len(_HEAD)}"
    differences: list[float] = []
    for network in question.networks:
        known = profiled(question.description, network, question.blocks, progress)
        for share in question.shares:
            problem = known.problem(share)
            progress(f"{network}, {share:.0%}: solving")
            schedule = solved(problem, question.limit_s)
            if not schedule.actions:
                yield f"| {network} | {share:.0%} | {schedule.status} |{' |' * (len(_HEAD) - 3)}"
                continue
            progress(f"{network}, {share:.0%}: running")
            expected = expected_step(problem.graph, schedule)
            training = Training(
                generated_batches(problem.step, _BATCHES * network.batch, _SEED),
                question.steps,
                _SEED,
            )
            subject = Subject(question.description, problem.step, problem.graph, schedule)
            replayed = replay_schedule(subject, training, expected.time_s.median, progress)
            row = _Row(network, share, problem.step.parameters_in, expected, replayed)
            differences.append(row.difference)
            yield row.line
    if differences:
        median = statistics.median(map(abs, differences))
        yield ""
        yield f"median difference of step times, either way: {100 * median:.1f} %"


@dataclass(frozen=True)
class _Row:
    network: Network
    share: float
    parameters_in: str
    expected: ExpectedStep
    replayed: Replayed

    @property
    def measured_s(self) -> float:
        times_s = [step.time_s for step in self.replayed.timed.sound_steps]
        return median_interval(times_s, _SEED).median

    @property
    def difference(self) -> float:
        return self.measured_s / self.expected.time_s.median - 1

    @property
    def line(self) -> str:
        plan, replayed = self.replayed.plan, self.replayed
        touched = replayed.measured.counters.touched_bytes
        same = replayed.checks and all(check.identical for check in replayed.checks)
        cells = (
            str(self.network),
            f"{self.share:.0%} ({size(self.expected.budget_bytes)})",
            self.parameters_in,
            si(self.expected.time_s.median, "s"),
            si(self.measured_s, "s"),
            f"{100 * self.difference:+.1f} %",
            self._without_transfers(),
            str(plan.arena_bytes),
            str(touched),
            "identical" if same else "NOT IDENTICAL" if replayed.checks else "not compared",
            *self._unscheduled(),
        )
        return f"| {' | '.join(cells)} |"

    def _without_transfers(self) -> str:
        """The difference of what ops take, each as the watched steps saw it."""
        predicted = measured = 0.0
        spans = [step.spans for step in self.replayed.watched.sound_steps]
        computes = {
            a.schedule_index: a for a in self.expected.actions if a.what in {"compute", "recompute"}
        }
        for number, action in enumerate(self.replayed.plan.actions):
            if action.schedule_index in computes:
                predicted += computes[action.schedule_index].time_s.median
                measured += statistics.median(span[number].time_s for span in spans)
        return f"{100 * (measured / predicted - 1):+.1f} %"

    def _unscheduled(self) -> tuple[str, str]:
        unscheduled = self.replayed.unscheduled
        if unscheduled is None:
            return "does not fit", "–"
        alone_s = statistics.median(step.time_s for step in unscheduled.sound_steps)
        once_s = sum(a.time_s.median for a in self.expected.actions if a.what == "compute")
        added_s = self.expected.time_s.median - once_s
        return si(alone_s, "s"), f"{self.measured_s / (alone_s + added_s):.2f}"
