"""ExecutionPlan: operations bound to buffers, in the order in which a board executes them.

At present every tensor has a buffer of its own: that is what the profiler's additivity check runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from devices.operation import OpSpec


@dataclass(frozen=True)
class PlannedOp:
    """``reads`` and ``writes`` name buffers, in the order of the signature's operands; a written
    buffer may be a read one where the operation works in place. ``scalars`` are by name."""

    spec: OpSpec
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scalars: Mapping[str, float]


@dataclass(frozen=True)
class ExecutionPlan:
    """``buffer_bytes`` holds the size of every buffer that an operation names."""

    name: str
    buffer_bytes: Mapping[str, int]
    ops: tuple[PlannedOp, ...]
