"""Published methods on the problems of the benchmark, under the same referee."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import Table
from benchmarks.solver.cases import Case
from benchmarks.solver.command import CommandRun, over_least, solve
from solver.baselines.registry import BASELINES, run_baseline
from solver.constructed import keep_everything
from solver.problem.graph import CostedGraph
from solver.problem.problem import Problem
from solver.problem.quantities import parse_deadline_s, parse_ram_bytes
from solver.problem.schedule import Budget
from solver.referee.referee import replay

# POET's program has about 6 n² columns, too many for larger graphs.
_MOST_POET_OPS = 250
_FORMULATIONS = ("poet", "compact", "retention")

_FORMULATIONS_TEXT = """
Cells are the energy over that of computing every op once, and the time of the whole command. `*`
means that the schedule is proven optimal within the default gap of 0.1 %. *Ours* is the default
of `cli.py solve`, which may change the order of ops; the other columns are its `--formulation`, and
keep the order of the graph. All of them need addresses in one arena. The heuristics below, and
Moccasin's graphs in the table above, count RAM as a sum of bytes, which is less.
"""
_BASELINES_TEXT = """
Heuristics and approximations from the literature, as `cli.py solve --baselines` runs them. They
count RAM as a sum of bytes. *None* means that the method finds no schedule within the budget.
"""
_LIMIT_TEXT = """
Each method is given {limit:g} s for a problem. Some take longer, since they look at the clock only
between two steps of their work.
"""


@dataclass(frozen=True)
class Outcome:
    """Result of one method: its excess over the least compute, or a message."""

    seconds: float
    over_least: float | None = None
    optimal: bool = False
    message: str = "none"

    @property
    def cell(self) -> str:
        if self.over_least is None:
            return f"{self.message}, {self.seconds:.0f} s"
        mark = "*" if self.optimal else ""
        return f"{100 * self.over_least:+.3f} %{mark}, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Comparison:
    """Results of all methods for one problem. None stands for a method that is left out."""

    problem: str
    budget: str
    ours: Outcome
    formulations: Sequence[Outcome | None]
    baselines: Sequence[Outcome]


def comparisons(cases: Sequence[Case], directory: Path, limit_s: float) -> Iterator[Comparison]:
    """Every distinct problem once, with at most ``limit_s`` seconds for a method."""
    distinct: dict[tuple[str, str, str | None], Case] = {}
    for case in cases:
        distinct.setdefault((case.name, case.budget, case.deadline), case)
    for case in distinct.values():
        graph = case.read(directory)
        yield Comparison(
            case.name if case.deadline is None else f"{case.name}, {case.deadline}",
            case.budget,
            _solved(case, "auto", graph, directory, limit_s),
            [
                None
                if name == "poet" and len(graph.ops) > _MOST_POET_OPS
                else _solved(case, name, graph, directory, limit_s)
                for name in _FORMULATIONS
            ],
            [_baseline(name, case, graph, limit_s) for name in BASELINES],
        )


def comparison_tables(found: Sequence[Comparison], limit_s: float) -> list[Table]:
    limit = _LIMIT_TEXT.format(limit=limit_s)
    formulations = [
        (
            *(row.problem, row.budget, row.ours.cell),
            *("too large" if outcome is None else outcome.cell for outcome in row.formulations),
        )
        for row in found
    ]
    baselines = [
        (row.problem, row.budget, *(outcome.cell for outcome in row.baselines)) for row in found
    ]
    return [
        Table(
            ("problem", "RAM", "ours", *_FORMULATIONS),
            formulations,
            "Published formulations",
            _FORMULATIONS_TEXT + limit,
        ),
        Table(
            ("problem", "RAM", *BASELINES),
            baselines,
            "Published heuristics",
            _BASELINES_TEXT + limit,
        ),
    ]


def _solved(case: Case, name: str, graph: CostedGraph, directory: Path, limit_s: float) -> Outcome:
    deadline = ("--deadline", case.deadline) if case.deadline else ()
    options = ("--formulation", name, *deadline)
    return _outcome(solve(case.file(directory), case.budget, limit_s, options), graph)


def _outcome(run: CommandRun, graph: CostedGraph) -> Outcome:
    schedule = run.schedule
    if schedule is None:
        return Outcome(run.seconds, message=run.message)
    status = schedule["status"]
    if "energy_j" not in schedule:
        return Outcome(run.seconds, message=status.replace("_", " "))
    return Outcome(run.seconds, over_least(schedule["energy_j"], graph), status == "optimal")


def _baseline(name: str, case: Case, graph: CostedGraph, limit_s: float) -> Outcome:
    kept = replay(graph, keep_everything(graph))
    budget = Budget(
        ram_bytes=parse_ram_bytes(case.budget, kept.peak_bytes),
        deadline_s=None if case.deadline is None else parse_deadline_s(case.deadline, kept.time_s),
    )
    began = time.monotonic()
    result = run_baseline(name, Problem(graph, budget), limit_s)
    seconds = time.monotonic() - began
    if result.actions is None:
        return Outcome(seconds)
    return Outcome(seconds, over_least(replay(graph, result.actions).energy_j, graph))
