"""Figures in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.documents.readable import above_least, lower_bound, si


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0, "at most 0 % above the least"),
        (0.2, "at most 25 % above the least"),
        (0.49, "at most 96.1 % above the least"),
        (0.3, "at most 42.9 % above the least"),
        (0.1, "at most 11.2 % above the least"),
        (0.5, "at most 2 times the least"),
        (0.99394, "at most 166 times the least"),
        (1.0, "without a proof of how far above the least"),
    ],
)
def test_a_gap_in_words(gap: float, words: str) -> None:
    assert above_least(gap) == words


@pytest.mark.parametrize(
    ("value", "digits", "words"),
    [
        (0.000546, 4, "546 µJ"),
        (0.25, 2, "250 mJ"),
        (0.9996, 3, "1 J"),
        (999.96, 4, "1 kJ"),
        (-0.25, 2, "-250 mJ"),
        (0.0, 4, "0 J"),
        (3e-10, 4, "3e-10 J"),
    ],
)
def test_a_quantity_has_a_prefix_and_no_exponent(value: float, digits: int, words: str) -> None:
    assert si(value, "J", digits) == words


@given(st.floats(1e-12, 1e12))
def test_a_bound_in_words_is_no_larger_than_the_bound(value: float) -> None:
    number, unit = lower_bound(value, "J").split()
    factor = {"": 1.0, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6, "n": 1e-9}
    stated = float(number) * factor[unit.removesuffix("J")]
    assert 0.999 * value <= stated * (1 - 1e-12) <= value


@settings(derandomize=True)
@given(found=st.floats(1e-6, 1e6), share=st.floats(0.01, 1.0))
def test_a_gap_in_words_is_how_far_above_the_bound_a_figure_is(found: float, share: float) -> None:
    bound = share * found
    words = above_least((found - bound) / found)
    (number,) = re.findall(r"[0-9.e+-]*[0-9]", words)
    above = 1 + float(number) / 100 if "%" in words else float(number)
    assert above == pytest.approx(found / bound, rel=1e-2)
