"""Messages to and from the process of the retention model.

Others are in :mod:`solver.engines.messages`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from solver.problem.problem import Problem
from solver.problem.schedule import Action


@dataclass(frozen=True)
class Task:
    """A problem to solve.

    ``intervals`` is the most retention intervals of a tensor. ``starts`` are start schedules, best
    first: the first one that the model does not exclude is used. ``known`` is the value of the best
    schedule known: costs need not be told apart beyond it.
    """

    problem: Problem
    objective: Literal["energy", "time"]
    intervals: int
    threads: int
    starts: tuple[tuple[Action, ...], ...]
    known: float = math.inf


@dataclass(frozen=True)
class Found:
    """A better schedule than before."""

    actions: tuple[Action, ...]
