"""ExecutionPlan: one training step as a board executes it.

A plan fixes everything: operations with their kernels' keys, addresses in one arena, and transfers
with their places in storage. A step starts with its inputs and the values kept from earlier steps
at their addresses, and ends with the same places filled for the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from devices.operation import OpSpec

ROW_CHECKSUM_BYTES = 4
"""Checksum that follows each row of a table in storage."""

MOST_ACTIONS = 2**16 - 2
"""Most actions of a plan: the executor counts them in 16 bits, with a count one larger."""


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
    """Execution of one operation.

    ``reads`` and ``writes`` are addresses in the order of the signature's operands; an operation in
    place writes to an address that it reads. ``workspace`` is None if the kernel needs none.
    """

    op: str
    spec: OpSpec
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    workspace: ArenaRange | None
    scalars: Mapping[str, float]

    @property
    def blocks(self) -> tuple[ArenaRange, ...]:
        """Ranges of the operands read, then of those written."""
        operands = (*self.spec.reads, *self.spec.writes)
        addresses = (*self.reads, *self.writes)
        return tuple(ArenaRange(a, o.bytes) for a, o in zip(addresses, operands, strict=True))


@dataclass(frozen=True)
class PageOut:
    """Transfer from the arena to storage; ``slot`` numbers the page-outs of a step in order.

    Each slot has its own place in storage, for the whole tensor. ``packed_bytes`` are what is
    expected to be written of a tensor that is packed; None for one that is not.
    """

    tensor: str
    block: ArenaRange
    slot: int
    asynchronous: bool = False
    packed_bytes: int | None = None


@dataclass(frozen=True)
class PageIn:
    """Transfer from storage to the arena.

    The content of the slot was written by this step, or by the last complete step, as ``of``
    states. Of a frozen tensor, ``slot`` is its number among the plan's frozen tensors.
    """

    tensor: str
    block: ArenaRange
    slot: int
    of: Literal["this step", "last step", "frozen"] = "this step"
    asynchronous: bool = False


@dataclass(frozen=True)
class Select:
    """Choice of the rows that a step reads and changes in its tables.

    ``block`` holds indices of rows; then each index becomes the position of its row among those
    chosen. A row is chosen at the position at which it is named first.
    """

    selection: int
    block: ArenaRange


@dataclass(frozen=True)
class RowsIn:
    """Transfer of the selected rows of a table to adjacent places in the arena.

    Positions without a row become zero.
    """

    tensor: str
    block: ArenaRange
    table: int
    asynchronous: bool = False


@dataclass(frozen=True)
class RowsOut:
    """Copy of the selected rows to a table in the arena; only in an unscheduled plan."""

    tensor: str
    block: ArenaRange
    table: int


@dataclass(frozen=True)
class Move:
    """Move of a tensor within the arena; source and target may overlap."""

    tensor: str
    block: ArenaRange
    to: int


Observed: TypeAlias = Literal[
    "loss", "prediction", "gradient", "parameter", "statistic", "optimizer_state", "zeros"
]


@dataclass(frozen=True)
class Probe:
    """Point at which ``block`` holds a value that the schedule must not change.

    A watched step takes its checksum. A ``gradient`` is probed as the update reads it; the other
    values are results of the step. ``tensor`` names the loss, or a kept tensor as the step finds
    it; for a gradient, its parameter. Only an evaluation has a ``prediction``: the tensor that its
    loss compares with the labels. Of ``zeros``, what remains without them is counted, in words, in
    place of a checksum.
    """

    tensor: str
    what: Observed
    block: ArenaRange


@dataclass(frozen=True)
class Guard:
    """Write of the canary over bytes that are unowned from here on; only in a guarded plan."""

    block: ArenaRange


@dataclass(frozen=True)
class Check:
    """Check that the canary after ``tensor`` is unchanged; only in a guarded plan."""

    tensor: str
    block: ArenaRange


@dataclass(frozen=True)
class Poison:
    """Overwrite of freed bytes with NaNs; only in a guarded plan."""

    block: ArenaRange


Operation: TypeAlias = (
    Compute | PageOut | PageIn | Select | RowsIn | RowsOut | Move | Probe | Guard | Check | Poison
)


@dataclass(frozen=True)
class Action:
    """One entry of a plan.

    Before it starts, the first ``waits_for`` transfers of the step must be complete.
    ``schedule_index`` is the index of the schedule's action that it implements, if any.
    """

    does: Operation
    waits_for: int = 0
    schedule_index: int | None = None


@dataclass(frozen=True)
class Kept:
    """A tensor kept from step to step: a parameter, optimizer state or a running statistic.

    ``tensor`` is its name at the start of a step, ``result`` at the end. ``address`` is its place
    in RAM at both times; None if its home is storage. Every step writes it to ``slot``, so that the
    values of the previous step survive a failed step; ``slot`` is None in a plan without paging,
    which cannot fail. Of a table with its home in storage, ``bytes`` and ``slot`` are those of the
    rows that a step changes.
    """

    tensor: str
    result: str
    bytes: int
    address: int | None
    slot: int | None


@dataclass(frozen=True)
class Frozen:
    """A tensor with its home in storage that no step changes: it is written once, before the first.

    ``bytes`` are in storage and, when it is paged in, in RAM.
    """

    tensor: str
    bytes: int


@dataclass(frozen=True)
class Table:
    """A tensor of which a step reads only the selected rows, and changes them if it is kept.

    ``kept`` is its number among the plan's kept tensors, None for a frozen one. ``selection`` is
    the number of the selection that chooses its rows, ``address`` its place in RAM as a whole; None
    if its home is storage.
    """

    tensor: str
    kept: int | None
    selection: int
    rows: int
    row_bytes: int
    address: int | None = None

    @property
    def is_frozen(self) -> bool:
        """True if no step changes the table."""
        return self.kept is None

    @property
    def bytes(self) -> int:
        """Size of the whole table."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class Selection:
    """Indices that a batch has for tables of ``rows`` rows."""

    indices: int
    rows: int


