"""Intervals of medians and of a later sitting, on simulated values of known truth."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap

from devices.profile import Interval
from profiler.statistics import (
    interval_after_one_sitting,
    later_intervals,
    later_variance,
    median_interval,
)

VALUES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8)


# --- medians of what exists ---------------------------------------------------------------------


@settings(derandomize=True, max_examples=30)
@given(st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0, 7.0, 50.0]), min_size=2, max_size=5))
def test_the_interval_of_few_values_is_that_of_all_resamples(values: list[float]) -> None:
    resamples = np.array(list(itertools.product(values, repeat=len(values))))
    medians, counts = np.unique(np.median(resamples, axis=1), return_counts=True)
    shares = counts.cumsum() / len(resamples)
    found = median_interval(values)
    assert found.low == pytest.approx(medians[np.searchsorted(shares, 0.025)])
    assert found.high == pytest.approx(medians[np.searchsorted(shares, 0.975)])


@pytest.mark.parametrize("count", [6, 7, 20, 21, 150, 301])
def test_the_interval_is_that_of_the_bootstrap_but_for_its_noise(count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    drawn = bootstrap(
        (values,), np.median, n_resamples=8000, batch=500, method="percentile", rng=1
    ).bootstrap_distribution
    found = median_interval(values.tolist())
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        noise = 4 * math.sqrt(0.025 * 0.975 / len(drawn))
        assert np.mean(drawn < end * (1 - 1e-12)) <= share + noise
        assert np.mean(drawn <= end * (1 + 1e-12)) >= share - noise


@pytest.mark.parametrize("count", [5, 12, 41])
def test_the_interval_covers_the_true_median_as_often_as_stated(count: int) -> None:
    """Skewed values, as on a machine with interruptions.

    The smallest and the largest of five enclose the median in 1 - 2 / 2⁵ = 94 % of cases.
    """
    drawn = np.random.default_rng(7).lognormal(0.0, 0.5, size=(200, count)).tolist()
    found = [median_interval(values) for values in drawn]
    covered = float(np.mean([interval.low <= 1.0 <= interval.high for interval in found]))
    assert 0.91 <= covered <= 0.98


@pytest.mark.parametrize("count", [20_000, 20_001])
def test_the_interval_of_many_steps_takes_little_memory(count: int) -> None:
    """The medians of 2,000 resamples of so many values take 700 MiB."""
    values = np.random.default_rng(0).lognormal(size=count).tolist()
    median_interval(values[:2])  # imports are not counted
    tracemalloc.start()
    found = median_interval(values)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.97 < found.low < found.median < found.high < 1.03
    assert peak_bytes < 64 * count


# --- a later sitting ----------------------------------------------------------------------------


def sittings(seed: int, count: int, *, unlike: float, tails: bool = False) -> NDArray[np.float64]:
    """Times of 40 operations in ``count`` sittings; operations have unlike spreads around 2 %.

    With ``tails``, deviations have Student's distribution with 3 degrees of freedom.
    """
    rng = np.random.default_rng(seed)
    times_s = 1e-4 * np.exp(2 * rng.standard_normal((40, 1)))
    spreads = 0.02 * np.exp(unlike * rng.standard_normal((40, 1)))
    deviations = rng.standard_t(3, (40, count)) if tails else rng.standard_normal((40, count))
    drawn: NDArray[np.float64] = times_s * np.exp(spreads * deviations)
    return drawn


def coverage(
    count: int,
    *,
    unlike: float,
    method: Callable[[list[list[float]]], list[Interval]],
    tails: bool = False,
) -> float:
    """Share of later sittings that lie in the intervals from ``count`` sittings."""
    held = []
    for seed in range(60):
        drawn = sittings(seed, count + 1, unlike=unlike, tails=tails)
        for interval, later in zip(method(drawn[:, :-1].tolist()), drawn[:, -1], strict=True):
            held.append(interval.low <= later <= interval.high)
    return float(np.mean(held))


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5, 10])
@pytest.mark.parametrize("unlike", [0.0, 0.5, 1.0])
def test_the_interval_holds_a_later_sitting(count: int, unlike: float) -> None:
    assert 0.93 <= coverage(count, unlike=unlike, method=later_intervals) <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_interval_holds_a_later_sitting_of_a_board_with_long_tails(count: int) -> None:
    assert coverage(count, unlike=0.5, method=later_intervals, tails=True) >= 0.93


def in_pauses(seed: int, pauses: int, in_each: int, *, memory_s: float) -> NDArray[np.float64]:
    """Times of 40 operations in sittings of several pauses, and in a later one, in the last column.

    Sittings of a pause are 0.8 s apart, pauses a minute. The computer's speed changes by 3 %, with
    a correlation of exp(-t / ``memory_s``) over t seconds; each operation deviates by 1 % besides.
    """
    rng = np.random.default_rng(seed)
    when_s = np.array([60.0 * k + 0.8 * n for k in range(pauses) for n in range(in_each)])
    when_s = np.append(when_s, 60.0 * pauses)
    apart_s = np.abs(when_s[:, None] - when_s)
    root = np.linalg.cholesky(np.exp(-apart_s / memory_s) + 1e-9 * np.eye(len(when_s)))
    speed = root @ rng.standard_normal(len(when_s))
    own = rng.standard_normal((40, len(when_s)))
    drawn: NDArray[np.float64] = 1e-4 * np.exp(0.03 * speed + 0.01 * own)
    return drawn


def held_and_width(
    pauses: int, in_each: int, memory_s: float, *, apart: bool
) -> tuple[float, float]:
    """Share of later sittings that are held, and mean relative half width.

    With ``apart``, each sitting is taken to be at a time of its own.
    """
    numbers = [number for number in range(pauses) for _ in range(in_each)]
    held, widths = [], []
    for seed in range(150):
        drawn = in_pauses(seed, pauses, in_each, memory_s=memory_s)
        found = later_intervals(drawn[:, :-1].tolist(), None if apart else [numbers] * len(drawn))
        for interval, later in zip(found, drawn[:, -1], strict=True):
            held.append(interval.low <= later <= interval.high)
            widths.append(math.log(interval.high / interval.low) / 2)
    return float(np.mean(held)), float(np.mean(widths))


@pytest.mark.slow
@pytest.mark.parametrize(("pauses", "in_each"), [(5, 2), (3, 3), (4, 4)])
def test_sittings_of_one_pause_count_as_one_time(pauses: int, in_each: int) -> None:
    """Taken to be independent, they hold too few later sittings."""
    held, _ = held_and_width(pauses, in_each, 6.0, apart=False)
    assert held >= 0.94
    assert held_and_width(pauses, in_each, 6.0, apart=True)[0] < min(0.93, held - 0.02)


@pytest.mark.slow
def test_independent_sittings_are_worth_as_much_in_pauses() -> None:
    held, width = held_and_width(5, 2, 0.05, apart=False)
    alone_held, alone = held_and_width(5, 2, 0.05, apart=True)
    assert min(held, alone_held) >= 0.94
    assert width < 1.15 * alone


def test_sittings_of_a_single_pause_are_taken_as_they_are() -> None:
    drawn = sittings(0, 5, unlike=0.3).tolist()
    assert later_intervals(drawn, [[7] * 5] * len(drawn)) == later_intervals(drawn)
    assert later_intervals(drawn, [[3, 1, 4, 0, 5]] * len(drawn)) == later_intervals(drawn)


def test_the_variance_of_a_later_sitting_is_that_between_pauses_and_half_of_that_within() -> None:
    values = np.array([[1.0, 3.0], [4.0, 8.0], [5.0, 3.0]])
    between, within = values.mean(axis=1).var(ddof=1), values.var(axis=1, ddof=1).mean()
    found = later_variance(values.ravel().tolist(), [0, 0, 1, 1, 2, 2])
    assert found == pytest.approx(between + within / 2)
    assert later_variance([1.0, 3.0, 4.0], [0, 1, 2]) == pytest.approx(np.var([1, 3, 4], ddof=1))
    assert later_variance([2.0], [0]) == 0.0


def test_the_bootstrap_of_the_median_does_not_hold_a_later_sitting() -> None:
    """Of six sittings, the last one is the smallest or the largest in two cases of six."""

    def medians(figures: list[list[float]]) -> list[Interval]:
        return [median_interval(values) for values in figures]

    assert coverage(5, unlike=0.5, method=medians) == pytest.approx(4 / 6, abs=0.03)


def test_spreads_of_all_figures_narrow_the_intervals() -> None:
    """Alone, three sittings know their spread so badly that Student's t is 4.3."""
    drawn = sittings(0, 3, unlike=0.2).tolist()
    together = later_intervals(drawn)
    alone = [later_intervals([values])[0] for values in drawn]

    def width(intervals: list[Interval]) -> float:
        return float(np.median([math.log(i.high / i.low) for i in intervals]))

    assert width(together) < 0.7 * width(alone)


