"""Order of a step's operations when some of them are replaced."""

from __future__ import annotations

from collections.abc import Sequence

from networks.training.step import StepOp


def placed(ops: Sequence[StepOp], later: Sequence[StepOp]) -> list[StepOp]:
    """Insert each operation of ``later`` right after the last one that must come before it.

    That is what writes an operand that it reads, or reads an operand that it overwrites.
    """
    writer = {name: op.name for op in (*ops, *later) for name in op.writes}
    readers: dict[str, list[str]] = {}
    for op in (*ops, *later):
        for name in op.reads:
            readers.setdefault(name, []).append(op.name)
    place = {op.name: index for index, op in enumerate(ops)}
    for op in later:
        before = {writer[name] for name in op.reads if name in writer}
        before.update(name for overwritten in op.in_place.values() for name in readers[overwritten])
        place[op.name] = max((place[name] for name in before - {op.name}), default=0)
    return sorted((*ops, *later), key=lambda op: place[op.name])
