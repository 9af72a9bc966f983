"""Medians and fits of few values."""

from __future__ import annotations

import math

import pytest

from devices.profile import Interval, SweepPoint
from profiler.run.storage_fit import fit_affine, fit_page_cost
from profiler.statistics import median_interval


def point(size_bytes: int, time_s: float, energy_j: float | None = None) -> SweepPoint:
    return SweepPoint(
        bytes=size_bytes,
        time_s=Interval.exact(time_s),
        energy_j=None if energy_j is None else Interval.exact(energy_j),
    )


# --- medians ------------------------------------------------------------------------------------


def test_a_median_of_no_values_is_refused() -> None:
    with pytest.raises(ValueError, match="a median needs at least one value"):
        median_interval([])


def test_equal_values_are_exact() -> None:
    assert median_interval([2.0, 2.0, 2.0]) == Interval.exact(2.0)


def test_the_interval_of_five_values_is_their_range() -> None:
    assert median_interval([5.0, 1.0, 4.0, 2.0, 3.0]) == Interval(median=3.0, low=1.0, high=5.0)


# --- fits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("costs", [[1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0], []])
def test_a_fit_needs_two_sizes_and_costs_above_zero(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="two or more sizes with a positive cost"):
        fit_affine([1, 2][: len(costs)], costs)


def test_a_fit_of_two_sizes_is_exact() -> None:
    fit = fit_affine([1, 3], [2.0, 4.0])
    assert (fit.fixed, fit.per_page, fit.error) == pytest.approx((1.0, 1.0, 0.0), abs=1e-12)


def test_the_fit_error_is_the_root_mean_square_of_relative_errors() -> None:
    """Costs are proportional to pages, except that one of four sizes took a tenth longer."""
    pages = [100, 200, 400, 800]
    costs = [100.0, 200.0, 400.0, 880.0]
    fit = fit_affine(pages, costs)
    off = [(fit.fixed + fit.per_page * x) / y - 1.0 for x, y in zip(pages, costs, strict=True)]
    assert fit.error == pytest.approx(math.sqrt(sum(share**2 for share in off) / 4))
    assert 0.01 < fit.error < 0.1


def test_a_part_of_a_page_costs_a_whole_page() -> None:
    sweep = [point(1, 3.0), point(4096, 3.0), point(4097, 5.0), point(8192, 5.0), point(8193, 7.0)]
    fit = fit_page_cost(sweep, 4096)
    assert (fit.fixed_s, fit.per_page_s, fit.fit_error) == pytest.approx((1.0, 2.0, 0.0), abs=1e-9)
    assert fit.sweep == tuple(sweep)


@pytest.mark.parametrize("energies", [(None, None, 2.0), (0.0, 0.0, 2.0), (None, 0.0, None)])
def test_fewer_than_two_sizes_with_an_energy_give_no_energy_per_page(
    energies: tuple[float | None, ...],
) -> None:
    sizes = (4096, 8192, 16384)
    fit = fit_page_cost([point(s, s, e) for s, e in zip(sizes, energies, strict=True)], 4096)
    assert (fit.fixed_j, fit.per_page_j) == (None, None)
    assert fit.per_page_s == pytest.approx(4096.0)


def test_two_sizes_with_an_energy_give_the_energy_per_page() -> None:
    fit = fit_page_cost([point(4096, 1.0, 2.0), point(8192, 1.0), point(12288, 1.0, 4.0)], 4096)
    assert (fit.fixed_j, fit.per_page_j) == pytest.approx((1.0, 1.0))
