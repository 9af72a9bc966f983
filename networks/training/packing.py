"""Tensors that may be packed when they are paged, and the operations that cost it.

A packed tensor (``onboard/kernels/packing.h``) has its words other than zero, and a bitmap. Only
what lives within one step is packed: values kept from step to step must be found again by the next
one, which does not know how long they became.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from devices.operation import ELEMENT_BYTES, OpSpec
from networks.training.step import StepTensor, TrainingStep

_Way: TypeAlias = Literal["page_out", "page_in"]

_FEWEST_ELEMENTS = 256
"""Elements of the smallest tensor that is packed: two of a card's pages, one of which is saved."""

_MEASURED_SIZES = 4
"""Sizes of which packing is measured; that of others follows, since it grows with the size."""


def packable(step: TrainingStep) -> Iterator[StepTensor]:
    """Tensors of a step that may be packed: the larger activations and gradients."""
    written = {name for op in step.ops for name in op.writes}
    for tensor in step.tensors:
        if (
            tensor.name in written
            and tensor.kind in ("activation", "gradient")
            and tensor.persist is None
            and tensor.stretches == 1
            and tensor.bytes >= _FEWEST_ELEMENTS * ELEMENT_BYTES
        ):
            yield tensor


def packing_spec(way: _Way, size_bytes: int) -> OpSpec:
    """The operation whose cost is added to a transfer if a tensor of this size is packed."""
    return OpSpec.of(f"packing.{way}", elements=size_bytes // ELEMENT_BYTES)


def packing_specs(step: TrainingStep) -> tuple[OpSpec, ...]:
    """Operations that a profile measures for packing: of sizes between smallest and largest."""
    sizes = sorted({tensor.bytes for tensor in packable(step)})
    count = min(_MEASURED_SIZES, len(sizes))
    chosen = (sizes[k * (len(sizes) - 1) // max(1, count - 1)] for k in range(count))
    ways: tuple[_Way, ...] = ("page_out", "page_in")
    return tuple(packing_spec(way, size) for size in chosen for way in ways)