@dataclass(frozen=True)
class ExecutionPlan:
    """One training step, ready to execute.

    ``inputs`` are copied to their places before every step. ``afterwards`` runs in order after the
    step, outside its time: it copies the tensors kept in RAM to storage. ``slot_bytes`` holds the
    size of each slot. ``frozen`` are the tensors in storage that no step changes, except for
    tables. ``tables`` are the tensors of which a step reads only some rows, frozen ones last.
    Zeros are counted for storage with pages of ``counted_page_bytes``, since a tensor is packed in
    the buffer of a page; 0 where none are counted.
    ``unguarded`` counts the places in RAM that have no guard in a debug build.
    """

    name: str
    arena_bytes: int
    inputs: Mapping[str, ArenaRange]
    kept: tuple[Kept, ...]
    actions: tuple[Action, ...]
    afterwards: tuple[Action, ...] = ()
    slot_bytes: tuple[int, ...] = ()
    tables: tuple[Table, ...] = ()
    selections: tuple[Selection, ...] = ()
    frozen: tuple[Frozen, ...] = ()
    unguarded: int = 0
    counted_page_bytes: int = 0

    @cached_property
    def computes(self) -> tuple[Compute, ...]:
        """Operations of the step, in order."""
        operations = (action.does for action in self.actions)
        return tuple(operation for operation in operations if isinstance(operation, Compute))

    @cached_property
    def probes(self) -> tuple[Probe, ...]:
        """Probes in the order of their checksums."""
        found = (action.does for action in (*self.actions, *self.afterwards))
        return tuple(operation for operation in found if isinstance(operation, Probe))

    @cached_property
    def packed_bytes(self) -> Mapping[int, int]:
        """Bytes that are expected to be written of packed tensors, by slot, ascending."""
        found = (action.does for action in self.actions)
        return {
            each.slot: each.packed_bytes
            for each in found
            if isinstance(each, PageOut) and each.packed_bytes is not None
        }

    @property
    def pages(self) -> bool:
        """True if the plan has transfers to or from storage."""
        return bool(self.slot_bytes or self.frozen or self.stored_tables)

    @cached_property
    def stored_tables(self) -> tuple[Table, ...]:
        """Tables with their home in storage: all, or none in an unscheduled plan."""
        return tuple(table for table in self.tables if table.address is None)

    @property
    def is_frozen(self) -> bool:
        """True if the plan has values in storage that no step changes."""
        return bool(self.frozen or self.frozen_tables)

    @cached_property
    def frozen_tables(self) -> tuple[Table, ...]:
        """Tables with their home in storage that no step changes."""
        return tuple(table for table in self.stored_tables if table.is_frozen)

    @property
    def selected_rows(self) -> int:
        """Number of rows of all selections."""
        return sum(selection.indices for selection in self.selections)

    def whole_bytes(self, kept: Kept) -> int:
        """Size of a kept tensor; of a table, with all its rows."""
        tables = (table for table in self.tables if table.tensor == kept.tensor)
        return next((table.bytes for table in tables), kept.bytes)

    @cached_property
    def buffer_bytes(self) -> Mapping[int, int]:
        """Size at each address of an unscheduled plan, in the order of first use.

        In such a plan every address has one size.
        """
        return {block.address: block.bytes for op in self.computes for block in op.blocks}
