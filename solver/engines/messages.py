"""What an engine's process is told and what it says: plain data, pickled over a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from solver.engines.program import Row

Outcome: TypeAlias = Literal["optimal", "infeasible", "stopped", "failed"]


@dataclass(frozen=True)
class Growth:
    """Columns and rows to be added to what the engine already has."""

    lower: list[float]
    upper: list[float]
    cost: list[float]
    integer: list[bool]
    rows: list[Row]


@dataclass(frozen=True)
class Run:
    """Grow, then minimise until proven within ``absolute_gap``; ``start`` is a solution to begin
    with (values of all columns), if there is one. ``relax``: without integrality."""

    growth: Growth
    relax: bool
    absolute_gap: float
    threads: int
    start: list[float] | None


@dataclass(frozen=True)
class Incumbent:
    """A better solution: values of all columns."""

    objective: float
    values: list[float]


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on the objective."""

    objective: float


@dataclass(frozen=True)
class Finished:
    """``reason`` is filled in where the engine failed."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Ready:
    """The first thing that the process says: the engine's name and version."""

    version: str


@dataclass(frozen=True)
class Silence:
    """Nothing was said for a moment."""


EngineMessage: TypeAlias = Incumbent | Bound | Finished | Ready | Silence
