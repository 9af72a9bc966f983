"""Schedules with addresses at the beginnings of cache lines and without, run in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Problem, Profiled, Progress, solved
from benchmarks.replay.turns import Question, Runs, Scheduled, ratio, rows_in_turns, run_in_turns
from devices.documents.readable import si, size
from solver.addresses.alignment import LINE_BYTES, SMALL_BYTES
from solver.addresses.plan import AddressPlan, plan_addresses, with_addresses
from solver.problem.schedule import Schedule

_ADDRESSES_S = 20.0

_HEAD = (
    *("network", "budget", "off a line before", "now", "arena, bytes", "larger by", "before"),
    *("now", "now over before", "now, again"),
)

_TEXT = """
Each network is profiled on `{device}` ({blocks} blocks) and solved (at most {limit:g} s). The same
schedule is run with the addresses that its sizes alone lead to, as *before*, and with those that
`solve` plans *now*: at multiples of {line} bytes, where the budget has room for them. Both are in
one program and run in turns, {rounds} rounds of {steps} steps. Seconds are those of a step, the
median of the rounds' medians.

- *Off a line*: how many of the tensors and workspaces of at least {small} begin elsewhere.
- *Arena*: that of *now*, and how many bytes it is larger than the one of *before*.
- *Now over before*: median of the rounds' ratios, with its 95 % interval. *Again* is the schedule
  of *now*, a second time in the same program, over its first time: what is 1 but for the noise.
"""


@dataclass(frozen=True)
class _Row:
    name: str
    share: float
    off_line: tuple[str, str]
    arena_bytes: tuple[int, int]
    seconds: Sequence[Sequence[float]]
    """Seconds of a step in each round: with the addresses of before, with those of now, and with
    these again."""

    @property
    def over_before(self) -> Sequence[float]:
        before, now, _ = self.seconds
        return [own / other for own, other in zip(now, before, strict=True)]

    @property
    def noise(self) -> Sequence[float]:
        _, now, again = self.seconds
        return [own / other for own, other in zip(again, now, strict=True)]

    @property
    def cells(self) -> tuple[str, ...]:
        before_bytes, now_bytes = self.arena_bytes
        before, now, _ = self.seconds
        return (
            self.name,
            f"{self.share:.0%}",
            *self.off_line,
            str(now_bytes),
            str(now_bytes - before_bytes),
            si(statistics.median(before), "s"),
            si(statistics.median(now), "s"),
            ratio(self.over_before),
            ratio(self.noise),
        )


def alignment_page(question: Question, versions: Sequence[str], progress: Progress) -> Page:
    rows, cells = rows_in_turns(question, _row, len(_HEAD), progress)
    text = _TEXT.format(
        device=question.description.name,
        blocks=question.profiling.blocks,
        limit=question.limit_s,
        line=LINE_BYTES,
        small=size(SMALL_BYTES),
        rounds=question.rounds,
        steps=question.steps,
    )
    table = Table(_HEAD, cells, note=_note(rows))
    return Page("Addresses at the beginnings of cache lines", text, [table], versions)


def _note(rows: Sequence[_Row]) -> str:
    if not rows:
        return ""
    over = [statistics.median(row.over_before) for row in rows]
    noise = [abs(statistics.median(row.noise) - 1) for row in rows]
    return (
        f"Now over before: {statistics.median(over):.3f} in the median of {len(rows)} cases, from"
        f" {min(over):.3f} to {max(over):.3f}. The same schedule twice differs by"
        f" {100 * statistics.median(noise):.1f} % in the median, {100 * max(noise):.1f} % in the"
        " worst."
    )


def _row(question: Question, known: Profiled, share: float, progress: Progress) -> _Row | str:
    """The case that was run, or the status of a search that found no schedule.

    Raises:
        JoulewrightError: solving or running failed.
    """
    problem = known.problem(share)
    progress(f"{known.network}, {share:.0%}: solving")
    now = solved(problem, question.limit_s)
    if not now.actions or now.arena_bytes is None:
        return now.status.replace("_", " ")
    plan = plan_addresses(
        problem.graph,
        now.actions,
        now.budget.covers,
        problem.budget_bytes,
        time.monotonic() + _ADDRESSES_S,
    )
    before = _with_plan(now, plan)
    subjects = [Scheduled(problem.graph, each) for each in (before, now, now)]
    runs = run_in_turns(
        question.description, problem.step, subjects, question.steps, question.rounds, progress
    )
    return _Row(
        str(known.network),
        share,
        (_off_line(problem, before), _off_line(problem, now)),
        (plan.arena_bytes, now.arena_bytes),
        _seconds(runs),
    )


def _with_plan(schedule: Schedule, plan: AddressPlan) -> Schedule:
    return schedule.model_copy(
        update={
            "actions": with_addresses(schedule.actions, plan),
            "arena_bytes": plan.arena_bytes,
            "resident_address": plan.resident_address,
        }
    )


def _off_line(problem: Problem, schedule: Schedule) -> str:
    """Larger tensors and workspaces that begin beside a line, as in "3 of 121"."""
    workspaces = {op.name: op.workspace_bytes for op in problem.graph.ops}
    sizes = {tensor.name: tensor.bytes for tensor in problem.graph.tensors}
    begun = [(sizes[name], at) for name, at in (schedule.resident_address or {}).items()]
    for action in schedule.actions:
        match action.do:
            case "compute":
                begun += [(sizes[name], at) for name, at in (action.address or {}).items()]
                if action.workspace_address is not None:
                    begun.append((workspaces[action.op], action.workspace_address))
            case "page_in" if action.address is not None:
                begun.append((sizes[action.tensor], action.address))
    large = [at for size_bytes, at in begun if size_bytes >= SMALL_BYTES]
    return f"{sum(at % LINE_BYTES > 0 for at in large)} of {len(large)}"


def _seconds(runs: Runs) -> Sequence[Sequence[float]]:
    return [
        [statistics.median(step.time_s for step in record.sound_steps) for record in own]
        for own in runs.timed
    ]
