"""The debug build of a plan: guards after every tensor and workspace in RAM.

Every address and every size is doubled, so that blocks which did not overlap still do not overlap.
The first half of each place holds the tensor. The second half, the guard, holds a canary while the
first is in use. Both halves are filled with NaNs when the tensor is freed.

A board runs plans of limited length. Where the guards of all places are too many, the first places
of the step have theirs; the others are not filled with NaNs either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from devices.plan import (
    MOST_ACTIONS,
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
    made = list(guards.begin())
    done = 0
    for freed in walk.freed:
        made += chain.from_iterable(map(guards.around, walk.actions[done : freed.before]))
        made += guards.free(freed)
        done = freed.before
    made += chain.from_iterable(map(guards.around, walk.actions[done:]))
    made += guards.end()
    arena_bytes = 2 * plan.arena_bytes
    left = [Mover(m.tensor, _doubled(m.block), 2 * m.destination.address) for m in walk.left()]
    at = {mover.tensor: mover.destination for mover in left}
    unowned = [Poison(gap) for gap in gaps(at.values(), arena_bytes)]
    ending = tuple(walk.ending([*ordered_moves(left, arena_bytes), *unowned], at))
    actions, unguarded = _shortened(made, MOST_ACTIONS - len(ending) - len(plan.afterwards))
    return replace(
        plan,
        arena_bytes=arena_bytes,
        inputs={name: _doubled(block) for name, block in plan.inputs.items()},
        kept=tuple(
            replace(kept, address=None if kept.address is None else 2 * kept.address)
            for kept in plan.kept
        ),
        actions=(*actions, *ending),
        unguarded=unguarded,
        afterwards=tuple(
            replace(action, does=_at_twice_the_address(action.does)) for action in plan.afterwards
        ),
    )


@dataclass(frozen=True)
class _Made:
    """An action of a debug build; ``place`` numbers the place that it guards, if it does."""

    action: Action
    place: int | None = None


def _shortened(made: Sequence[_Made], most: int) -> tuple[list[Action], int]:
    """At most ``most`` actions, with the guards of the first places, and the number of the others.

    Nothing that the plan itself does is left out.
    """
    sizes = Counter(each.place for each in made if each.place is not None)
    left = most - sum(each.place is None for each in made)
    guarded: set[int | None] = {None}
    for place in sorted(sizes):
        left -= sizes[place]
        if left < 0:
            break
        guarded.add(place)
    actions = [each.action for each in made if each.place in guarded]
    return actions, len(sizes) + 1 - len(guarded)


@dataclass(frozen=True)
class _Place:
    """A place in RAM of a tensor, or of a workspace, in the plain plan."""

    number: int
    name: str
    block: ArenaRange


class _Guards:
    """Makes the actions of a debug build; ``_owner`` has places by address in the plain plan."""

    def __init__(self, plan: ExecutionPlan, walk: Walk) -> None:
        self._written = {op.name: op.writes for op in walk.step.ops}
        self._waits_for = 0
        self._numbers = count()
        self._owner: dict[int, _Place] = {}
        for name, block in plan.inputs.items():
            self._own(name, block)
        for kept in plan.kept:
            if kept.address is not None:
                self._own(kept.tensor, ArenaRange(kept.address, kept.bytes))

    def begin(self) -> Iterator[_Made]:
        return map(self._guard, self._owner.values())

    def end(self) -> Iterator[_Made]:
        return map(self._check, self._owner.values())

    def free(self, freed: Freed) -> Iterator[_Made]:
        self._waits_for = max(self._waits_for, freed.waits_for)
        place = self._owner.pop(freed.block.address)
        yield self._check(replace(place, name=freed.tensor, block=freed.block))
        yield self._poison(replace(place, block=freed.block))

    def around(self, action: Action) -> Iterator[_Made]:
        operation = action.does
        carried_out = _Made(replace(action, does=_at_twice_the_address(operation)))
        match operation:
            case Compute():
                yield from self._compute(operation, carried_out)
            case PageIn(tensor=tensor, block=block) | RowsIn(tensor=tensor, block=block):
                place = self._own(tensor, block)
                yield self._guard(place)
                yield carried_out
                if not operation.asynchronous:
                    yield self._check(place)
            case _:
                yield carried_out

    def _compute(self, op: Compute, carried_out: _Made) -> Iterator[_Made]:
        made = op.blocks[len(op.reads) :]
        in_place = set(op.reads)
        for name, block in zip(self._written[op.op], made, strict=True):
            if block.address in in_place:  # its guard is that of the tensor which it replaces
                before = self._owner[block.address]
                self._owner[block.address] = replace(before, name=name, block=block)
            else:
                yield self._guard(self._own(name, block))
        workspace = None
        if op.workspace is not None:
            workspace = _Place(next(self._numbers), f"the workspace of {op.op}", op.workspace)
            yield self._guard(workspace)
        yield carried_out
        for address in dict.fromkeys((*op.reads, *op.writes)):
            yield self._check(self._owner[address])
        if workspace is not None:
            yield self._check(workspace)
            yield self._poison(workspace)

    def _own(self, name: str, block: ArenaRange) -> _Place:
        place = self._owner[block.address] = _Place(next(self._numbers), name, block)
        return place

    def _guard(self, place: _Place) -> _Made:
        return self._action(Guard(_guard_of(place.block)), place)

    def _check(self, place: _Place) -> _Made:
        return self._action(Check(place.name, _guard_of(place.block)), place)

    def _poison(self, place: _Place) -> _Made:
        return self._action(Poison(_whole(place.block)), place)

    def _action(self, operation: Operation, place: _Place) -> _Made:
        return _Made(Action(operation, self._waits_for), place.number)


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
