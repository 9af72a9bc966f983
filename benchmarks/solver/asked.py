"""Targets of the solver: one command for each case, and whether it reaches the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import Table
from benchmarks.solver.cases import Case
from benchmarks.solver.command import CommandRun, over_least, solve
from solver.problem.graph import CostedGraph

_HEAD = (
    "problem",
    "ops",
    "RAM",
    "deadline",
    "order",
    "asked",
    "over least compute",
    "proven gap",
    "bound for",
    "command",
    "memory",
    "reached",
)

_TEXT = """
Each row is one command, `cli.py solve` with its default options and the time limit that is asked
for. The time is that of the whole command: start-up, reading the graph, solving, verification and
writing.

- *RAM* is a share of the peak of the step without recomputation and paging, *deadline* a multiple
  of its time.
- *Over least compute* is the energy of the schedule over that of computing every op once. For
  Moccasin's graphs it is the duration.
- *Proven gap* is the relative distance between the schedule and the bound. *Bound for* says whether
  the bound holds for any order of the ops or for the order of the schedule.
- *Memory* is the resident memory of the largest process.
- *Reached* is yes if the command ends within its time limit (plus 5 %) and meets the target. A
  proof that no schedule fits also counts.
"""

_MOCCASIN_TEXT = """
Moccasin's graphs are not in this repository because of their licence. Their rows count RAM as a sum
of bytes, as their authors do. The target is the published overhead, in a tenth of the published
time for the given order (10 s at least, 60 s at most), and in 60 s for a free order. Published
overheads are rounded; ours is rounded to the same decimals, one at least, before the two are
compared. Under 70 % of the peak any schedule counts.
"""

# Leeway of the time limit.
_LEEWAY = 1.05


@dataclass(frozen=True)
class Answer:
    """The command's result for a case."""

    case: Case
    run: CommandRun
    graph: CostedGraph

    @property
    def cells(self) -> tuple[str, ...]:
        case, run = self.case, self.run
        return (
            case.name,
            str(len(self.graph.ops)),
            case.budget,
            case.deadline or "–",
            case.order,
            case.asked,
            *self._result_cells(),
            run.time,
            run.memory,
            "yes" if self.reached else "no",
        )

    @property
    def reached(self) -> bool:
        schedule = self.run.schedule
        if schedule is None or self.run.seconds > self.case.seconds * _LEEWAY:
            return False
        if schedule["status"] == "infeasible":
            return True
        overhead = self._overhead
        if overhead is None:
            return False
        if self.case.overhead:
            return reaches_published(overhead, self.case.target)
        return bool(schedule["gap"] <= self.case.target)

    @property
    def _overhead(self) -> float | None:
        schedule = self.run.schedule
        if schedule is None or "energy_j" not in schedule:
            return None
        return over_least(schedule["energy_j"], self.graph)

    def _result_cells(self) -> tuple[str, str, str]:
        schedule, overhead = self.run.schedule, self._overhead
        if schedule is None:
            return "–", "–", self.run.message
        if schedule["status"] == "infeasible":
            return "infeasible, proven", "–", f"smallest: {schedule['smallest_ram_bytes']} bytes"
        if overhead is None:
            return schedule["status"].replace("_", " "), "–", "–"
        covers = "this order" if schedule.get("restrictions") else "any order"
        return f"{100 * overhead:+.4f} %", f"{100 * schedule['gap']:.4f} %", covers


def answers(cases: Sequence[Case], directory: Path) -> Iterator[Answer]:
    for case in cases:
        options = [*case.options, *(("--deadline", case.deadline) if case.deadline else ())]
        run = solve(case.file(directory), case.budget, case.seconds, options)
        yield Answer(case, run, case.read(directory))


def answer_table(found: Sequence[Answer], *, moccasin: bool) -> Table:
    text = _TEXT + (_MOCCASIN_TEXT if moccasin else "")
    note = f"{sum(answer.reached for answer in found)} of {len(found)} targets are reached."
    return Table(_HEAD, [answer.cells for answer in found], "Targets", text, note)


def reaches_published(overhead: float, target: float) -> bool:
    """Whether an overhead is at most the published one, rounded as that one is: in per cent, to the
    decimals of ``target``, one at least."""
    places = len(f"{100 * target:g}".partition(".")[2])
    return target == float("inf") or round(100 * overhead, max(1, places)) <= 100 * target
