"""Symbolic execution of execution plans, word by word, independent of how plans are made.

The interpreter assumes the worst that a plan permits. The bytes of a transfer are undefined from
its begin to the latest moment that the plan allows for its end. A kernel writes its results and its
workspace before it reads anything. Storage keeps the copies of the last complete step apart from
those that the current step writes. A table is one value: which of its rows move is not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from devices.operation import ELEMENT_BYTES
from devices.plan import (
    Action,
    ArenaRange,
    Check,
    Compute,
    ExecutionPlan,
    Guard,
    Move,
    PageIn,
    PageOut,
    Poison,
    Probe,
    RowsIn,
    RowsOut,
    Select,
)
from networks.training import TrainingStep

Token: TypeAlias = int
Probes: TypeAlias = dict[tuple[str, str], Token]

_numbers: dict[Any, Token] = {}


def token(*made_of: Any) -> Token:
    """A number that is the same for the same arguments."""
    return _numbers.setdefault(made_of, len(_numbers))


def undefined() -> Token:
    """A token that equals no other."""
    return token("undefined", len(_numbers))


class CanaryError(AssertionError):
    """A check found a changed canary; the message names the tensor before it."""


@dataclass
class InterpretedBoard:
    """A symbolic board; each word of its memory is a value and the number of a word in that value.

    ``frozen`` are inputs that no step changes. ``overrun`` names an op that writes one word beyond
    the result of that index or, with -1, beyond its workspace.
    """

    plan: ExecutionPlan
    frozen: Collection[str] = ()
    overrun: tuple[str, int] | None = None
    last_step: dict[int, Token] = field(default_factory=dict)
    this_step: dict[int, Token] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.plan.arena_bytes % ELEMENT_BYTES == 0
        nothing = undefined()
        self.words = [(nothing, n) for n in range(self.plan.arena_bytes // ELEMENT_BYTES)]
        self._queue: deque[tuple[PageIn | PageOut | RowsIn, Token]] = deque()
        self._begun = self._over = 0
        for kept in self.plan.kept:
            if kept.address is not None:
                self.write(ArenaRange(kept.address, kept.bytes), token("initial", kept.tensor))
            else:
                assert kept.slot is not None
                self.last_step[kept.slot] = token("initial", kept.tensor)

    def step(self, number: int) -> Probes:
        """Execute one step; returns the value of each of its probes."""
        for name, block in self.plan.inputs.items():
            is_frozen = name in self.frozen
            self.write(block, token("initial", name) if is_frozen else token("input", name, number))
        self._begun = self._over = 0
        seen: Probes = {}
        for action in self.plan.actions:
            self._carry_out(action, seen)
        self._complete(self._begun)
        for action in self.plan.afterwards:
            self._carry_out(action, seen)
        self._complete(self._begun)
        self.last_step, self.this_step = self.this_step, {}
        return seen

    def read(self, block: ArenaRange) -> Token:
        """The value in a block; undefined unless it is there whole."""
        words = self._range(block)
        values = [self.words[n] for n in words]
        value = values[0][0]
        return value if values == [(value, n) for n in range(len(words))] else undefined()

    def write(self, block: ArenaRange, value: Token) -> None:
        """Write a value to a block."""
        for number, word in enumerate(self._range(block)):
            self.words[word] = value, number

    def _carry_out(self, action: Action, seen: Probes) -> None:
        self._complete(action.waits_for)
        match action.does:
            case Compute():
                self._compute(action.does)
            case PageOut() | PageIn():
                self._begin(action.does)
            case Select(_, block):
                self.write(block, selected(self.read(block)))
            case RowsIn(_, block, table):
                whole = self._in_ram(table)
                if whole is None:
                    self._begin(action.does)
                else:
                    self.write(block, self.read(whole))
            case RowsOut(_, block, table):
                whole = self._in_ram(table)
                assert whole is not None
                self.write(whole, self.read(block))
            case Move(_, block, to):
                words = [self.words[n] for n in self._range(block)]
                for n, word in zip(self._range(ArenaRange(to, block.bytes)), words, strict=True):
                    self.words[n] = word
            case Probe(tensor, what, block):
                assert (tensor, what) not in seen
                seen[tensor, what] = self.read(block)
            case Guard(block):
                self.write(block, token("canary"))
            case Check(tensor, block):
                if self.read(block) != token("canary"):
                    raise CanaryError(tensor)
            case Poison(block):
                self.write(block, undefined())

    def _compute(self, op: Compute) -> None:
        reads, writes = op.blocks[: len(op.reads)], op.blocks[len(op.reads) :]
        roles = [operand.role for operand in op.spec.reads]
        overwritten = {
            written.role: reads[roles.index(op.spec.signature.in_place[written.role])]
            for written in op.spec.writes
            if written.role in op.spec.signature.in_place
        }
        for operand, block in zip(op.spec.writes, writes, strict=True):
            if overwritten.get(operand.role) != block:
                self.write(block, undefined())
        if op.workspace is not None:
            self.write(op.workspace, undefined())
        values = made_by(op.spec, tuple(map(self.read, reads)), op.scalars)
        for block, value in zip(writes, values, strict=True):
            self.write(block, value)
        if self.overrun is not None and self.overrun[0] == op.op:
            block = op.workspace if self.overrun[1] < 0 else writes[self.overrun[1]]
            assert block is not None
            self.write(ArenaRange(block.end, ELEMENT_BYTES), undefined())

    def _in_ram(self, table: int) -> ArenaRange | None:
        """The place of a whole table, unless its home is storage."""
        of = self.plan.tables[table]
        return None if of.address is None else ArenaRange(of.address, of.bytes)

    def _begin(self, transfer: PageIn | PageOut | RowsIn) -> None:
        self._begun += 1
        if isinstance(transfer, PageOut):
            assert self.plan.slot_bytes[transfer.slot] == transfer.block.bytes
            assert transfer.slot not in self.this_step
            value = self.read(transfer.block)
        else:
            value = undefined()
            self.write(transfer.block, value)
        self._queue.append((transfer, value))
        if not transfer.asynchronous:
            self._complete(self._begun)

    def _complete(self, count: int) -> None:
        """Complete transfers until ``count`` of this step's are over."""
        assert count <= self._begun
        while self._over < count:
            transfer, at_begin = self._queue.popleft()
            self._over += 1
            # The bytes were not touched during the transfer, and a paged-out tensor was whole.
            assert self.read(transfer.block) == at_begin, transfer
            if isinstance(transfer, PageOut):
                self.this_step[transfer.slot] = at_begin
            elif isinstance(transfer, RowsIn):
                kept = self.plan.tables[transfer.table].kept
                slot = None if kept is None else self.plan.kept[kept].slot
                assert (kept is None) == (slot is None)
                frozen = token("initial", transfer.tensor)
                self.write(transfer.block, frozen if slot is None else self.last_step[slot])
            elif transfer.of == "frozen":
                frozen = token("initial", self.plan.frozen[transfer.slot].tensor)
                self.write(transfer.block, frozen)
            else:
                copies = self.this_step if transfer.of == "this step" else self.last_step
                self.write(transfer.block, copies[transfer.slot])

    def _range(self, block: ArenaRange) -> range:
        """Words of a block; raises AssertionError outside the arena."""
        assert block.address >= 0
        assert block.bytes > 0
        assert block.end <= self.plan.arena_bytes
        assert block.address % ELEMENT_BYTES == 0
        assert block.bytes % ELEMENT_BYTES == 0
        return range(block.address // ELEMENT_BYTES, block.end // ELEMENT_BYTES)


def selected(indices: Token) -> Token:
    """Indices of rows after the rows were selected."""
    return token("selected", indices)


def made_by(spec: Any, reads: tuple[Token, ...], scalars: Mapping[str, float]) -> list[Token]:
    """Values that an operation writes."""
    return [token(spec, operand.role, reads, *scalars.items()) for operand in spec.writes]


class ByName:
    """A training step executed on tensor names, without memory, repeatedly."""

    def __init__(self, step: TrainingStep) -> None:
        self._step = step
        self.value = {t.name: token("initial", t.name) for t in step.tensors if t.home}

    def step(self, number: int) -> Probes:
        """Execute one step; returns the values that its probes must see."""
        updates = {op.name: op for op in self._step.ops if op.spec.signature.mutates}
        kept = {
            self._step.buffer[source]: written
            for op in updates.values()
            for written, source in op.in_place.items()
        }
        for tensor in self._step.tensors:
            if tensor.home == "ram" and tensor.name not in kept:
                self.value[tensor.name] = token("input", tensor.name, number)
        for op in self._step.ops:
            if op.spec.kind == "embedding.forward" and self._step.tensor[op.reads[1]].is_table:
                self.value[op.reads[0]] = selected(self.value[op.reads[0]])
        for op in self._step.ops:
            made = made_by(op.spec, tuple(self.value[name] for name in op.reads), op.scalars)
            self.value.update(zip(op.writes, made, strict=True))
        seen: Probes = {}
        for op in updates.values():
            if op.name.endswith(".update"):
                seen[op.reads[0], "gradient"] = self.value[op.reads[1]]
        for source, result in kept.items():
            seen[source, self._what(source)] = self.value[result]
        assert self._step.network.loss is not None
        loss = self._step.network.loss.name
        seen[loss, "loss"] = self.value[loss]
        for source, result in kept.items():
            self.value[source] = self.value[result]
        return seen

    def _what(self, name: str) -> str:
        if ".running_" in name:
            return "statistic"
        state = (".velocity", "_moment", ".corrections")
        return "optimizer_state" if name.endswith(state) else "parameter"
