"""The benchmark of growing graphs: what ended a search."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.solver.command import CommandRun
from benchmarks.solver.growth import Point


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ({"status": "feasible", "ended_by": "time_limit", "gap": 0.2}, "time limit"),
        ({"status": "feasible", "gap": 0.015}, "–"),
        (None, "–"),
    ],
)
def test_a_row_says_what_ended_the_search(schedule: dict[str, Any] | None, shown: str) -> None:
    """Without a mark, the methods had nothing left to try, and more time would not help."""
    point = Point("encoder", "encoder-4-m4", 244, CommandRun(schedule, 8.0, 1, "failed"))
    assert point.cells[4] == shown
