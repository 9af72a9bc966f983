"""Figures in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.documents.readable import above_least


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0, "at most 0 % above the least"),
        (0.2, "at most 25 % above the least"),
        (0.49, "at most 96.1 % above the least"),
        (0.5, "at most 2 times the least"),
        (0.99394, "at most 165 times the least"),
        (1.0, "without a proof of how far above the least"),
    ],
)
def test_a_gap_in_words(gap: float, words: str) -> None:
    assert above_least(gap) == words


@given(found=st.floats(1e-6, 1e6), share=st.floats(0.01, 1.0))
def test_a_gap_in_words_is_how_far_above_the_bound_a_figure_is(found: float, share: float) -> None:
    bound = share * found
    words = above_least((found - bound) / found)
    (number,) = re.findall(r"[0-9.e+-]*[0-9]", words)
    above = 1 + float(number) / 100 if "%" in words else float(number)
    assert above == pytest.approx(found / bound, rel=1e-2)
