"""Methods of costing an op, compared on recorded profiles and runs: coverage, width, difference."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.pages import Page, Table
from devices.documents.document import read_yaml
from devices.profile import Cost, DeviceProfile, Interval, OperationCost, StepCosts
from devices.replay import Comparison, ReplayReport
from profiler.run.table import TrialTable
from profiler.run.trials import RunDirectory, Trial
from profiler.script.windows import OpWindow
from profiler.statistics import median_interval
from replay.costs.context import step_costs, with_step_costs, without_step_costs
from replay.directory import StoredRun
from replay.expectation import expected_step
from replay.runs import training_step_of
from solver.costing.costing import cost_graph

LONG_S = 100e-6
"""Seconds above which an action counts as long."""

_HEAD = (
    "costs",
    "actions held",
    "of their time",
    "half width",
    "actions differ by",
    "step differs by",
    "steps held",
)

_TEXT = """
Profiles and runs were recorded once, with `profile`, `solve` and `run`; each method predicts the
same runs from the same trials. Measured are the medians of watched actions, and of timed steps.

- *By itself*: an operation in a loop of its own, with the cache state that the profile chose. Its
  interval is the bootstrap of the median over blocks, or that of a later sitting.
- *Operation in steps*: the cost in any of its places in the watched steps.
- *Place, unscheduled*: the cost in the op's own place, from sittings of the unscheduled step only.
- *Place*: from all sittings, which also run schedules with less RAM. This is what `solve` uses.
- *Half width*: median relative half width of the intervals of actions longer than 100 µs.
- *Actions differ by*: median size of the relative difference, of the same actions.
- *Step differs by*: median size of the relative difference of a step's time, and the worst.

An op that a schedule recomputes finds other data in the caches than at its first place, but it has
one cost: that of all its executions in the watched steps. The second table of a board shows what
this leaves out. *Over the first* is the time of the recomputation over that of the op's first
execution in the same run: the median, and between what half of them lie.
"""

_AGAIN_HEAD = ("executions", "actions", "held", "measured over predicted", "over the first")


@dataclass(frozen=True)
class Record:
    """A profile, the raw trials that it was made from, and runs that were predicted from it."""

    profile: DeviceProfile
    table: TrialTable
    runs: tuple[StoredRun, ...]

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Read a directory of results with one profile and its runs.

        Runs from before the profile was measured, for the last time, are left out.

        Raises:
            ValueError: it does not have one profile, or no run since then.
        """
        profiles = sorted((directory / "profiles").glob("*.yaml"))
        if len(profiles) != 1:
            raise ValueError(f"{directory}: {len(profiles)} profiles; one is needed")
        profile = read_yaml(profiles[0], DeviceProfile)
        trials = [
            path.parent
            for folder in ("campaigns", "runs")  # older runs are under campaigns
            for path in sorted((directory / folder).glob("*/profile.yaml"))
            if read_yaml(path, DeviceProfile).operations == profile.operations
        ]
        table = TrialTable.of(RunDirectory(trials[-1]).harness_runs())
        stored = [StoredRun.read(path) for path in sorted(directory.glob("replays/*/replay.json"))]
        runs = tuple(each for each in stored if each.report.created >= (profile.created or ""))
        if not runs:
            raise ValueError(f"{directory}: no run is later than the profile")
        return cls(profile, table, runs)


def _by_itself(record: Record) -> DeviceProfile:
    return without_step_costs(record.profile)


def _bootstrapped(record: Record) -> DeviceProfile:
    """Costs of operations by themselves, with the bootstrap of their medians as intervals."""

    def cost(operation: OperationCost, state: str, cost: Cost) -> Cost:
        spec = next(s for s, o in record.profile.by_spec.items() if o.op == operation.op)
        label = OpWindow(spec, "warm" if state == "warm" else "cold").label
        times = record.table.values(label, lambda trial: trial.time_s)
        if not times:
            return cost
        energies = record.table.values(label, Trial.execution_energy_j)
        return cost.model_copy(
            update={
                "time_s": median_interval(times),
                "energy_j": median_interval(energies) if energies else cost.energy_j,
            }
        )

    profile = _by_itself(record)
    return profile.changed(
        operations=tuple(
            operation.model_copy(
                update={
                    "warm": cost(operation, "warm", operation.warm),
                    "cold": cost(operation, "cold", operation.cold),
                }
            )
            for operation in profile.operations
        )
    )


def _of_operation(record: Record) -> DeviceProfile:
    """The profile without the names of the places, so that only their operations count."""

    def nameless(costs: StepCosts) -> StepCosts:
        places = tuple(
            place.model_copy(update={"op": f"place {number}"})
            for number, place in enumerate(costs.places)
        )
        return costs.model_copy(update={"places": places})

    return record.profile.changed(step_costs=tuple(map(nameless, record.profile.step_costs)))


def _unscheduled(record: Record) -> DeviceProfile:
    """Costs in places from sittings of the unscheduled step alone; all where there are none."""
    profile = record.profile
    for costs in profile.step_costs:
        of_ops = costs.sittings_of_ops
        chosen = [n for n, s in enumerate(of_ops) if s.schedule == "unscheduled"]
        if chosen:
            places = tuple(
                place.model_copy(update={"sittings_s": tuple(place.sittings_s[n] for n in chosen)})
                for place in costs.places
            )
            sittings = tuple(of_ops[n] for n in chosen)
            known = {"places": places, "sittings": sittings, "correlation": 0.0, "packed": ()}
            fewer = costs.model_copy(update=known)
            keys = {place.op: place.key for place in costs.places}
            only = step_costs(profile, costs.network, keys, (), fewer)
            profile = with_step_costs(profile, only)
    return profile


