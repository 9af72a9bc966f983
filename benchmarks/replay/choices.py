"""Schedules chosen with different costs of operations, run in turns in one program."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.pages import Page, Table
from benchmarks.replay.cases import Network, Problem, Profiled, Progress, solved
from benchmarks.replay.turns import Question, Runs, Scheduled, ratio, rows_in_turns, run_in_turns
from devices.documents.readable import si, size
from devices.profile import DeviceProfile
from networks.models import profiled_network
from replay.costs.context import without_step_costs
from replay.costs.request import Request
from replay.costs.tune import tune
from solver.costing.costing import cost_graph
from solver.options import SolverOptions
from solver.problem.schedule import Budget, Schedule

IN_PLACE = "in place"
_COSTS = (IN_PLACE, "warm", "cold", "refined")
_TUNING_ROUNDS = 4

_HEAD = (
    "network",
    "budget",
    *_COSTS,
    "chosen over best",
    "again over chosen",
    "searched alone",
)

_TEXT = """
Each network is profiled on `{device}` ({blocks} blocks, at most {written} written). Its step is
solved (at most {limit:g} s each) with four kinds of costs, and all schedules are in one program and
run in turns, {rounds} rounds of {steps} steps. Figures are those of a step, the median of the
rounds' medians ({figure}). A search that ends with its time has some luck. So that costs are
compared and not luck, each step is solved twice with each kind of costs: the second search starts
from what the first searches have found with all kinds.

- *In place*: what `profile` measures and `solve` uses: operations in their places of a watched
  step.
- *Warm* and *cold*: operations by themselves, with their operands in the caches or out of them, and
  transfers by themselves.
- *Refined*: costs in place that `tune` has corrected in at most {tuning} rounds, in each of which
  it solves and runs; its best schedule is that of the first search.
- *Chosen over best* is the first of these over the least of all four, round by round: the median of
  the rounds, with the 95 % interval of this ratio. Which of the four is the least is taken from the
  same rounds. Equal schedules are run once.
- *Again over chosen* is the schedule of *in place*, a second time in the same program, over its
  first time: what is 1 but for the noise.
- *Searched alone* is the predicted energy of what the first search found with costs in place, over
  that of the second: the luck of a single search of {limit:g} s.
