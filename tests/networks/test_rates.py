"""Courses of the learning rate, with PyTorch's values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from networks.rates import RateSchedule

# Of PyTorch 2.13, with a rate of 0.3.
_COSINE = [0.3, 0.2560660171779821, 0.15, 0.043933982822017886]
"""CosineAnnealingLR(T_max=4)"""
_WARM_UP = [0.075, 0.15, 0.22499999999999998, 0.29999999999999993, 0.3]
"""LinearLR(start_factor=1/4, total_iters=3)"""
_BOTH = [*_WARM_UP[:4], 0.3, 0.27990381056766583, 0.225, 0.15, 0.075, 0.020096189432334197]
"""SequentialLR of LinearLR(1/4, total_iters=3) and CosineAnnealingLR(6), milestone 4"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", [0.3, 0.3]),
        ("cosine", _COSINE),
        ("warm-up:4", _WARM_UP),
        ("warm-up-cosine:4", _BOTH),
    ],
)
def test_rates_are_those_of_pytorch(text: str, expected: list[float]) -> None:
    assert RateSchedule.parse(text).rates(0.3, len(expected)) == pytest.approx(expected)


@given(st.integers(1, 50), st.integers(1, 50), st.booleans())
def test_rates_are_positive_and_at_most_the_highest(warm_up: int, steps: int, cosine: bool) -> None:
    rates = RateSchedule(warm_up, cosine).rates(0.1, steps)
    assert len(rates) == steps
    assert all(0 < rate <= 0.1 for rate in rates)
    assert list(rates[:warm_up]) == sorted(rates[:warm_up])


@pytest.mark.parametrize("text", ["", "linear", "warm-up", "warm-up:0", "cosine:3", "warm-up:x"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a course of the learning rate"):
        RateSchedule.parse(text)