_METHODS: Mapping[str, Callable[[Record], DeviceProfile]] = {
    "by itself, bootstrap": _bootstrapped,
    "by itself": _by_itself,
    "operation in steps": _of_operation,
    "place, unscheduled": _unscheduled,
    "place": lambda record: record.profile,
}


@dataclass(frozen=True)
class _Result:
    """Predicted and measured actions and steps of several runs."""

    actions: tuple[Comparison, ...] = ()
    steps: tuple[Comparison, ...] = ()

    def plus(self, other: _Result) -> _Result:
        return replace(self, actions=self.actions + other.actions, steps=self.steps + other.steps)

    @property
    def cells(self) -> tuple[str, ...]:
        long = [each for each in self.actions if each.measured.median >= LONG_S]
        all_s = sum(each.measured.median for each in self.actions)
        held_s = sum(each.measured.median for each in self.actions if each.is_held)
        held = sum(each.is_held for each in self.actions)
        halves = [half_width(each.predicted) for each in long]
        steps = [abs(each.difference or 0.0) for each in self.steps]
        return (
            f"{100 * held / len(self.actions):.1f} %",
            f"{100 * held_s / all_s:.1f} %",
            f"±{100 * statistics.median(halves):.1f} %" if halves else "–",
            f"{100 * _middle(abs(each.difference or 0.0) for each in long):.1f} %",
            f"{100 * statistics.median(steps):.1f} % ({100 * max(steps):.1f} %)",
            f"{sum(each.is_held for each in self.steps)} of {len(self.steps)}",
        )


def _middle(values: Iterator[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else 0.0


def costs_page(directories: Sequence[Path], versions: Sequence[str]) -> Page:
    """Compare the methods on recorded results, for each board.

    Args:
        directories: results, each with one profile and its runs.
        versions: versions for the page.
    """
    boards: dict[str, list[Record]] = {}
    for record in map(Record.read, directories):
        boards.setdefault(record.profile.name, []).append(record)
    return Page(
        "What an op costs in its step",
        _TEXT,
        [
            table
            for board, records in boards.items()
            for table in (_table(board, records), *_recomputed(records))
        ],
        versions,
    )


def _table(board: str, records: Sequence[Record]) -> Table:
    rows = []
    for name, method in _METHODS.items():
        result = _Result()
        for record in records:
            profile = method(record)
            for run in record.runs:
                result = result.plus(_predicted(run, profile))
        rows.append((name, *result.cells))
    runs = [run.report for record in records for run in record.runs]
    return Table(_HEAD, rows, title=board, text=_runs(records, runs))


def _recomputed(records: Sequence[Record]) -> Iterator[Table]:
    """The ops that the schedules recompute; nothing if they recompute none."""
    firsts: list[Comparison] = []
    again: list[Comparison] = []
    ratios: list[float] = []
    for record in records:
        for run in record.runs:
            predicted = _predicted(run, record.profile).actions
            first: dict[str, Comparison] = {}
            for action, time_s in zip(run.report.actions, predicted, strict=True):
                if action.what == "compute":
                    first[action.label] = time_s
                elif action.what == "recompute":
                    firsts.append(first[action.label])
                    again.append(time_s)
                    ratios.append(time_s.measured.median / first[action.label].measured.median)
    if not ratios:
        return
    rows = [
        ("the first", *_executions(firsts), "–"),
        ("recomputation", *_executions(again), _spread(ratios)),
    ]
    yield Table(_AGAIN_HEAD, rows)


def _spread(ratios: Sequence[float]) -> str:
    """The median, and the quartiles if there are several."""
    median = f"{statistics.median(ratios):.2f}"
    if len(ratios) == 1:
        return median
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{median} ({low:.2f} to {high:.2f})"


def _executions(actions: Sequence[Comparison]) -> tuple[str, str, str]:
    held = sum(action.is_held for action in actions)
    ratio = statistics.median(each.measured.median / each.predicted.median for each in actions)
    return str(len(actions)), f"{100 * held / len(actions):.1f} %", f"{ratio:.2f}"


def _runs(records: Sequence[Record], runs: Sequence[ReplayReport]) -> str:
    networks = {
        f"{network.model}, batch {network.batch}"
        for record in records
        for network in record.profile.networks
    }
    return (
        f"{'; '.join(sorted(networks))}: {len(runs)} runs of {len(records)} profile(s),"
        f" {sum(len(run.actions) for run in runs)} actions. The interval of a measured step is"
        f" ±{100 * statistics.median(half_width(run.time_s.measured) for run in runs):.1f} %."
    )


def half_width(interval: Interval) -> float:
    """Half of an interval's width, relative to its median."""
    return (interval.high - interval.low) / 2 / interval.median


def _predicted(run: StoredRun, profile: DeviceProfile) -> _Result:
    graph = cost_graph(training_step_of(run.graph), profile).graph
    expected = expected_step(graph, run.schedule)
    return _Result(
        tuple(
            Comparison.of(action.time_s, measured.time_s.measured)
            for action, measured in zip(expected.actions, run.report.actions, strict=True)
        ),
        (Comparison.of(expected.time_s, run.report.time_s.measured),),
    )
