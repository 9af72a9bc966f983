"""Flash and RAM that an execution plan needs on a microcontroller besides its arena.

Flash holds the tables of :mod:`profiler.building.plan_source`, which point to the RAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from devices.plan import ExecutionPlan, Move
from profiler.building.plan_memory import buffer_bytes, checksum_bytes, watched_bytes
from profiler.building.plan_source import distinct_operations, scalar_bits
from profiler.building.store_layout import StoreLayout

# Sizes of the structs of executor/execution_plan.h with 32-bit pointers; tests compare them with
# a compiler's output.
_ACTION, _OPERATION, _SLOT, _KEPT, _SELECTION, _TABLE = 16, 16, 8, 12, 12, 20
_SLOT_NUMBER = 2
_PLAN, _PLAN_MEMORY = 108, 40
_WORD = _POINTER = 4

EXECUTOR_BYTES = 512
"""Upper bound of the RAM of a ``jw_executor`` and a ``jw_store``."""


@dataclass(frozen=True)
class PlanFootprint:
    """Memory of a plan; ``watched_bytes`` of ``ram_bytes`` are written only in watched steps."""

    flash_bytes: int
    ram_bytes: int
    watched_bytes: int


def plan_footprint(plan: ExecutionPlan, layout: StoreLayout) -> PlanFootprint:
    """Compute the flash and RAM of a plan's tables, without the arena."""
    actions = len(plan.actions) + len(plan.afterwards)
    operands = sum(len(op.reads) + len(op.writes) for op in plan.computes)
    moves = sum(isinstance(action.does, Move) for action in (*plan.actions, *plan.afterwards))
    tables = (
        actions * _ACTION
        + len(distinct_operations(plan)) * _OPERATION
        + (operands + moves) * _WORD
        + (len(plan.slot_bytes) + len(plan.frozen)) * _SLOT
        + len(plan.packed_bytes) * _SLOT_NUMBER
        + len(plan.kept) * _KEPT
        + len(plan.selections) * _SELECTION
        + len(plan.tables) * _TABLE
    )
    heads = _PLAN + _PLAN_MEMORY + len(plan.name) + 1 + _POINTER + _WORD
    constants = sum(_WORD * count for count in _constant_words(plan))
    watched = watched_bytes(plan)
    ram = watched + checksum_bytes(plan) + buffer_bytes(plan, layout.page_bytes)
    return PlanFootprint(tables + heads + constants, ram, watched)


def _constant_words(plan: ExecutionPlan) -> Iterator[int]:
    """Lengths of the lists of attributes and of scalars; equal lists are stored once."""
    for spec in dict.fromkeys(op.spec for op in plan.computes):
        yield len(spec.values)
    scalars = {
        tuple((name, scalar_bits(name, op.scalars[name])) for name in op.spec.signature.scalars)
        for op in plan.computes
    }
    for values in scalars:
        yield len(values)
