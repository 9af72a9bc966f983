"""Proofs that a busy computer does not cut short.

"infeasible" may rest on a search of all schedules of a small graph, which gives up after some work,
or after some seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from solver.solving.auto import bounds

if TYPE_CHECKING:
    import pytest

AMPLE_S = 600.0

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def search_all_schedules(patch: pytest.MonkeyPatch) -> None:
    """Let searches of all schedules give up after their work only."""
    patch.setattr(bounds, "_ALL_SCHEDULES_S", AMPLE_S)


def in_a_patient_worker(
    task: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Run a task in a worker; its searches of all schedules give up after their work only."""
    bounds._ALL_SCHEDULES_S = AMPLE_S
    return task(*arguments, **named)
