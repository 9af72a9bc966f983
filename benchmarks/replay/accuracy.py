"""Accuracy of predictions: step time, RAM and values of schedules that were run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Cases, Network, Profiled, Progress, profiled, solved
from devices.documents.readable import si, size
from devices.errors import JoulewrightError
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
    "again",
    "difference",
    "run to run",
    "ops alone",
    "arena, bytes",
    "touched, bytes",
    "values",
    "unscheduled",
    "over sum",
)

_TEXT = """
Each network is profiled on `{device}` ({blocks} blocks, at most {written} written), solved (at most
{limit:g} s) and run ({steps} steps), one immediately after the other. Joules are not compared here.

- *Budget* is a share of the RAM of the step without recomputation and paging. Parameters are in
  storage where they alone exceed it.
- *Predicted*, *measured* and *difference* are those of the time of a step. *Ops alone* is the
  difference of the time in operations, without transfers, from steps watched action by action.
- *Again* is the same schedule, run again{later}, with the difference from the same prediction. *Run
  to run* is the difference of the two runs: what no prediction can know.
- *Arena* is the RAM that was predicted, *touched* how much of it the board used.
- *Values* are identical if the checksums of loss, gradients and everything that is kept equal those
  of the unscheduled step in every step.
- *Unscheduled* is the measured time of the step without a schedule. *Over sum* is the measured
  step over the sum of that time and the predicted time that the schedule adds.
