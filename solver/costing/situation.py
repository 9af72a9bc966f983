"""Situation of each op in a training step: what it finds in the caches, and what it overwrites.

A cache that drops what was used longest ago has lost an operand if operands of more bytes than it
holds were used since (Mattson et al. 1970, stack distance). In a step that repeats, parameters and
the first samples were last used in the step before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from networks.training.step import TrainingStep

SHARE_OF_CACHE = 0.5
"""Share of the last-level cache that is taken to hold operands: it has other users. It was set on
the watched steps of eight networks on one computer (docs/benchmarks/cost-model.md), not derived."""

_DIGITS = 2


class Situation(NamedTuple):
    """What differs for an op between its place in a training step and a loop of its own.

    ``lost`` is the share of the bytes of its operands that have left the caches since their last
    use. With ``overwrites``, its result takes the place of an operand, so that it moves fewer
    bytes.
    """

    lost: float = 0.0
    overwrites: bool = False


BY_ITSELF = Situation()
"""Operands in the caches, and a result beside them."""


def situations(step: TrainingStep, last_level_cache_bytes: int | None) -> tuple[Situation, ...]:
    """The situation of each op of a step.

    Args:
        step: a training step, executed as it is, again and again.
        last_level_cache_bytes: size of the largest cache; None or 0 for no cache, or where it is
            not known, so that nothing is said to be lost.

    Returns:
        One for each op of the step, in the step's order.
    """
    lost = _lost_shares(step, last_level_cache_bytes)
    return tuple(Situation(share, op.overwrites) for op, share in zip(step.ops, lost, strict=True))


def _lost_shares(step: TrainingStep, last_level_cache_bytes: int | None) -> tuple[float, ...]:
    if not last_level_cache_bytes:
        return (0.0,) * len(step.ops)
    cache = _Cache(int(SHARE_OF_CACHE * last_level_cache_bytes))
    sizes = {tensor.name: tensor.bytes for tensor in step.tensors}
    memory = _memory(step)
    list(_shares(step, cache, sizes, memory))
    return tuple(_shares(step, cache, sizes, memory))


class _Cache:
    """Tensors that a cache of ``capacity_bytes`` holds, the last used one last."""

    def __init__(self, capacity_bytes: int) -> None:
        self._free_bytes = capacity_bytes
        self._held: OrderedDict[str, int] = OrderedDict()

    def use(self, tensor: str, size_bytes: int) -> bool:
        """Use a tensor; True if it was still held."""
        was_held = tensor in self._held
        if was_held:
            self._held.move_to_end(tensor)
        else:
            self._held[tensor] = size_bytes
            self._free_bytes -= size_bytes
        while self._free_bytes < 0:
            _, dropped_bytes = self._held.popitem(last=False)
            self._free_bytes += dropped_bytes
        return was_held


def _shares(
    step: TrainingStep, cache: _Cache, sizes: dict[str, int], memory: dict[str, str]
) -> Iterator[float]:
    for op in step.ops:
        used = dict.fromkeys(memory.get(name, name) for name in (*op.reads, *op.writes))
        lost_bytes = sum(sizes[name] for name in used if not cache.use(name, sizes[name]))
        yield round(lost_bytes / max(1, sum(sizes[name] for name in used)), _DIGITS)


def _memory(step: TrainingStep) -> dict[str, str]:
    """The tensor in whose memory each tensor lies that overwrites another."""
    found: dict[str, str] = {}
    for op in step.ops:
        for written, read in op.in_place.items():
            found[written] = found.get(read, read)
    return found
