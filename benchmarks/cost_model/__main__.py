"""Predictions from general profiles, held against profiles of networks.

    python -m benchmarks.cost_model --general PROFILE --networks PROFILE ... [--again PROFILE ...]
        [--write FILE]

``--general`` and the ``--networks`` after it may be repeated, for several boards. All are profiles
that ``profile`` has written, on one board each; those of networks with one ``--model``. ``--again``
are profiles of the same networks at another time, which show what no prediction can know.
``--each-from-others`` predicts each network of a board from the profiles of its other networks.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import package_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.documents.document import read_yaml
from devices.operation import OpSpec
from devices.profile import DeviceProfile, Interval
from networks.models.registry import step_of
from networks.training.step import TrainingStep
from solver.costing.costing import cost_graph
from solver.costing.law import NUGGETS, SHAPES, LawShape
from solver.costing.model import CostModel
from solver.costing.situation import Situation, situations
from solver.costing.terms import common_terms, few_terms, terms

_TEXT = """
A general profile (`profile --general`) predicts every operation of networks, which were profiled by
themselves. The operations that both profiles measured are left out of the general one. Measured is
the time of an operation in its place of the watched step, each of which counts; if networks were
not watched, it is that by itself, and each operation counts once. Where no general profile was
made, each network is predicted from the profiles of the others.

- *Call, work, bytes*: the law of earlier releases, with three terms for each kind.
- *Common terms*: also bytes read and written apart, and rows.
- *Terms of the kind*: products of the sizes of its loops, with tiles of matrix products.
- *Corrected*: by a Gaussian process near measured operations.
- *Chosen*: for each kind the first law, those without a correction first, whose mean error on
  left-out operations is at most 1.5 times the least. This is what `solve` uses.

With each law, operations are put into the situation of the op: what the caches have lost of its
operands and of its kernel, and whether it overwrites one. *Measured again* is no prediction: it is
what other profiles of the same networks, at another time, say of them.

*Differ by*: median size of the relative difference of operations, and the ninth of ten. *Held*:
share of operations in their 95 % intervals. *Half width*: the median one. *Steps differ by*: the
median over networks of the difference of a step's time, and the worst. *Steps held*: steps in their
intervals. Two constants of the intervals were set on the costs of the networks of the emulated
Cortex-M4F: there, shares that are held are no independent check. Seven of costs in steps (of what
the caches lose, and what it costs), and what counts as a good law, were set on recordings of
another computer, with the same networks and with narrower vectors; how much surer other kinds must
be for an operation to be predicted from them, on earlier sweeps of this computer and of the
Cortex-M4F. Nothing was set on the sweeps of this page.
"""
_HEAD = (
    *("law", "operations differ by", "nine of ten", "held", "half width"),
    *("steps differ by", "worst", "steps held"),
)
_METHODS: Mapping[str, Sequence[LawShape]] = {
    "call, work, bytes": (LawShape(few_terms, None),),
    "common terms": (LawShape(common_terms, None),),
    "terms of the kind": (LawShape(terms, None),),
    "terms of the kind, corrected": tuple(LawShape(terms, nugget) for nugget in NUGGETS[1:]),
    "chosen": SHAPES,
}


@dataclass(frozen=True)
class _Network:
    """A network with the measured seconds of each of its ops."""

    profile: DeviceProfile
    step: TrainingStep
    time_s: Mapping[str, Interval]

    @property
    def measured_s(self) -> Mapping[str, float]:
        return {op: time_s.median for op, time_s in self.time_s.items()}

    @property
    def is_watched(self) -> bool:
        return bool(self.profile.step_costs)

    @classmethod
    def read(cls, file: Path) -> _Network:
        profile = read_yaml(file, DeviceProfile)
        step = step_of(profile.networks[0])
        found = {}
        for op in step.ops:
            spec = op.spec.costed_as
            place = profile.place.get((op.name, spec.key))
            alone = profile.by_spec[spec].isolated(profile.cost_basis)
            found[op.name] = (alone if place is None else place).time_s
        return cls(profile, step, found)

    def is_also(self, other: _Network) -> bool:
        """Whether the other profile was made of the same training step, on the same board."""
        same_board = self.profile.name == other.profile.name
        return same_board and self.profile.networks == other.profile.networks


@dataclass
class _Score:
    errors: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    halves: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    steps_held: list[bool] = field(default_factory=list)

    def add(self, time_s: Interval, measured_s: float) -> None:
        """Count one operation."""
        self.errors.append(abs(time_s.median / measured_s - 1))
        self.held.append(time_s.low <= measured_s <= time_s.high)
        self.halves.append((time_s.high - time_s.low) / 2 / time_s.median)

    @property
    def cells(self) -> tuple[str, ...]:
        steps = [abs(each) for each in self.steps]
        return (
            f"{100 * statistics.median(self.errors):.1f} %",
            f"{100 * statistics.quantiles(self.errors, n=10)[-1]:.0f} %",
            f"{100 * statistics.mean(self.held):.1f} %",
            f"±{100 * statistics.median(self.halves):.0f} %",
            f"{100 * statistics.median(steps):.1f} %",
            f"{100 * max(steps):.0f} %",
            f"{sum(self.steps_held)} of {len(self.steps_held)}" if self.steps_held else "–",
        )


def main() -> None:
    parser = command_line(__doc__)
    for name, count in (("general", None), ("networks", "+"), ("each-from-others", "+")):
        parser.add_argument(
            f"--{name}", action="append", type=Path, nargs=count, default=[], metavar="PROFILE"
        )
    parser.add_argument("--again", type=Path, nargs="+", default=[], metavar="PROFILE")
    publish("benchmarks.cost_model", parser, _page)


def _page(arguments: argparse.Namespace) -> Page:
    versions = [package_version("numpy", "numpy"), package_version("scipy", "SciPy")]
    again = list(map(_Network.read, arguments.again))
    tables = [
        _general_table(read_yaml(general, DeviceProfile), list(map(_Network.read, files)), again)
        for general, files in zip(arguments.general, arguments.networks, strict=True)
    ]
    tables += [
        _others_table(list(map(_Network.read, files))) for files in arguments.each_from_others
    ]
    return Page("Costs of networks from a general profile", _TEXT, tables, versions)


def _general_table(
    general: DeviceProfile, networks: Sequence[_Network], again: Sequence[_Network]
) -> Table:
    left_out = {op.spec.costed_as for network in networks for op in network.step.ops}
    profile = _without(general, left_out, networks)
    rows = [*_rows([(profile, networks)]), *_rows_again(networks, again)]
    return Table(_HEAD, rows, general.name, " ".join(_sentences(profile, networks)))


def _others_table(networks: Sequence[_Network]) -> Table:
    cases = []
    for network in networks:
        others = [other.profile for other in networks if other is not network]
        operations = {o.op: o for other in others for o in other.operations}
        together = others[0].changed(
            operations=tuple(operations.values()),
            step_costs=tuple(costs for other in others for costs in other.step_costs),
        )
        left_out = {op.spec.costed_as for op in network.step.ops}
        cases.append((_without(together, left_out, [network]), [network]))
    title = f"{networks[0].profile.name}, each network from the others"
    return Table(_HEAD, _rows(cases), title, " ".join(_sentences(None, networks)))


def _rows(
    cases: Sequence[tuple[DeviceProfile, Sequence[_Network]]],
) -> Sequence[tuple[str, ...]]:
    rows = []
    for name, shapes in _METHODS.items():
        report_progress(f"{cases[0][0].name}: {name}")
        score = _Score()
        for profile, networks in cases:
            model = CostModel(profile, shapes)
            for network in networks:
                _judge(score, profile, model, network, is_chosen=shapes is SHAPES)
        rows.append((name, *score.cells))
    return rows


def _rows_again(
    networks: Sequence[_Network], again: Sequence[_Network]
) -> Iterator[tuple[str, ...]]:
    """A row of what each network's second profile says of it; none if one has no second profile."""
    pairs = [(own, other) for own in networks for other in again if own.is_also(other)]
    if len(pairs) != len(networks):
        return
    score = _Score()
    for own, other in pairs:
        for op, measured_s in own.measured_s.items():
            score.add(other.time_s[op], measured_s)
        total_s = math.fsum(own.measured_s.values())
        score.steps.append(math.fsum(other.measured_s.values()) / total_s - 1)
    yield "measured again", *score.cells


