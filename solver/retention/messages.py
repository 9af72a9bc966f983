"""What the process of the retention model is told and what it says besides
:mod:`solver.engines.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from solver.problem.problem import Problem
from solver.problem.schedule import Action


@dataclass(frozen=True)
class Task:
    """``intervals`` is the most that a tensor may have. ``starts`` are schedules to begin with, the
    best first: the first that the model has a solution for is taken."""

    problem: Problem
    objective: Literal["energy", "time"]
    intervals: int
    threads: int
    starts: tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Found:
    """A better schedule."""

    actions: tuple[Action, ...]
