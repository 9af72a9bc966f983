"""Operations of a step when some of them are replaced: their number and their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from devices.quantities import Slices
from networks.training.network import NetworkError
from networks.training.step import StepOp, TrainingStep

MOST_OPS = 10_000
"""Most operations of a step in slices; the search for schedules takes too long with more."""


class OperationCount:
    """Counts the operations of a step in slices while they are made.

    Args:
        step: Step that is put into slices.
        slices: The slices.
    """

    def __init__(self, step: TrainingStep, slices: Slices) -> None:
        self._what = f"{step.title}: slices of {slices}"
        self._number = 0

    def of(self, ops: Iterable[StepOp]) -> Iterator[StepOp]:
        """Count operations on their way.

        Raises:
            NetworkError: They are more than can be solved, with those before.
        """
        for op in ops:
            self._number += 1
            if self._number > MOST_OPS:
                raise NetworkError(
                    f"{self._what} make more than {MOST_OPS} operations, which is the most that"
                    " can be solved",
                    remedy="choose larger slices",
                )
            yield op


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