"""


@dataclass(frozen=True)
class Row:
    """The schedules of a case by kind of costs, each with the figure of every round.

    ``alone`` is the energy of the first search's schedule over that of the second's, by costs in
    place.
    """

    network: Network
    share: float
    by_costs: Mapping[str, Sequence[float]]
    again: Sequence[float]
    unit: str
    alone: float

    @property
    def over_best(self) -> Sequence[float]:
        """The chosen schedule over the best one, for each round."""
        best = min(self.by_costs.values(), key=statistics.median)
        return [own / other for own, other in zip(self.by_costs[IN_PLACE], best, strict=True)]

    @property
    def noise(self) -> Sequence[float]:
        """The chosen schedule over itself, for each round."""
        return [own / other for own, other in zip(self.again, self.by_costs[IN_PLACE], strict=True)]

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            str(self.network),
            f"{self.share:.0%}",
            *(si(statistics.median(self.by_costs[name]), self.unit) for name in _COSTS),
            ratio(self.over_best),
            ratio(self.noise),
            f"{self.alone:.3f}",
        )


def choices_page(question: Question, versions: Sequence[str], progress: Progress) -> Page:
    rows, cells = rows_in_turns(question, _row, len(_HEAD), progress)
    figure = "joules" if rows and rows[-1].unit == "J" else "seconds"
    text = _TEXT.format(
        device=question.description.name,
        blocks=question.profiling.blocks,
        written=size(question.profiling.storage_budget_bytes),
        limit=question.limit_s,
        rounds=question.rounds,
        steps=question.steps,
        tuning=_TUNING_ROUNDS,
        figure=figure,
    )
    table = Table(_HEAD, cells, note=_note(rows, len(cells)))
    return Page("Schedules chosen with different costs", text, [table], versions)


def _note(rows: Sequence[Row], asked: int) -> str:
    without = asked - len(rows)
    missing = f" {without} of {asked} cases have no figures." if without else ""
    if not rows:
        return missing.strip()
    over = [statistics.median(row.over_best) for row in rows]
    noise = [abs(statistics.median(row.noise) - 1) for row in rows]
    return (
        f"Chosen over best: {statistics.median(over):.3f} in the median of {len(rows)} cases,"
        f" {max(over):.3f} in the worst. The same schedule twice differs by"
        f" {100 * statistics.median(noise):.1f} % in the median, {100 * max(noise):.1f} % in the"
        f" worst.{missing}"
    )


def _row(question: Question, known: Profiled, share: float, progress: Progress) -> Row | str:
    """The case that was run, or the status of a search that found no schedule.

    Raises:
        JoulewrightError: solving or running failed.
    """
    problem = known.problem(share)
    graphs = {
        name: cost_graph(problem.step, profile).graph for name, profile in _profiles(known.profile)
    }
    first: dict[str, Schedule] = {}
    for name, graph in graphs.items():
        progress(f"{known.network}, {share:.0%}: solving with costs {name}")
        schedule = solved(replace(problem, graph=graph), question.limit_s)
        if not schedule.actions:
            return schedule.status.replace("_", " ")
        first[name] = schedule
    refined = _refined(question, known, problem, progress)
    graphs["refined"], first["refined"] = refined.graph, refined.schedule
    starts = [schedule.actions for schedule in first.values()]
    found: dict[str, Scheduled] = {}
    for name, graph in graphs.items():
        progress(f"{known.network}, {share:.0%}: solving again with costs {name}")
        schedule = solved(replace(problem, graph=graph), question.limit_s, starts)
        if not schedule.actions:
            return schedule.status.replace("_", " ")
        found[name] = Scheduled(graph, schedule)
    alone = _energy_j(first[IN_PLACE]) / _energy_j(found[IN_PLACE].schedule)
    return _measured(question, known.network, share, problem, found, alone, progress)


def _energy_j(schedule: Schedule) -> float:
    if schedule.energy_j is None:
        raise ValueError("a schedule without actions has no energy")
    return schedule.energy_j


def _profiles(profile: DeviceProfile) -> Iterator[tuple[str, DeviceProfile]]:
    yield IN_PLACE, profile
    alone = without_step_costs(profile)
    yield "warm", alone.changed(cost_basis="warm")
    yield "cold", alone.changed(cost_basis="cold")


def _refined(
    question: Question, known: Profiled, problem: Problem, progress: Progress
) -> Scheduled:
    """The best schedule of ``tune``, and the step with the costs that all rounds have corrected."""
    network = profiled_network(known.network.model, known.network.step())
    request = Request(
        question.description,
        network,
        problem.step,
        Budget(ram_bytes=problem.budget_bytes),
        SolverOptions(time_limit_s=question.limit_s),
        _TUNING_ROUNDS,
        question.steps,
        question.profiling.storage_budget_bytes,
    )
    with tempfile.TemporaryDirectory() as directory:
        tuned = tune(request, known.profile, Path(directory), progress, lambda _round: None)
    corrected = cost_graph(problem.step, tuned.rounds[-1].corrected).graph
    return Scheduled(corrected, tuned.best.run.schedule)


def _measured(
    question: Question,
    network: Network,
    share: float,
    problem: Problem,
    found: Mapping[str, Scheduled],
    alone: float,
    progress: Progress,
) -> Row:
    """Run all schedules that differ, and the chosen one twice."""
    subjects: list[Scheduled] = []
    number: dict[str, int] = {}
    for name, each in found.items():
        known = [other.schedule.actions for other in subjects]
        if each.schedule.actions in known:
            number[name] = known.index(each.schedule.actions)
        else:
            number[name] = len(subjects)
            subjects.append(each)
    subjects.append(found[IN_PLACE])
    runs = run_in_turns(
        question.description, problem.step, subjects, question.steps, question.rounds, progress
    )
    figures, unit = _figures(runs)
    by_costs = {name: figures[index] for name, index in number.items()}
    return Row(network, share, by_costs, figures[-1], unit, alone)


def _figures(runs: Runs) -> tuple[list[list[float]], str]:
    """Joules of a step for each schedule and round; seconds if a step has no joules of its own."""
    steps = [[record.sound_steps for record in own] for own in runs.timed]
    has_joules = runs.energy_source not in {"estimated", "not measured"} and all(
        step.energy_j is not None for own in steps for record in own for step in record
    )
    if has_joules:
        return [[_median(step.energy_j for step in record) for record in own] for own in steps], "J"
    return [[_median(step.time_s for step in record) for record in own] for own in steps], "s"


def _median(values: Iterator[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)
