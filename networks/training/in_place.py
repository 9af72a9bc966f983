"""Decision which operations of a step work in place.

An operation in place destroys the tensor that it overwrites, in every schedule, so that tensor must
never be worth keeping. It is not if nothing else reads it: a schedule can keep the result instead,
in as many bytes. One other reader is harmless, another gradient operation of the same layer that
runs before the operation: its result is no larger than what would have to be kept to recompute it.
So is the loss, which is computed before its gradient: a schedule keeps that one number instead of
the predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from networks.training.step import StepOp, StepTensor

_COMMUTATIVE = frozenset({"add.forward", "gradient.accumulate", "multiply.forward"})


def with_in_place(ops: Sequence[StepOp], tensors: Mapping[str, StepTensor]) -> tuple[StepOp, ...]:
    """Set ``in_place`` of every operation for which the kernel allows it and it is harmless.

    The operands of a sum or product are exchanged if only the second one may be overwritten.
    """
    position = {op.name: index for index, op in enumerate(ops)}
    readers: dict[str, list[StepOp]] = {}
    for op in ops:
        for name in dict.fromkeys(op.reads):
            readers.setdefault(name, []).append(op)

    def may_overwrite(op: StepOp, name: str) -> bool:
        return op.spec.signature.mutates or (
            tensors[name].kind in {"activation", "gradient"}
            and tensors[name].persist is None
            and op.reads.count(name) == 1
            and all(
                reader.name == op.name
                or (_is_harmless(reader, op) and position[reader.name] < position[op.name])
                for reader in readers[name]
            )
        )

    def rewritten(op: StepOp) -> StepOp:
        reads = op.reads
        if op.spec.kind in _COMMUTATIVE and not may_overwrite(op, reads[0]):
            reads = reads[::-1]
        read = {operand.role: name for operand, name in zip(op.spec.reads, reads, strict=True)}
        in_place = {
            name: read[op.spec.in_place[operand.role]]
            for operand, name in zip(op.spec.writes, op.writes, strict=True)
            if operand.role in op.spec.in_place
        }
        allowed = {w: r for w, r in in_place.items() if may_overwrite(op, r)}
        return replace(op, reads=reads if allowed else op.reads, in_place=allowed)

    return tuple(map(rewritten, ops))


def _is_harmless(reader: StepOp, op: StepOp) -> bool:
    """Whether ``reader`` is another gradient operation of the layer of ``op``, or its loss."""
    is_loss = all(operand.elements == 1 for operand in reader.spec.writes)
    return (
        reader.layer == op.layer
        and op.phase == "backward"
        and (reader.phase == "backward" or is_loss)
    )
