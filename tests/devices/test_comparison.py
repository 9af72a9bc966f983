"""False alarms of a comparison of profiles, and what it finds: recorded runs, and simulated ones.

The recorded runs are those of ``tests/references/record_trials.py``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from devices.comparison import FALSE_DISCOVERY_RATE, Difference, ProfileComparison, compare
from devices.library import resolve_profile
from devices.profile import (
    BoardIdentity,
    Cost,
    DeviceProfile,
    Interval,
    OperationCost,
    SweepPoint,
)
from profiler.statistics import later_intervals
from tests.references.record_trials import FOLDER

Figures = Sequence[Sequence[float]]


def profile(keys: Sequence[str], figures: Figures) -> DeviceProfile:
    """A profile of what was measured of each operation, in each block."""
    costs = [
        Cost(time_s=time_s, trials=len(values))
        for time_s, values in zip(later_intervals(figures), figures, strict=True)
    ]
    return DeviceProfile(
        name="board",
        energy_source="emulated",
        board=BoardIdentity(model="board", memory_bytes=1 << 20),
        operations=tuple(
            OperationCost(op=key, workspace_bytes=0, warm=cost, cold=cost)
            for key, cost in zip(keys, costs, strict=True)
        ),
    )


def profile_of(run: Figures) -> DeviceProfile:
    """A profile of what a run measured of operations that are the same in every run."""
    return profile([f"relu.forward elements={count + 1}" for count in range(len(run))], run)


def comparison(first: Figures, second: Figures) -> ProfileComparison:
    """Comparison of what two runs measured."""
    return compare(profile_of(first), profile_of(second))


def alarms(first: Figures, second: Figures) -> int:
    return len(comparison(first, second).differences)


def recorded(board: str) -> NDArray[np.float64]:
    """Seconds of each run, window and block."""
    runs_s = json.loads((FOLDER / f"trials-{board}.json").read_text())["runs_s"]
    return np.array(runs_s, dtype=np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["local", "emulated"])
def test_runs_of_the_same_board_raise_no_alarm(board: str) -> None:
    """A against A, 100 times: two of the runs, of each all blocks but one, in any order."""
    runs_s = recorded(board)
    rng = np.random.default_rng(0)

    @cache  # the same few runs without the same few blocks
    def measured(run: int, without: int) -> DeviceProfile:
        return profile_of(np.delete(runs_s[run], without, axis=1).tolist())

    raised = 0
    for _ in range(100):
        pair = rng.permutation(len(runs_s))[:2]
        first, second = (measured(int(run), int(rng.integers(runs_s.shape[2]))) for run in pair)
        raised += len(compare(first, second).differences) > 0
    assert raised <= 5


def test_the_errors_of_the_medians_alone_raise_alarms_on_unchanged_boards() -> None:
    """Five sittings in a row share what another quarter of an hour does not bring."""
    runs_s = recorded("local")
    sittings = runs_s.shape[2]
    narrower = (1 / (1 + sittings)) ** 0.5  # from √(1 + 1/n) to √(1/n)

    def of_medians(interval: Interval) -> Interval:
        return Interval(
            median=interval.median,
            low=interval.median * (interval.low / interval.median) ** narrower,
            high=interval.median * (interval.high / interval.median) ** narrower,
            freedom=interval.freedom,
        )

    figures = [[of_medians(each) for each in later_intervals(run.tolist())] for run in runs_s]
    raised = 0
    for first, second in itertools.combinations(figures, 2):
        pairs = zip(first, second, strict=True)
        compared = tuple(Difference("", "time_s", one, other) for one, other in pairs)
        raised += bool(ProfileComparison(compared, (), (), ()).differences)
    assert raised >= 2


@pytest.mark.parametrize(("board", "change"), [("local", 2.0), ("emulated", 1.001)])
def test_a_change_of_recorded_runs_is_found(board: str, change: float) -> None:
    first, second, *_ = recorded(board)
    second = second.copy()
    second[: len(second) // 2] *= change
    found = comparison(first.tolist(), second.tolist())
    changed = {figure.what for figure in found.figures[: len(second) // 2]}
    named = {figure.what for figure in found.differences}
    assert len(named & changed) > 0.9 * len(changed)
    assert len(named - changed) <= 0.05 * len(changed)


def simulated(
    rng: np.random.Generator, *, spread: float = 0.02, common: float = 0.0, figures: int = 30
) -> list[list[list[float]]]:
    """Two runs of five sittings; a run's figures deviate as its sittings do.

    ``common`` is the share of the variance that all figures of a sitting or run have in common.
    """

    def deviations(*shape: int) -> NDArray[np.float64]:
        own, shared = rng.standard_normal(shape), rng.standard_normal((1, *shape[1:]))
        mixed: NDArray[np.float64] = np.sqrt(1 - common) * own + np.sqrt(common) * shared
        return mixed

    times_s = 1e-4 * np.exp(rng.standard_normal((figures, 1)))
    return [
        (times_s * np.exp(spread * (deviations(figures, 5) + deviations(figures, 1)))).tolist()
        for _ in range(2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("common", [0.0, 0.9])
def test_equal_boards_raise_an_alarm_in_at_most_one_comparison_of_twenty(common: float) -> None:
    """Also where the figures of a sitting deviate together, and hours differ as sittings do."""
    rng = np.random.default_rng(0)
    raised = sum(alarms(*simulated(rng, common=common)) > 0 for _ in range(120))
    assert raised <= 0.05 * 120


@pytest.mark.slow
def test_the_stated_change_is_found_and_few_others() -> None:
    """A third of the figures is changed by as much as is found with 90 % probability."""
    rng = np.random.default_rng(0)
    found = false = wanted = 0
    for _ in range(60):
        first, second = simulated(rng)
        visible = comparison(first, second).visible(10)
        assert visible is not None
        assert 1.0 < visible.smallest <= visible.median <= visible.largest
        second[:10] = [[visible.median * value for value in values] for values in second[:10]]
        compared = comparison(first, second)
        named = {figure.what for figure in compared.differences}
        changed = {figure.what for figure in compared.figures[:10]}
        found, false, wanted = (
            found + len(named & changed),
            false + len(named - changed),
            wanted + 10,
        )
    assert found >= 0.85 * wanted
    assert false <= FALSE_DISCOVERY_RATE * found


def test_the_least_change_is_none_for_exactly_the_figures_that_do_not_differ() -> None:
    rng = np.random.default_rng(1)
    first, second = simulated(rng)
    second[:10] = [[1.5 * value for value in values] for values in second[:10]]
    compared = comparison(first, second)
    assert 0 < len(compared.differences) < len(compared.figures)
    for figure in compared.figures:
        assert (compared.least_ratio(figure) > 1.0) == (figure in compared.differences)


def test_figures_that_were_measured_once_in_both_runs_do_not_differ() -> None:
    compared = comparison([[1e-3], [2e-3]], [[1e-3], [2.1e-3]])
    assert compared.differences == ()
    assert compared.unknown == len(compared.figures)
    assert [compared.least_ratio(figure) for figure in compared.figures] == [1.0, 1.0]
    assert compared.visible(1) is None


def test_a_figure_that_was_measured_once_deviates_as_in_the_other_run() -> None:
    """Simulated: one sitting against five of the same board raises few alarms."""
    rng = np.random.default_rng(0)
    raised = 0
    for _ in range(40):
        first, second = simulated(rng, figures=10)
        raised += alarms([values[:1] for values in first], second) > 0
    assert raised <= 0.05 * 40
    first, second = simulated(rng, figures=10)
    assert alarms([[5 * values[0]] for values in first], second) == 10


def test_figures_that_are_zero_in_both_runs_are_known_to_be_equal() -> None:
    """The idle power of a board that sleeps below the zero of its meter."""
    nothing = Interval.exact(0.0)
    figure = Difference("idle for 1 s", "energy_j", nothing, nothing)
    assert (figure.is_known, figure.p_value) == (True, 1.0)


def test_published_figures_are_exact() -> None:
    one, other = (
        profile(["relu.forward elements=1"], [[time_s]]).changed(energy_source="published")
        for time_s in (1e-3, 1.001e-3)
    )
    compared = compare(one, other)
    assert [figure.ratio for figure in compared.differences] == [pytest.approx(1.001)]
    assert compared.least_ratio(compared.differences[0]) == pytest.approx(1.001)
    assert compared.unknown == 0


def test_published_rates_and_laws_of_storage_are_compared() -> None:
    m4, a72 = resolve_profile("m4"), resolve_profile("a72")
    compared = compare(m4, a72)
    ratios = {(each.what, each.quantity): each.ratio for each in compared.differences}
    assert m4.rates is not None
    assert a72.rates is not None
    assert m4.storage is not None
    assert a72.storage is not None
    assert ratios["a FLOP", "time_s"] == pytest.approx(m4.rates.flop_per_s / a72.rates.flop_per_s)
    assert ratios["a FLOP", "energy_j"] == pytest.approx(m4.rates.flop_per_j / a72.rates.flop_per_j)
    for part in ("read, fixed part", "read, per byte", "write, fixed part", "write, per byte"):
        assert {quantity for what, quantity in ratios if what == part} == {"time_s", "energy_j"}
    laws = (a72.storage.write.per_page_s, m4.storage.write.per_page_s)
    assert ratios["write, per byte", "time_s"] == pytest.approx(laws[0] / laws[1])
    assert compare(m4, m4).differences == ()


def test_a_law_without_measured_sizes_is_compared_at_those_of_the_other_profile() -> None:
    m4 = resolve_profile("m4")
    assert m4.storage is not None
    time_s = Interval(median=4e-4, low=3.9e-4, high=4.1e-4)
    points = tuple(SweepPoint(bytes=size, time_s=time_s) for size in (500, 1000))
    read = m4.storage.read.model_copy(update={"sweep": points})
    swept = m4.changed(storage=m4.storage.model_copy(update={"read": read}))
    figures = {each.what: each for each in compare(m4, swept).figures if "read" in each.what}
    assert set(figures) == {"read of 500 bytes", "read of 1000 bytes"}
    assert figures["read of 1000 bytes"].first.median == m4.storage.read_cost(1000)[0]
    assert figures["read of 1000 bytes"].second == time_s


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        (Interval(median=1.0, low=1e-320, high=1e18), Interval.exact(1.0), False),
        (Interval(median=1.0, low=1e-320, high=1e18), Interval.exact(1e18), False),
        (Interval.exact(1e-320), Interval(median=1e18, low=9e17, high=1e18), True),
        (Interval(median=1e18, low=9e17, high=1e18), Interval.exact(1e-320), True),
    ],
)
def test_ratios_that_are_too_large_for_a_number_are_compared(
    first: Interval, second: Interval, differ: bool
) -> None:
    found = Difference("relu.forward elements=1", "time_s", first, second)
    compared = ProfileComparison((found,), (), (), ())
    assert bool(compared.differences) == differ
    assert found.is_known
    least_ratio = compared.least_ratio(found)
    assert 0 < least_ratio < float("inf")
    assert (least_ratio == 1.0) == (not differ)


def test_nothing_in_common_is_no_difference() -> None:
    empty = ProfileComparison((), (), (), ())
    assert empty.differences == ()
    assert empty.visible(1) is None