def test_figures_with_unlike_spreads_keep_their_own() -> None:
    drawn = np.vstack([sittings(0, 5, unlike=0.0), sittings(1, 5, unlike=0.0) ** 10])
    widths = [math.log(i.high / i.low) for i in later_intervals(drawn.tolist())]
    assert np.median(widths[40:]) > 5 * np.median(widths[:40])


def test_values_that_never_differ_have_the_resolution_of_a_window() -> None:
    for found in later_intervals([[2e-3] * 5] * 4):
        assert found.median == 2e-3
        assert found.high - found.low == pytest.approx(2 * 5e-5 * 2e-3, rel=1e-3)


@pytest.mark.parametrize("rounding", [0.0, 1e-12, 1e-9, 1e-6, 1e-5])
def test_rare_interrupts_of_steady_figures_widen_no_others(rounding: float) -> None:
    """Of 60 figures that are equal but for rounding, 24 were interrupted once for 3e-4."""
    rng = np.random.default_rng(0)
    steady = 1e-3 * (1 + rounding * rng.standard_normal((60, 5)))
    steady[np.arange(24), rng.integers(5, size=24)] *= 1 + 3e-4
    noisy = 1e-3 * np.exp(0.01 * rng.standard_normal((6, 5)))
    found = later_intervals([*steady.tolist(), *noisy.tolist()])
    halves = [math.log(interval.high / interval.low) / 2 for interval in found]
    assert all(0.005 < half < 0.06 for half in halves[60:])
    assert all(3e-4 < half < 1e-3 for half in halves[:24])
    assert all(half < 1e-3 for half in halves[24:60])


