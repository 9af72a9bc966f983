"""Coverage of the intervals of a profile, on simulated trials of known truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.operation import OpSpec
from devices.profile import Interval, PlaceCost, ProfiledNetwork, Sitting, StepCosts
from profiler.run.table import TrialTable
from profiler.statistics import later_intervals
from replay.costs.check import check_report, operation_figures, place_figures, stratified
from replay.costs.coverage import CheckedFigure, CheckedGroup, coverage, wilson
from tests.support.graphs.profiles import made_up_profile

RELU, ADD = OpSpec.of("relu.forward", elements=64), OpSpec.of("add.forward", elements=64)
INTERVAL = Interval(median=1.0, low=0.9, high=1.1)


def figure(*values: float, what: str = "relu", interval: Interval = INTERVAL) -> CheckedFigure:
    return CheckedFigure(what=what, kind=what, profile=interval, sittings_s=values)


@dataclass(frozen=True)
class ATable:
    """Trials of each operation in some of three blocks; all of the second block took long."""

    blocks: Mapping[OpSpec, Sequence[int]]

    def valid(self, label: str) -> dict[int, SimpleNamespace]:
        own = next(own for spec, own in self.blocks.items() if label.endswith(f" {spec.key}"))
        return {block: SimpleNamespace(time_s=2.0 if block == 1 else 1.0) for block in own}


def trials(seed: int, share: float, *, figures: int = 60, sittings: int = 3) -> list[CheckedFigure]:
    """Figures whose trials are held with a probability of ``share``."""
    held = np.random.default_rng(seed).random((figures, sittings)) < share
    return [figure(*np.where(own, 1.0, 2.0).tolist()) for own in held]


def plainly(figures: list[CheckedFigure]) -> tuple[float, float, float]:
    found = coverage([CheckedGroup(tuple(figures))])
    return found.share, found.low, found.high


def test_trials_within_their_intervals_are_counted() -> None:
    found = coverage([CheckedGroup((figure(1.0, 1.2, 0.9), figure(1.1, 1.0)))])
    assert (found.held, found.trials) == (4, 5)
    assert found.share == pytest.approx(4 / 5)


def test_long_operations_weigh_more_by_time() -> None:
    long = Interval(median=9.0, low=8.0, high=10.0)
    group = CheckedGroup((figure(9.0, interval=long), figure(2.0)))
    assert coverage([group], lambda f: f.profile.median).share == pytest.approx(0.9)


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_the_interval_of_the_coverage_holds_the_truth(share: float) -> None:
    held = [
        low <= share <= high for _, low, high in (plainly(trials(s, share)) for s in range(300))
    ]
    assert 0.93 <= np.mean(held) <= 0.99


def test_a_board_that_is_slower_as_a_whole_says_less_about_its_intervals() -> None:
    """All 60 trials of one sitting miss together: one event, not sixty."""
    together = [figure(1.0, 2.0, 1.0) for _ in range(60)]
    apart = [figure(*np.roll([1.0, 2.0, 1.0], n).tolist()) for n in range(60)]
    assert plainly(together)[0] == pytest.approx(plainly(apart)[0])
    assert plainly(apart)[2] < 0.75
    assert plainly(together)[2] > 0.95


def test_figures_whose_window_was_void_in_one_block_stay_in_their_sittings() -> None:
    """The second sitting was unusual as a whole, also for figures that the first one lacks."""
    specs = [OpSpec.of("relu.forward", elements=1 + number) for number in range(30)]
    table = ATable({spec: range(number % 2, 3) for number, spec in enumerate(specs)})
    group = operation_figures(made_up_profile(specs), specs, cast(TrialTable, table))
    held = [figure.sittings_s for figure in group.figures]
    assert {len(values) for values in held} == {2, 3}
    assert np.isnan(group.values).any(axis=0).tolist() == [True, False, False]
    assert (group.values[:, 1] == 2.0).all()
    assert coverage([group.of_kind("relu.forward")]) == coverage([group])


def watched(model: str, time_s: float, op: str = "f") -> StepCosts:
    place = PlaceCost(
        op=op, key=RELU.key, time_s=Interval.exact(time_s), energy_j=None, sittings_s=(time_s,) * 3
    )
    network = ProfiledNetwork(model=model, batch=1, optimizer="sgd")
    sitting = Sitting(schedule="unscheduled", steps=3, measured="2026-01-31T12:00:00+00:00")
    return StepCosts(network=network, sittings=(sitting,) * 3, correlation=0.0, places=(place,))


def test_an_op_may_have_the_longest_name_that_a_profile_allows() -> None:
    costs = watched("one", 1.0, op="x" * 400)
    (figure,) = place_figures(costs, costs).figures
    assert figure.what.endswith("x" * 400)


def test_a_step_is_held_against_its_own_earlier_watch() -> None:
    """And not against that of another network that has the same op."""

    (figure,) = place_figures(watched("one", 1.0), watched("one", 1.5)).figures
    assert (figure.profile.median, figure.sittings_s) == (1.0, (1.5,) * 3)


def test_a_share_of_all_trials_is_as_sure_as_their_number() -> None:
    """One interval of the profile would be another without one sitting: no reason to doubt."""
    figures = tuple(figure(1.0, 1.0, 1.0) for _ in range(100))
    narrow = Interval(median=1.0, low=0.99, high=1.01)
    shifted = (Interval(median=1.1, low=1.05, high=1.15), *[narrow] * 99)
    found = coverage([CheckedGroup(figures, (shifted, *[(narrow,) * 100] * 8))])
    assert found.share == 1.0
    assert found.low > 0.9


@pytest.mark.parametrize("sittings", [2, 3, 9])
def test_a_board_that_varies_as_a_whole_is_seldom_accused(sittings: int) -> None:
    draw = np.random.default_rng(sittings)
    accused = []
    for _ in range(300):
        common, own = draw.standard_normal((1, sittings)), draw.standard_normal((40, sittings))
        held_by_all = np.abs(common + 0.3 * own) < 1.959964 * math.hypot(1.0, 0.3)
        figures = [figure(*np.where(held, 1.0, 2.0).tolist()) for held in held_by_all]
        accused.append(coverage([CheckedGroup(tuple(figures))]).is_clearly_below_the_claim)
    assert np.mean(accused) <= 0.05


def checked(seed: int) -> CheckedGroup:
    """Figures of four families, whose members deviate alike, from 8 sittings, checked in 6."""
    draw = np.random.default_rng(seed)
    shared, own = draw.normal(size=(4, 1, 14)), draw.normal(size=(4, 6, 14))
    values = np.exp(0.01 * (shared + 0.5 * own)).reshape(24, 14)
    before, after = values[:, :8].tolist(), values[:, 8:].tolist()
    figures = [
        figure(*again, interval=interval)
        for again, interval in zip(after, later_intervals(before), strict=True)
    ]
    return CheckedGroup.of(figures, before, range(len(before[0])))


@pytest.mark.slow
def test_a_check_allows_for_what_was_unusual_when_the_profile_was_measured() -> None:
    found = [coverage([checked(seed)]) for seed in range(60)]
    assert np.mean([each.share for each in found]) == pytest.approx(0.95, abs=0.02)
    assert np.mean([each.low <= 0.95 <= each.high for each in found]) >= 0.9
    assert np.mean([each.is_clearly_below_the_claim for each in found]) <= 0.05


def test_sittings_of_one_pause_are_left_out_together() -> None:
    """Two of eight, in one pause, found 2.0: only without both, an interval does not hold it."""
    before = [[1.0, 1.01] * 3 + [2.0, 2.01]]
    figures = [figure(2.0, interval=Interval(median=1.0, low=0.5, high=3.0))]
    for times, narrow in ((range(8), 0), ((0, 0, 1, 1, 2, 2, 3, 3), 1)):
        without = CheckedGroup.of(figures, before, times).without
        assert len(without) == (4 if narrow else 8)
        assert sum(interval.high < 2.0 for (interval,) in without) == narrow


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_wilsons_interval_holds_the_share(share: float, number: float) -> None:
    low, high = wilson(share, number)
    assert 0.0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1.0


def test_wilsons_interval_is_the_published_one() -> None:
    """81 of 263: 0.255289 to 0.366241 (Newcombe 1998, table I, method 3)."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_a_report_has_kinds_and_differences() -> None:
    profile = made_up_profile([RELU, ADD])
    groups = [CheckedGroup((figure(1.0, 1.0),)), CheckedGroup((figure(2.0, what="add"),))]
    report = check_report(profile, "bench", "2026-01-31T12:00:00+00:00", groups, 1)
    assert {kind: each.share for kind, each in report.kinds.items()} == {"add": 0.0, "relu": 1.0}
    assert report.difference == pytest.approx(0.5)
    assert report.unchecked == 1


@pytest.mark.parametrize(("share", "below"), [(0.95, False), (0.5, True)])
def test_only_a_coverage_that_is_clearly_lower_fails(share: float, below: bool) -> None:
    group = CheckedGroup(tuple(trials(0, share)))
    assert coverage([group]).is_clearly_below_the_claim == below


def test_a_sample_has_every_kind_before_any_twice() -> None:
    specs = [
        OpSpec.of(kind, elements=4**n)
        for kind in ("relu.forward", "add.forward")
        for n in range(8, 15)
    ]
    profile = made_up_profile(specs)
    chosen = stratified(profile, specs, lambda _: 1.0, 6.0)
    assert sorted(spec.kind for spec in chosen) == ["add.forward"] * 3 + ["relu.forward"] * 3
    relus = sorted(spec.attributes["elements"] for spec in chosen if spec.kind == "relu.forward")
    assert [round(math.log(size, 4)) for size in relus] == [9, 11, 13]
    assert len(stratified(profile, specs, lambda _: 1.0, 1e9)) == len(specs)
    assert len(stratified(profile, specs, lambda _: 1.0, 0.1)) == 1
