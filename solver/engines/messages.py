"""Messages to and from an engine's process: plain data, pickled through a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from solver.engines.program import Row

Outcome: TypeAlias = Literal["optimal", "infeasible", "stopped", "failed"]


@dataclass(frozen=True)
class Growth:
    """Columns and rows to add to the engine's program."""

    lower: list[float]
    upper: list[float]
    cost: list[float]
    integer: list[bool]
    rows: list[Row]


@dataclass(frozen=True)
class Run:
    """Order to add ``growth``, then minimise until proven within ``absolute_gap``.

    ``start`` is a solution to begin with (values of all columns), or None. With ``relax``
    integrality is dropped. Without ``presolve`` the engine searches the program as it is.
    """

    growth: Growth
    relax: bool
    absolute_gap: float
    threads: int
    start: list[float] | None
    presolve: bool = True


@dataclass(frozen=True)
class Forget:
    """Order to forget the program, and to begin with another one."""


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
    """End of a run.

    ``reason`` says why the engine failed, or which of its proofs is false or was not confirmed.
    """

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Ready:
    """First message of the process: the engine's name and version."""

    version: str


@dataclass(frozen=True)
class Silence:
    """No message arrived within the polling interval."""


EngineMessage: TypeAlias = Incumbent | Bound | Finished | Ready | Silence
