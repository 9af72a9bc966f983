"""The end of a step where its arena leaves little room to bring everything to its place."""

from __future__ import annotations

import time

import pytest

from devices.plan import ArenaRange
from replay.lowering.checks import LoweringError
from replay.lowering.moves import Mover, ordered_moves

MIB = 1 << 20


def test_large_tensors_that_change_places_word_by_word_are_refused_at_once() -> None:
    """They would go in four million pieces."""
    movers = [Mover("a", ArenaRange(0, 16 * MIB), 4), Mover("b", ArenaRange(16 * MIB, 4), 0)]
    start_s = time.process_time()
    with pytest.raises(LoweringError, match=r"leaves a, b where .* 0 free bytes in a row"):
        ordered_moves(movers, 16 * MIB + 4)
    assert time.process_time() - start_s < 5.0