def test_one_sitting_takes_its_spread_from_other_figures() -> None:
    drawn = sittings(0, 5, unlike=0.0).tolist()
    *_, found = later_intervals([*drawn, [1e-3]])
    assert 0.02 < math.log(found.high / found.low) / 2 < 0.2
    assert later_intervals([[1e-3]]) == [Interval.exact(1e-3)]


def test_a_figure_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        later_intervals([[1.0], []])


@settings(derandomize=True)
@given(st.lists(VALUES, min_size=1, max_size=6), st.floats(1e-3, 1e3))
def test_intervals_hold_their_median_and_scale_with_the_unit(
    figures: list[list[float]], unit: float
) -> None:
    found = later_intervals(figures)
    scaled = later_intervals([[unit * value for value in values] for values in figures])
    for interval, other, values in zip(found, scaled, figures, strict=True):
        assert interval.median == pytest.approx(float(np.median(values)))
        assert interval.low <= interval.median <= interval.high
        for end in ("low", "high"):
            assert getattr(other, end) == pytest.approx(unit * getattr(interval, end), rel=1e-6)


@settings(derandomize=True)
@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5), min_size=1, max_size=5))
def test_zeros_are_allowed(figures: list[list[float]]) -> None:
    for interval, values in zip(later_intervals(figures), figures, strict=True):
        assert interval.low <= interval.median <= interval.high
        if 0.0 in values:
            assert (interval.low, interval.high) == (0.0, max(values))


def test_after_one_sitting_the_larger_deviation_counts_for_both() -> None:
    within = Interval(median=2.0, low=2.0 / 1.1, high=2.0 * 1.1)
    narrow = (Interval(median=5.0, low=5.0 / 1.01, high=5.0 * 1.01, freedom=8), range(9))
    wide = (Interval(median=5.0, low=5.0 / 1.5, high=5.0 * 1.5, freedom=2), (0, 0, 1, 1, 2))
    zero = (Interval(median=1.0, low=0.0, high=9.0), range(3))
    for earlier in ([], [narrow], [narrow, zero]):
        found = interval_after_one_sitting(within, earlier)
        assert math.log(found.high / 2.0) == pytest.approx(math.sqrt(2) * math.log(1.1))
        assert found.freedom is None
    found = interval_after_one_sitting(within, [narrow, wide, zero])
    half = math.log(1.5) / math.sqrt(1 + 1 / 3)
    assert math.log(found.high / 2.0) == pytest.approx(math.sqrt(2) * half)
    assert math.log(2.0 / found.low) == pytest.approx(math.sqrt(2) * half)
    assert found.freedom == 2


def test_after_one_sitting_a_figure_that_never_differs_has_no_interval() -> None:
    for value in (0.0, 3.0):
        assert interval_after_one_sitting(Interval.exact(value), []) == Interval.exact(value)
