"""Situation of each op in a training step: what it finds in the caches, and what it overwrites.

What was used longest ago leaves a cache first. Whether a byte is still held follows from the size
of its tensor and of all that other ops have used since: its reuse distance (Mattson et al. 1970,
stack distance). Distances are counted in a tree of sums (Bennett and Kruskal 1975). In a step that
repeats, parameters and the first samples were last used in the step before.

Between the smallest cache and memory lie several others, of which profiles know the largest. The
share of a byte that counts as lost grows with its distance d from 0 at 64 KiB to 1 at the size of
the largest cache: (log(d / 64 KiB) / log(largest / 64 KiB))². These figures were set on the watched
steps of eight networks on one computer (docs/benchmarks/cost-model.md), not derived.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from networks.training.step import TrainingStep
from solver.costing.terms import sort

NEAR_BYTES = 64 << 10
"""Reuse distance up to which nothing is lost: about the size of a processor's first cache."""

_EXPONENT = 2.0

_DIGITS = 2


class Situation(NamedTuple):
    """How an op's place in a training step differs from a loop of its own.

    ``lost`` is the share of the bytes of its operands that have left the caches since their last
    use, and ``code_lost`` that of the kernel's instructions. With ``overwrites``, its result takes
    the place of an operand, so that it moves fewer bytes.
    """

    lost: float = 0.0
    overwrites: bool = False
    code_lost: float = 0.0


BY_ITSELF = Situation()
"""Operands and instructions in the caches, and a result beside the operands."""


def situations(step: TrainingStep, last_level_cache_bytes: int | None) -> tuple[Situation, ...]:
    """The situation of each op of a step.

    Args:
        step: a training step, executed as it is, again and again.
        last_level_cache_bytes: size of the largest cache; None or 0 for no cache, or where it is
            not known, so that nothing is said to be lost.

    Returns:
        One for each op of the step, in the step's order.
    """
    if not last_level_cache_bytes:
        return tuple(Situation(overwrites=op.overwrites) for op in step.ops)
    uses = _Uses(2 * len(step.ops))
    list(_situations(step, last_level_cache_bytes, uses))
    return tuple(_situations(step, last_level_cache_bytes, uses))


def share_lost(distance_bytes: float, last_level_cache_bytes: int) -> float:
    """Share of a byte with this reuse distance that counts as lost, of caches up to this size."""
    near_bytes = min(NEAR_BYTES, last_level_cache_bytes / 2)
    if distance_bytes <= near_bytes:
        return 0.0
    if distance_bytes >= last_level_cache_bytes:
        return 1.0
    passed = math.log(distance_bytes / near_bytes) / math.log(last_level_cache_bytes / near_bytes)
    return float(passed**_EXPONENT)


def _situations(step: TrainingStep, cache_bytes: int, uses: _Uses) -> Iterator[Situation]:
    sizes = {tensor.name: tensor.bytes for tensor in step.tensors}
    memory = _memory(step)
    for op in step.ops:
        used = dict.fromkeys(memory.get(name, name) for name in (*op.reads, *op.writes))
        lost_bytes = sum(
            sizes[name] * share_lost(uses.since(name) + sizes[name], cache_bytes) for name in used
        )
        kernel = f"kernel of {sort(op.spec)}"
        code_lost = share_lost(uses.since(kernel), cache_bytes)
        yield Situation(
            round(lost_bytes / max(1, sum(sizes[name] for name in used)), _DIGITS),
            op.overwrites,
            round(code_lost, _DIGITS),
        )
        uses.use({kernel: 0, **{name: sizes[name] for name in used}})


class _Uses:
    """When each thing was last used, to know the bytes that were used since.

    There are at most ``most`` times. A tree of sums (Fenwick 1994) has the bytes of the things that
    were last used at each.
    """

    def __init__(self, most: int) -> None:
        self._sums = [0] * (most + 1)
        self._total_bytes = 0
        self._last: dict[str, int] = {}
        self._now = 0

    def since(self, name: str) -> float:
        """Bytes of everything that was used since its last use; infinite before the first one."""
        if name not in self._last:
            return math.inf
        time, until_bytes = self._last[name], 0
        while time > 0:
            until_bytes += self._sums[time]
            time -= time & -time
        return self._total_bytes - until_bytes

    def use(self, sizes: Mapping[str, int]) -> None:
        """Use things of these sizes, all at the next time."""
        self._now += 1
        for name, size_bytes in sizes.items():
            if name in self._last:
                self._add(self._last[name], -size_bytes)
            self._add(self._now, size_bytes)
            self._last[name] = self._now

    def _add(self, time: int, size_bytes: int) -> None:
        self._total_bytes += size_bytes
        while time < len(self._sums):
            self._sums[time] += size_bytes
            time += time & -time


def _memory(step: TrainingStep) -> dict[str, str]:
    """The tensor in whose memory each tensor lies that overwrites another."""
    found: dict[str, str] = {}
    for op in step.ops:
        for written, read in op.in_place.items():
            found[written] = found.get(read, read)
    return found