def _without(
    profile: DeviceProfile, left_out: set[OpSpec], networks: Sequence[_Network]
) -> DeviceProfile:
    """The profile without these operations, and without watched steps if no network has any."""
    keys = {spec.key for spec in left_out}
    is_watched = any(network.is_watched for network in networks)
    return profile.changed(
        operations=tuple(o for o in profile.operations if o.op not in keys),
        step_costs=tuple(
            costs.model_copy(update={"places": tuple(p for p in costs.places if p.key not in keys)})
            for costs in profile.step_costs
            if is_watched
        ),
    )


def _judge(
    score: _Score, profile: DeviceProfile, model: CostModel, network: _Network, is_chosen: bool
) -> None:
    total_s, predicted_s = 0.0, 0.0
    found: dict[tuple[OpSpec, Situation], Interval] = {}
    own = situations(network.step, profile.board.last_level_cache_bytes)
    for op, situation in zip(network.step.ops, own, strict=True):
        key = op.spec.costed_as, situation
        is_new = key not in found
        if is_new:
            found[key] = model.predict(*key).time_s
        time_s, measured_s = found[key], network.time_s[op.name].median
        predicted_s += time_s.median
        total_s += measured_s
        if is_new or network.is_watched:
            score.add(time_s, measured_s)
    score.steps.append(predicted_s / total_s - 1)
    if is_chosen:
        step_s = cost_graph(network.step, profile).step_time_s
        score.steps_held.append(step_s.low <= total_s <= step_s.high)


def _sentences(general: DeviceProfile | None, networks: Sequence[_Network]) -> Iterator[str]:
    if general is not None and general.general is not None:
        sweep = general.general
        yield (
            f"The sweep measured {sweep.operations} operations in {sweep.rounds} rounds, in"
            f" {sweep.measured_s / 60:.1f} min; {len(general.operations)} operations predict."
        )
    names = ", ".join(f"{n.step.name} (batch {n.step.batch})" for n in networks)
    count = sum(len(n.step.ops) for n in networks)
    yield f"Networks: {names}; {count} ops."


if __name__ == "__main__":
    main()
