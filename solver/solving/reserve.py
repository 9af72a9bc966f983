"""Time to reserve for the last checks of a schedule."""

from __future__ import annotations

import time

from solver.constructed import keep_everything
from solver.options import Coverage
from solver.problem.graph import CostedGraph
from solver.referee.referee import replay

# Checking and writing a schedule takes as long as this many replays of the step.
_REPLAYS = 12


def checks_s(graph: CostedGraph, covers: Coverage) -> float:
    """Seconds that checking and writing a schedule of a graph take at present.

    They are estimated from one replay. Less time than that is not enough for any method.
    """
    actions = list(keep_everything(graph))  # a list: no kept replay is found for it
    began = time.monotonic()
    replay(graph, actions, covers)
    return _REPLAYS * (time.monotonic() - began)