"""


@dataclass(frozen=True)
class Question(Cases):
    """The schedules to run, and how many seconds later each is run a second time."""

    again_s: float | None
    """Seconds after which every schedule is run again; None for never."""


@dataclass(frozen=True)
class Missing:
    """A case without figures: no schedule was found, or it failed."""

    network: Network
    share: float
    why: str
    has_failed: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        why = f"failed: {self.why}" if self.has_failed else self.why
        filled = (str(self.network), f"{self.share:.0%}", why)
        return (*filled, *("–" for _ in _HEAD[len(filled) :]))


@dataclass(frozen=True)
class Row:
    """A case that was run. ``again_failed``: it could not be run again."""

    network: Network
    share: float
    parameters_in: str
    expected: ExpectedStep
    replayed: Replayed
    again: Replayed | None = None
    again_failed: bool = False

    @property
    def measured_s(self) -> float:
        return _step_s(self.replayed)

    @property
    def difference(self) -> float:
        return self.measured_s / self.predicted_s - 1

    @property
    def difference_again(self) -> float | None:
        return None if self.again is None else _step_s(self.again) / self.predicted_s - 1

    @property
    def run_to_run(self) -> float | None:
        return None if self.again is None else _step_s(self.again) / self.measured_s - 1

    @property
    def predicted_s(self) -> float:
        return self.expected.time_s.median

    @property
    def cells(self) -> tuple[str, ...]:
        plan, replayed = self.replayed.plan, self.replayed
        same = replayed.checks and all(check.identical for check in replayed.checks)
        return (
            str(self.network),
            f"{self.share:.0%} ({size(self.expected.budget_bytes)})",
            self.parameters_in,
            si(self.predicted_s, "s"),
            si(self.measured_s, "s"),
            _percent(self.difference),
            self._again_cell(),
            _percent(self.difference_again),
            _percent(self.run_to_run),
            self._difference_of_ops(),
            str(plan.arena_bytes),
            str(replayed.measured.counters.touched_bytes),
            "identical" if same else "NOT IDENTICAL" if replayed.checks else "not compared",
            *self._unscheduled_cells(),
        )

    def _again_cell(self) -> str:
        if self.again is None:
            return "failed" if self.again_failed else "–"
        return si(_step_s(self.again), "s")

    def _difference_of_ops(self) -> str:
        """Difference of the time in operations, from the watched steps."""
        predicted = measured = 0.0
        spans = [step.spans for step in self.replayed.watched.sound_steps]
        if not spans:
            return "–"
        computes = {
            a.schedule_index: a for a in self.expected.actions if a.what in {"compute", "recompute"}
        }
        for number, action in enumerate(self.replayed.plan.actions):
            if action.schedule_index in computes:
                predicted += computes[action.schedule_index].time_s.median
                measured += statistics.median(span[number].time_s for span in spans)
        return _percent(measured / predicted - 1)

    def _unscheduled_cells(self) -> tuple[str, str]:
        unscheduled = self.replayed.unscheduled
        if unscheduled is None:
            return "does not fit", "–"
        if not unscheduled.sound_steps:
            return "–", "–"
        alone_s = statistics.median(step.time_s for step in unscheduled.sound_steps)
        once_s = sum(a.time_s.median for a in self.expected.actions if a.what == "compute")
        added_s = self.predicted_s - once_s
        return si(alone_s, "s"), f"{self.measured_s / (alone_s + added_s):.2f}"


@dataclass
class _Case:
    """A schedule that was run, and can be run again."""

    row: Row
    subject: Subject
    training: Training
    ran_s: float

    def run_again(self, after_s: float, progress: Progress) -> Row:
        """Run it again, ``after_s`` seconds after the first time. The row says if that failed."""
        left_s = self.ran_s + after_s - time.monotonic()
        if left_s > 0:
            progress(f"waiting for {left_s / 60:.0f} min")
            time.sleep(left_s)
        progress(f"{self.row.network}, {self.row.share:.0%}: running again")
        try:
            again = replay_schedule(self.subject, self.training, self.row.predicted_s, progress)
        except JoulewrightError as error:
            progress(str(error))
            return replace(self.row, again_failed=True)
        return replace(self.row, again=again)


def accuracy_page(question: Question, versions: Sequence[str], progress: Progress) -> Page:
    found: list[_Case | Missing] = []
    for case in _cases(question, progress):
        progress(" | ".join((case.row if isinstance(case, _Case) else case).cells))
        found.append(case)
    rows: list[Row | Missing] = []
    for case in found:
        if isinstance(case, Missing):
            rows.append(case)
        elif question.again_s is None:
            rows.append(case.row)
        else:
            rows.append(case.run_again(question.again_s, progress))
            progress(" | ".join(rows[-1].cells))
    again_s = question.again_s
    text = _TEXT.format(
        device=question.description.name,
        blocks=question.profiling.blocks,
        written=size(question.profiling.storage_budget_bytes),
        limit=question.limit_s,
        steps=question.steps,
        later="" if again_s is None else _later(again_s),
    )
    table = Table(_HEAD, [row.cells for row in rows], note=_note(rows))
    return Page("How right the predictions are", text, [table], versions)


def _later(again_s: float) -> str:
    minutes = round(again_s / 60)
    return (f" {minutes} min later," if minutes else "") + " after all others"


def _note(rows: Sequence[Row | Missing]) -> str:
    run = [row for row in rows if isinstance(row, Row)]
    failed = sum(isinstance(row, Missing) and row.has_failed for row in rows)
    failures = f" {failed} of {len(rows)} cases failed." if failed else ""
    if not run:
        return failures.strip()
    note = "The step time differs " + _spread([row.difference for row in run])
    later = [row.difference_again for row in run if row.difference_again is not None]
    apart = [row.run_to_run for row in run if row.run_to_run is not None]
    if later:
        note += f" Run again, it differs {_spread(later)} The two runs differ {_spread(apart)}"
    if without := sum(row.again_failed for row in run):
        note += f" {without} of {len(run)} cases failed when they were run again."
    return note + failures


def _spread(differences: Sequence[float]) -> str:
    sizes = [abs(each) for each in differences]
    return (
        f"by {100 * statistics.median(sizes):.1f} % in the median of {len(sizes)} cases, and by"
        f" {100 * max(sizes):.1f} % in the worst."
    )


def _cases(question: Question, progress: Progress) -> Iterator[_Case | Missing]:
    """All cases. One that fails is among them, and does not end the others."""
    for network in question.networks:
        try:
            known = profiled(question.description, network, question.profiling, progress)
        except JoulewrightError as error:
            yield from (
                Missing(network, share, str(error), has_failed=True) for share in question.shares
            )
            continue
        for share in question.shares:
            try:
                yield _case(question, known, share, progress)
            except JoulewrightError as error:
                yield Missing(network, share, str(error), has_failed=True)


def _case(question: Question, known: Profiled, share: float, progress: Progress) -> _Case | Missing:
    """The case, which was run, or the status of a search that found no schedule.

    Raises:
        JoulewrightError: solving or running failed.
    """
    network, problem = known.network, known.problem(share)
    progress(f"{network}, {share:.0%}: solving")
    schedule = solved(problem, question.limit_s)
    if not schedule.actions:
        return Missing(network, share, schedule.status.replace("_", " "))
    progress(f"{network}, {share:.0%}: running")
    expected = expected_step(problem.graph, schedule)
    subject = Subject(question.description, problem.step, problem.graph, schedule)
    batches = generated_batches(problem.step, _BATCHES * network.batch, _SEED)
    training = Training(batches, question.steps, _SEED)
    replayed = replay_schedule(subject, training, expected.time_s.median, progress)
    row = Row(network, share, problem.step.parameters_in, expected, replayed)
    return _Case(row, subject, training, time.monotonic())


def _step_s(replayed: Replayed) -> float:
    times_s = [step.time_s for step in replayed.timed.sound_steps]
    return median_interval(times_s).median


def _percent(difference: float | None) -> str:
    return "–" if difference is None else f"{100 * difference:+.1f} %"
