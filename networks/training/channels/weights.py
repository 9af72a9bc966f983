"""Weights in parts, between whole activations.

A weight is cut together with its layers' biases, their gradients and the optimizer's state. Parts
of a convolution's or a linear layer's weight have some output and some input channels, about as
many of both: every part lays out its own input for its own output
(:func:`devices.signatures.blocks.block_shape`). Parts of a table have some rows, and so do those of
a weight that is a table too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from devices.signatures.blocks import block_shape
from devices.signatures.parts import columns, needs_columns
from networks.training.channels.axes import EMBEDDINGS, PRODUCTS
from networks.training.channels.blocks import INPUT_GRADIENT
from networks.training.channels.partition import Layout, Range, operands
from networks.training.step import StepOp, TrainingStep

_IN_PARTS = EMBEDDINGS | PRODUCTS.keys()
"""Families of layers that have parts."""

_WEIGHTS = frozenset({"weight", "weight_gradient", "table", "table_gradient"})
_BIASES = frozenset({"bias", "bias_gradient"})

_ALL: tuple[Range, ...] = ((0, 1),)


def weight_layouts(step: TrainingStep, most_bytes: int) -> dict[str, Layout]:
    """Layouts that cut the large weights of a step and leave its activations whole.

    A layer stays whole if none of its operations is larger than the largest one outside of layers
    with large weights, which no part makes smaller.

    Args:
        step: Training step.
        most_bytes: Most bytes of a weight in a part, which has at least one channel of each side.
    """
    names = dict.fromkeys(_large_weights(step, most_bytes))
    groups = [group for name in names if (group := _Group.of(step, name)) is not None]
    in_groups = {name for group in groups for name in group.ops}
    largest = max((_footprint_bytes(op) for op in step.ops if op.name not in in_groups), default=0)
    found = {tensor.name: Layout(tensor.name, _ALL, _ALL, 1) for tensor in step.tensors}
    for group in groups:
        if group.footprint_bytes > largest:
            found.update(group.layouts(most_bytes, largest))
    return found


def _large_weights(step: TrainingStep, most_bytes: int) -> Iterator[str]:
    for op in step.ops:
        if op.spec.family in _IN_PARTS and op.phase == "forward":
            weight = step.tensor[op.reads[1]]
            is_whole = weight.part is None and not weight.is_table
            if weight.kind == "parameter" and is_whole and weight.bytes > most_bytes:
                yield weight.name


@dataclass(frozen=True)
class _Group:
    """A weight with everything that is cut with it.

    Attributes:
        shape: Shape of the weight.
        weights: The weight, its gradients and optimizer state.
        biases: The biases of its layers, their gradients and optimizer state.
        ops: The operations that touch any of them, by name.
    """

    shape: tuple[int, ...]
    weights: frozenset[str]
    biases: frozenset[str]
    ops: Mapping[str, StepOp]

    @classmethod
    def of(cls, step: TrainingStep, weight: str) -> _Group | None:
        """The group of a weight; None if something touches it that cannot be done in parts."""
        layers = {op.layer for op in step.ops if weight in op.reads and op.phase != "update"}
        weights, biases, copied, ops = {weight}, set[str](), set[str](), dict[str, StepOp]()
        for op in step.ops:
            touched = {*op.reads, *op.writes}
            if op.layer in layers and op.spec.family in _IN_PARTS:
                weights.update(name for role, name in operands(op) if role in _WEIGHTS)
                biases.update(name for role, name in operands(op) if role in _BIASES)
            elif touched.isdisjoint(weights | biases):
                continue
            elif op.spec.signature.mutates or op.spec.kind == "gradient.accumulate":
                of_all = step.tensor[op.reads[0]].bytes
                same = {name for name in touched if step.tensor[name].bytes == of_all}
                (biases if touched.isdisjoint(weights) else weights).update(same)
                copied |= touched - same
            else:
                return None
            ops[op.name] = op
        cut = weights | biases | copied
        if any(
            op.name not in ops and not cut.isdisjoint((*op.reads, *op.writes)) for op in step.ops
        ):
            return None
        of_layers = [op for op in ops.values() if op.layer in layers]
        if any(op.spec.attributes.get("groups", 1) > 1 for op in of_layers):
            return None
        shapes = {op.spec.reads[1].shape for op in of_layers if op.phase == "forward"}
        if len(shapes) > 1:
            return None
        return cls(shapes.pop(), frozenset(weights), frozenset(biases), ops)

    @property
    def footprint_bytes(self) -> int:
        """Bytes of the largest operation."""
        return max(map(_footprint_bytes, self.ops.values()))

    def layouts(self, most_bytes: int, largest: int) -> Iterator[tuple[str, Layout]]:
        """Parts of at most ``most_bytes``, of which no columns make an operation the largest."""
        rows, columns = map(_ranges, self.shape, self._part_shape(most_bytes, largest))
        for name in self.weights:
            yield name, Layout(name, rows, columns, 1)
        for name in self.biases:
            yield name, Layout(name, rows, _ALL, 1)

    def _part_shape(self, most_bytes: int, largest: int) -> tuple[int, int]:
        """Output and input channels of a part, or rows and all features of a table."""
        if any(op.spec.family in EMBEDDINGS for op in self.ops.values()):
            rows, _ = block_shape((self.shape[0], 1, *self.shape[1:]), most_bytes)
            return rows, self.shape[1]
        inputs = min(self._inputs(op, most_bytes, largest) for op in self.ops.values())
        return block_shape(self.shape, most_bytes, most_inputs=inputs)

    def _inputs(self, op: StepOp, most_bytes: int, largest: int) -> int:
        """Most input channels whose columns are in RAM together."""
        a, (_, _, entry) = op.spec.attributes, op.spec.kind.partition(".")
        if op.spec.family != "conv2d" or entry != INPUT_GRADIENT or not needs_columns(a):
            return self.shape[1]
        gradient, image = op.spec.reads[0], op.spec.writes[0]
        beside = max(gradient.bytes + most_bytes, image.bytes)
        return max(1, (largest - beside) // columns(a, "columns", 1).bytes)


def _footprint_bytes(op: StepOp) -> int:
    """Bytes of what an operation reads and writes; what is overwritten in place counts once."""
    shared = (
        operand.bytes
        for operand, name in zip(op.spec.writes, op.writes, strict=True)
        if name in op.in_place
    )
    return op.spec.moved_bytes - sum(shared)


def _ranges(whole: int, part: int) -> tuple[Range, ...]:
    return tuple((first, min(part, whole - first)) for first in range(0, whole, part))
