"""ExecutionPlan: one training step as a board executes it. Operations with their kernels' keys,
addresses in one arena, transfers with their places in storage; nothing is left to be decided.

A step begins with its inputs and what earlier steps have left in RAM at their addresses, and ends
with the same places filled for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from devices.operation import OpSpec


@dataclass(frozen=True)
class ArenaRange:
    """Bytes of the arena, from ``address`` on."""

    address: int
    bytes: int

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclass(frozen=True)
class Compute:
    """``reads`` and ``writes`` are addresses, in the order of the signature's operands; a written
    one may be a read one where the operation works in place. ``workspace`` is None where the kernel
    needs none."""

    op: str
    spec: OpSpec
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    workspace: ArenaRange | None
    scalars: Mapping[str, float]

    @property
    def blocks(self) -> tuple[ArenaRange, ...]:
        """Of what is read, then of what is written."""
        operands = (*self.spec.reads, *self.spec.writes)
        addresses = (*self.reads, *self.writes)
        return tuple(ArenaRange(a, o.bytes) for a, o in zip(addresses, operands, strict=True))


@dataclass(frozen=True)
class PageOut:
    """``slot`` counts the transfers out of a step, in their order: each has a place of its own."""

    tensor: str
    block: ArenaRange
    slot: int
    asynchronous: bool = False


@dataclass(frozen=True)
class PageIn:
    """From a slot as this step has written it, or as the last complete step has."""

    tensor: str
    block: ArenaRange
    slot: int
    of: Literal["this step", "last step"] = "this step"
    asynchronous: bool = False


@dataclass(frozen=True)
class Move:
    """Within the arena; the two may overlap."""

    tensor: str
    block: ArenaRange
    to: int


Observed: TypeAlias = Literal["loss", "gradient", "parameter", "statistic", "optimizer_state"]


@dataclass(frozen=True)
class Probe:
    """Here the bytes are a value that the schedule must not change: their checksum is taken where
    somebody watches. ``gradient`` is that of a parameter, as the update reads it; the others are
    what a step has come to. ``tensor`` is the loss, or what is kept, by the name under which the
    step finds it; for a gradient, that of its parameter."""

    tensor: str
    what: Observed
    block: ArenaRange


@dataclass(frozen=True)
class Guard:
    """Only in a guarded plan: the canary is written over bytes that nobody owns, from here on."""

    block: ArenaRange


@dataclass(frozen=True)
class Check:
    """Only in a guarded plan: the canary behind ``tensor`` must be as it was written."""

    tensor: str
    block: ArenaRange


@dataclass(frozen=True)
class Poison:
    """Only in a guarded plan: these bytes have just been freed, and become NaNs."""

    block: ArenaRange


Operation: TypeAlias = Compute | PageOut | PageIn | Move | Probe | Guard | Check | Poison


@dataclass(frozen=True)
class Action:
    """``waits_for``: so many of this step's transfers, in their order, are over before it begins.
    ``schedule_index`` is that of the schedule's action that it comes from, if it comes from one."""

    does: Operation
    waits_for: int = 0
    schedule_index: int | None = None


@dataclass(frozen=True)
class Kept:
    """What one step leaves to the next: a parameter, optimizer state, a running statistic.

    ``tensor`` is its name as the step finds it, ``result`` as it leaves it. ``address`` is where it
    is in RAM when a step begins and when it has ended; None if it is at home in storage. ``slot``
    is where every step writes it to, so that a step that fails leaves the one before it intact;
    None in a plan that does not page, in which nothing can fail."""

    tensor: str
    result: str
    bytes: int
    address: int | None
    slot: int | None


@dataclass(frozen=True)
class ExecutionPlan:
    """``inputs`` are brought to their places in front of every step. ``afterwards`` is done when
    the step is over, outside of its time and in its order: copies of what is kept in RAM.
    ``slot_bytes`` holds the size of what goes to each slot."""

    name: str
    arena_bytes: int
    inputs: Mapping[str, ArenaRange]
    kept: tuple[Kept, ...]
    actions: tuple[Action, ...]
    afterwards: tuple[Action, ...] = ()
    slot_bytes: tuple[int, ...] = ()

    @cached_property
    def computes(self) -> tuple[Compute, ...]:
        operations = (action.does for action in self.actions)
        return tuple(operation for operation in operations if isinstance(operation, Compute))

    @cached_property
    def probes(self) -> tuple[Probe, ...]:
        """In the order in which their checksums are numbered."""
        found = (action.does for action in (*self.actions, *self.afterwards))
        return tuple(operation for operation in found if isinstance(operation, Probe))

    @property
    def pages(self) -> bool:
        return bool(self.slot_bytes)

    @cached_property
    def buffer_bytes(self) -> Mapping[int, int]:
        """Of an unscheduled plan, in which every address has one size: that size, in the order of
        first use."""
        return {block.address: block.bytes for op in self.computes for block in op.blocks}
