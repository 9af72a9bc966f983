"""Search options, and the tensors that a RAM budget covers.

This module imports little, so that the command line can list the choices quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, get_args

from devices.errors import InputError

FormulationName: TypeAlias = Literal["auto", "compact", "poet", "retention"]
Order: TypeAlias = Literal["auto", "given", "free"]
EngineName: TypeAlias = Literal["highs", "cbc", "gurobi"]
Coverage: TypeAlias = Literal["all", "activations"]

_MOST_THREADS = 2**31 - 1
_MOST = 1e18


@dataclass(frozen=True)
class SolverOptions:
    """Options of one search.

    Attributes:
        formulation: Method to use; ``auto`` combines annealing with bounds from integer programs.
        order: Whether first executions of ops keep the graph's order; ``auto`` tries other orders
            where that lowers the energy.
        engine: Solver of integer programs.
        gap: Accepted distance between energy and bound, relative to the schedule's energy.
        threads: Number of threads.
        time_limit_s: Limit on wall time; None for no limit.
        addresses: Whether to plan an arena address for everything in RAM. Without addresses, RAM is
            a sum of bytes, as in the published methods; fragmentation may then exceed the budget.

    Raises:
        InputError: An option has a value that is not allowed; a search would end in an error only
            when it states what it was asked.
    """

    formulation: FormulationName = "auto"
    order: Order = "auto"
    engine: EngineName = "highs"
    gap: float = 0.001
    threads: int = 2
    time_limit_s: float | None = None
    addresses: bool = True

    def __post_init__(self) -> None:
        require_choice("formulation", self.formulation, FormulationName)
        require_choice("order", self.order, Order)
        require_choice("engine", self.engine, EngineName)
        require_number("gap", self.gap, most=1.0)
        require_whole("threads", self.threads, least=1, most=_MOST_THREADS)
        if self.time_limit_s is not None:
            require_number("time_limit_s", self.time_limit_s, or_else=", or None for no limit")


def require_choice(name: str, value: object, choices: Any) -> None:
    """Check an argument whose values are those of a ``Literal``. Raises :class:`InputError`."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InputError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def require_whole(name: str, value: object, *, least: int, most: int) -> None:
    """Check an argument that is a whole number. Raises :class:`InputError`."""
    if not isinstance(value, SupportsIndex) or not least <= index(value) <= most:
        raise InputError(f"{name} is {value!r}; allowed: a whole number from {least} to {most}")


def require_number(name: str, value: object, *, most: float = _MOST, or_else: str = "") -> None:
    """Check an argument that is a number from 0 on. Raises :class:`InputError`."""
    if not isinstance(value, SupportsFloat) or not 0 <= float(value) <= most:
        raise InputError(f"{name} is {value!r}; allowed: a number from 0 to {most:g}{or_else}")
