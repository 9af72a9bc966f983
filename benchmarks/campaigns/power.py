"""What campaigns would find, simulated from the scatter between two runs of one schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from campaigns.comparing.shifts import shift_of_logs


@dataclass(frozen=True)
class Power:
    """How many of ``comparisons``, simulated with a true ``change``, say that a step takes
    ``more`` or ``less`` time."""

    change: float
    comparisons: int
    more: int
    less: int


def simulate(
    scatter: Sequence[float], change: float, pairs: int, comparisons: int, margin: float
) -> Power:
    """Compare schedules whose ratios of times scatter as measured.

    Args:
        scatter: Logarithms of ratios of two runs of one schedule, which are drawn with a random
            sign: either run may be the first.
        change: True relative change.
        pairs: Pairs of a comparison.
        comparisons: How many comparisons to simulate.
        margin: Largest change at which two count as the same.
    """
    draw = Random(f"{change} {pairs}")
    verdicts = [
        shift_of_logs(
            [
                math.log1p(change) + draw.choice((-1, 1)) * log
                for log in draw.choices(scatter, k=pairs)
            ],
            1,
            margin,
        ).verdict
        for _ in range(comparisons)
    ]
    return Power(change, comparisons, verdicts.count("more"), verdicts.count("less"))
