"""What the noise of a board forbids: the same training steps, watched in two profiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.pages import Page, Table
from benchmarks.replay.costs import LONG_S, half_width
from devices.documents.document import read_yaml
from devices.profile import DeviceProfile, Interval, PlaceCost, StepCosts
from networks.models import step_of
from profiler.statistics import CONFIDENCE
from solver.costing.costing import cost_graph

_TEXT = """
Each network was profiled twice on one board, and nothing was changed in between: the same programs
ran, with other data and addresses. A sitting is one process that runs some watched steps, as a
later run does. What sittings of the second profile differ by from the first profile is an error
that a prediction from it has, however good its model is. A step has each op once here.

- *Apart*: minutes between the ends of the two profiles.
- *Profiles differ*: the time of a step that the second profile states, over that of the first.
- *Sittings differ*: size of the difference between the step of a single sitting of the second
  profile and that of the first profile; the median, and the worst.
- *Steps held*: such sittings whose step lies in the first profile's interval of a step.
- *Two sittings*: 95 % of pairs differ by at most so much in the time of an action; the pairs have a
  sitting of either profile, the actions take more than 100 µs.
- *Least half width*: this over √2. It is that of an interval around the mean over all times which
  holds 95 % of sittings, if these deviate as a normal distribution does.
- *Half width*: of the first profile's intervals of these actions; the median.
- *Actions held*, *of their time*: times of actions of any length in sittings of the second
  profile, in the first one's intervals.
"""
_HEAD = (
    *("network", "apart", "profiles differ", "sittings differ", "steps held"),
    *("two sittings", "least half width", "half width", "actions held", "of their time"),
)


@dataclass(frozen=True)
class _Pair:
    """Two profiles of one network."""

    first: DeviceProfile
    second: DeviceProfile

    @property
    def costs(self) -> tuple[StepCosts, StepCosts]:
        return self.first.step_costs[0], self.second.step_costs[0]

    @property
    def network(self) -> str:
        network = self.costs[0].network
        return f"{Path(network.model).name}, batch {network.batch}"

    @property
    def apart_min(self) -> float:
        ends = [datetime.fromisoformat(each.created or "") for each in (self.first, self.second)]
        return (ends[1] - ends[0]).total_seconds() / 60

    @cached_property
    def actions(self) -> list[tuple[PlaceCost, PlaceCost]]:
        """The same op in both profiles."""
        first, second = self.costs
        again = {place.op: place for place in second.places}
        return [(place, again[place.op]) for place in first.places if place.op in again]

    @property
    def profiles_differ(self) -> float:
        first_s, second_s = (
            math.fsum(pair[side].time_s.median for pair in self.actions) for side in (0, 1)
        )
        return second_s / first_s - 1

    @cached_property
    def sittings_differ(self) -> list[float]:
        first_s = math.fsum(first.time_s.median for first, _ in self.actions)
        return [abs(time_s / first_s - 1) for time_s in self._step_s]

    @cached_property
    def steps_held(self) -> list[bool]:
        network = self.costs[0].network
        stated = cost_graph(step_of(network), self.first).step_time_s
        return [_holds(stated, time_s) for time_s in self._step_s]

    @cached_property
    def _step_s(self) -> list[float]:
        """The step's seconds in each sitting of the second profile."""
        values = [second.sittings_s for _, second in self.actions]
        return [math.fsum(own) for own in zip(*values, strict=True)]

    @property
    def long(self) -> list[tuple[PlaceCost, PlaceCost]]:
        return [pair for pair in self.actions if pair[0].time_s.median >= LONG_S]

    @cached_property
    def two_sittings(self) -> list[float]:
        """Sizes of the logarithms of ratios of two sittings' times, of long actions."""
        return [
            abs(math.log(one_s / other_s))
            for first, second in self.long
            for one_s in first.sittings_s
            for other_s in second.sittings_s
        ]

    @cached_property
    def held_s(self) -> list[tuple[float, bool]]:
        """Seconds of each action in each sitting of the second profile, and whether they lie in
        their interval."""
        return [
            (time_s, _holds(first.time_s, time_s))
            for first, second in self.actions
            for time_s in second.sittings_s
        ]


def floor_page(profiles: Sequence[Path], again: Sequence[Path], versions: Sequence[str]) -> Page:
    """Compare profiles with later ones of the same networks, for each board.

    Args:
        profiles: profiles with watched steps of one network each.
        again: a later profile of each, in any order.
        versions: versions for the page.

    Raises:
        ValueError: a profile has not exactly one watched network, or no later profile.
    """
    firsts, seconds = ([_read(file) for file in files] for files in (profiles, again))
    later = {_subject(profile): profile for profile in seconds}
    boards: dict[str, list[_Pair]] = {}
    for file, profile in zip(profiles, firsts, strict=True):
        if (subject := _subject(profile)) not in later:
            raise ValueError(f"{file}: no later profile of {subject[1]} on {subject[0]}")
        boards.setdefault(profile.name, []).append(_Pair(profile, later[subject]))
    tables = [_table(board, pairs) for board, pairs in boards.items()]
    return Page("What the noise of a board forbids", _TEXT, tables, versions)


def _read(file: Path) -> DeviceProfile:
    profile = read_yaml(file, DeviceProfile)
    if len(profile.step_costs) != 1:
        raise ValueError(f"{file}: {len(profile.step_costs)} watched networks; one is needed")
    return profile


def _subject(profile: DeviceProfile) -> tuple[str, str]:
    """The board and the network of a profile."""
    return profile.name, profile.step_costs[0].network.model_dump_json()


def _table(board: str, pairs: Sequence[_Pair]) -> Table:
    rows = [(pair.network, f"{pair.apart_min:.0f}", *_cells([pair])) for pair in pairs]
    return Table(_HEAD, [*rows, ("all", "–", *_cells(pairs))], title=board)


def _cells(pairs: Sequence[_Pair]) -> Iterator[str]:
    yield _differences([pair.profiles_differ for pair in pairs])
    differ = [each for pair in pairs for each in pair.sittings_differ]
    yield f"{100 * statistics.median(differ):.1f} %; {100 * max(differ):.1f} %"
    steps = [held for pair in pairs for held in pair.steps_held]
    yield f"{sum(steps)} of {len(steps)}"
    yield from _widths(pairs)
    held_s = [each for pair in pairs for each in pair.held_s]
    yield f"{100 * statistics.fmean(held for _, held in held_s):.1f} %"
    all_s = math.fsum(own_s for own_s, _ in held_s)
    yield f"{100 * math.fsum(own_s for own_s, held in held_s if held) / all_s:.1f} %"


def _differences(values: Sequence[float]) -> str:
    """A difference with its sign, or the size of several: the median, and the worst."""
    if len(values) == 1:
        return f"{100 * values[0]:+.1f} %"
    sizes = list(map(abs, values))
    return f"{100 * statistics.median(sizes):.1f} %; {100 * max(sizes):.1f} %"


def _widths(pairs: Sequence[_Pair]) -> Iterator[str]:
    """Widths that long actions need and have; dashes where there are none."""
    differ = [each for pair in pairs for each in pair.two_sittings]
    if not differ:
        yield from ("–", "–", "–")
        return
    most = float(np.quantile(differ, CONFIDENCE))
    yield f"{100 * math.expm1(most):.1f} %"
    yield f"±{100 * math.sinh(most / math.sqrt(2)):.1f} %"
    halves = [half_width(first.time_s) for pair in pairs for first, _ in pair.long]
    yield f"±{100 * statistics.median(halves):.1f} %"


def _holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high
