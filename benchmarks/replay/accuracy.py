"""Accuracy of predictions: step time, RAM and values of schedules that were run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Network, Profiled, Progress, profiled, solved
from devices.description import DeviceDescription
from devices.documents.readable import si, size
from devices.replay import ExpectedStep
from networks.data import generated_batches
from profiler.statistics import median_interval
from replay.expectation import expected_step
from replay.runs import Replayed, Subject, Training, replay_schedule

_SEED = 0
_BATCHES = 8

_HEAD = (
    "network",
    "budget",
    "parameters in",
    "predicted",
    "measured",
    "difference",
    "ops alone",
    "arena, bytes",
    "touched, bytes",
    "values",
    "unscheduled",
    "over sum",
)

_TEXT = """
Each network is profiled on `{device}` ({blocks} blocks), solved (at most {limit:g} s) and run
({steps} steps), one immediately after the other. Joules are not compared here.

- *Budget* is a share of the RAM of the step without recomputation and paging. Parameters are in
  storage where they alone exceed it.
- *Predicted*, *measured* and *difference* are those of the time of a step. *Ops alone* is the
  difference of the time in operations, without transfers, from steps watched action by action.
- *Arena* is the RAM that was predicted, *touched* how much of it the board used.
- *Values* are identical if the checksums of loss, gradients and everything that is kept equal those
  of the unscheduled step in every step.
- *Unscheduled* is the measured time of the step without a schedule. *Over sum* is the measured
  step over the sum of that time and the predicted time that the schedule adds.
"""


@dataclass(frozen=True)
class Question:
    """What to run: every network under every share of its peak."""

    description: DeviceDescription
    networks: Sequence[Network]
    shares: Sequence[float]
    steps: int
    blocks: int
    limit_s: float


@dataclass(frozen=True)
class Unsolved:
    """A case without a schedule."""

    network: Network
    share: float
    status: str

    @property
    def cells(self) -> tuple[str, ...]:
        filled = (str(self.network), f"{self.share:.0%}", self.status.replace("_", " "))
        return (*filled, *("–" for _ in _HEAD[len(filled) :]))


@dataclass(frozen=True)
class Row:
    """A case that was run."""

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
    def cells(self) -> tuple[str, ...]:
        plan, replayed = self.replayed.plan, self.replayed
        same = replayed.checks and all(check.identical for check in replayed.checks)
        return (
            str(self.network),
            f"{self.share:.0%} ({size(self.expected.budget_bytes)})",
            self.parameters_in,
            si(self.expected.time_s.median, "s"),
            si(self.measured_s, "s"),
            f"{100 * self.difference:+.1f} %",
            self._difference_of_ops(),
            str(plan.arena_bytes),
            str(replayed.measured.counters.touched_bytes),
            "identical" if same else "NOT IDENTICAL" if replayed.checks else "not compared",
            *self._unscheduled_cells(),
        )

    def _difference_of_ops(self) -> str:
        """Difference of the time in operations, from the watched steps."""
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

    def _unscheduled_cells(self) -> tuple[str, str]:
        unscheduled = self.replayed.unscheduled
        if unscheduled is None:
            return "does not fit", "–"
        alone_s = statistics.median(step.time_s for step in unscheduled.sound_steps)
        once_s = sum(a.time_s.median for a in self.expected.actions if a.what == "compute")
        added_s = self.expected.time_s.median - once_s
        return si(alone_s, "s"), f"{self.measured_s / (alone_s + added_s):.2f}"


def accuracy_page(question: Question, versions: Sequence[str], progress: Progress) -> Page:
    rows: list[Row | Unsolved] = []
    for row in _rows(question, progress):
        progress(" | ".join(row.cells))
        rows.append(row)
    sizes = [abs(row.difference) for row in rows if isinstance(row, Row)]
    note = ""
    if sizes:
        note = (
            f"The step time differs by {100 * statistics.median(sizes):.1f} % in the median of"
            f" {len(sizes)} cases, and by {100 * max(sizes):.1f} % in the worst."
        )
    text = _TEXT.format(
        device=question.description.name,
        blocks=question.blocks,
        limit=question.limit_s,
        steps=question.steps,
    )
    table = Table(_HEAD, [row.cells for row in rows], note=note)
    return Page("How right the predictions are", text, [table], versions)


def _rows(question: Question, progress: Progress) -> Iterator[Row | Unsolved]:
    for network in question.networks:
        known = profiled(question.description, network, question.blocks, progress)
        for share in question.shares:
            yield _row(question, known, share, progress)


def _row(question: Question, known: Profiled, share: float, progress: Progress) -> Row | Unsolved:
    network, problem = known.network, known.problem(share)
    progress(f"{network}, {share:.0%}: solving")
    schedule = solved(problem, question.limit_s)
    if not schedule.actions:
        return Unsolved(network, share, schedule.status)
    progress(f"{network}, {share:.0%}: running")
    expected = expected_step(problem.graph, schedule)
    batches = generated_batches(problem.step, _BATCHES * network.batch, _SEED)
    replayed = replay_schedule(
        Subject(question.description, problem.step, problem.graph, schedule),
        Training(batches, question.steps, _SEED),
        expected.time_s.median,
        progress,
    )
    return Row(network, share, problem.step.parameters_in, expected, replayed)
