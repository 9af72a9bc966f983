"""The debug build of a plan: guards after every tensor and workspace in RAM.

Every address and every size is doubled, so that blocks which did not overlap still do not overlap.
The first half of each place holds the tensor. The second half, the guard, holds a canary while the
first is in use. Both halves are filled with NaNs when the tensor is freed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from devices.plan import (
    Action,
    ArenaRange,
    Check,
    Compute,
    ExecutionPlan,
    Guard,
    Operation,
    PageIn,
    PageOut,
    Poison,
    Probe,
    RowsIn,
    Select,
)
from replay.lowering.moves import Mover, gaps, ordered_moves
from replay.lowering.walk import Freed, Walk


def guarded(plan: ExecutionPlan, walk: Walk) -> ExecutionPlan:
    """The debug build of ``plan``, which was lowered by ``walk``."""
    guards = _Guards(plan, walk)
    actions = list(guards.begin())
    done = 0
    for freed in walk.freed:
        actions += chain.from_iterable(map(guards.around, walk.actions[done : freed.before]))
        actions += guards.free(freed)
        done = freed.before
    actions += chain.from_iterable(map(guards.around, walk.actions[done:]))
    actions += guards.end()
    arena_bytes = 2 * plan.arena_bytes
    left = [Mover(m.tensor, _doubled(m.block), 2 * m.destination.address) for m in walk.left()]
    at = {mover.tensor: mover.destination for mover in left}
    unowned = [Poison(gap) for gap in gaps(at.values(), arena_bytes)]
    actions += walk.ending([*ordered_moves(left, arena_bytes), *unowned], at)
    return replace(
        plan,
        arena_bytes=arena_bytes,
        inputs={name: _doubled(block) for name, block in plan.inputs.items()},
        kept=tuple(
            replace(kept, address=None if kept.address is None else 2 * kept.address)
            for kept in plan.kept
        ),
        actions=tuple(actions),
        afterwards=tuple(
            replace(action, does=_at_twice_the_address(action.does)) for action in plan.afterwards
        ),
    )


class _Guards:
    """Makes the actions of a debug build; ``_owner`` has tensors by address in the plain plan."""

    def __init__(self, plan: ExecutionPlan, walk: Walk) -> None:
        self._written = {op.name: op.writes for op in walk.step.ops}
        self._waits_for = 0
        self._owner: dict[int, tuple[str, ArenaRange]] = {}
        for name, block in plan.inputs.items():
            self._owner[block.address] = name, block
        for kept in plan.kept:
            if kept.address is not None:
                self._owner[kept.address] = kept.tensor, ArenaRange(kept.address, kept.bytes)

    def begin(self) -> Iterator[Action]:
        return (self._guard(block) for _, block in self._owner.values())

    def end(self) -> Iterator[Action]:
        return (self._check(name, block) for name, block in self._owner.values())

    def free(self, freed: Freed) -> Iterator[Action]:
        self._waits_for = max(self._waits_for, freed.waits_for)
        del self._owner[freed.block.address]
        yield self._check(freed.tensor, freed.block)
        yield self._action(Poison(_whole(freed.block)))

    def around(self, action: Action) -> Iterator[Action]:
        operation = action.does
        carried_out = replace(action, does=_at_twice_the_address(operation))
        match operation:
            case Compute():
                yield from self._compute(operation, carried_out)
            case PageIn(tensor=tensor, block=block) | RowsIn(tensor=tensor, block=block):
                self._owner[block.address] = tensor, block
                yield self._guard(block)
                yield carried_out
                if not operation.asynchronous:
                    yield self._check(tensor, block)
            case _:
                yield carried_out

    def _compute(self, op: Compute, carried_out: Action) -> Iterator[Action]:
        made = op.blocks[len(op.reads) :]
        in_place = set(op.reads)
        for name, block in zip(self._written[op.op], made, strict=True):
            self._owner[block.address] = name, block
            if block.address not in in_place:
                yield self._guard(block)
        if op.workspace is not None:
            yield self._guard(op.workspace)
        yield carried_out
        for address in dict.fromkeys((*op.reads, *op.writes)):
            yield self._check(*self._owner[address])
        if op.workspace is not None:
            yield self._check(f"the workspace of {op.op}", op.workspace)
            yield self._action(Poison(_whole(op.workspace)))

    def _guard(self, block: ArenaRange) -> Action:
        return self._action(Guard(_guard_of(block)))

    def _check(self, tensor: str, block: ArenaRange) -> Action:
        return self._action(Check(tensor, _guard_of(block)))

    def _action(self, operation: Operation) -> Action:
        return Action(operation, self._waits_for)


def _doubled(block: ArenaRange) -> ArenaRange:
    return ArenaRange(2 * block.address, block.bytes)


def _guard_of(block: ArenaRange) -> ArenaRange:
    return ArenaRange(2 * block.address + block.bytes, block.bytes)


def _whole(block: ArenaRange) -> ArenaRange:
    return ArenaRange(2 * block.address, 2 * block.bytes)


def _at_twice_the_address(operation: Operation) -> Operation:
    match operation:
        case Compute():
            return replace(
                operation,
                reads=tuple(2 * address for address in operation.reads),
                writes=tuple(2 * address for address in operation.writes),
                workspace=operation.workspace and _doubled(operation.workspace),
            )
        case PageOut() | PageIn() | Select() | RowsIn() | Probe():
            return replace(operation, block=_doubled(operation.block))
        case _:
            raise ValueError(f"not an action of a schedule: {operation}")
