"""The benchmark of slices: how often a call is repeated."""

from __future__ import annotations

import pytest

from benchmarks.slices.calls import repetitions_for


@pytest.mark.parametrize("later_s", [1e-6, 1e-4, 4.9e-3, 6e-3])
def test_a_slow_first_run_does_not_shorten_a_sample(later_s: float) -> None:
    taken = iter([20e-3])
    repetitions = repetitions_for(lambda _count: next(taken, later_s))
    assert 5e-3 <= repetitions * later_s < 12e-3
