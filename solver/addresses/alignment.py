"""Addresses at the beginnings of cache lines, where the arena has room for them.

A processor that loads a vector from across two cache lines loads both, and operations are measured
with operands that begin a line. The arena grows by some bytes, since sizes are rounded up to whole
lines. Where these do not fit, halves and quarters of a line are tried.

Small tensors that are in RAM during the same actions are placed one after the other, and rounded up
together. Networks have hundreds of them (biases, scales and shifts), and their ops are short.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from solver.addresses.online import first_fit_in_time
from solver.addresses.packing import Packing, count_pairs
from solver.addresses.plan import MANY_PAIRS, AddressPlan
from solver.addresses.residencies import Span, spans_of
from solver.addresses.search import OrderSearch
from solver.time_limit import OutOfTime, TimeLimit

LINE_BYTES = 64
"""Cache line of most processors: of Cortex-A and of x86. Those of a Cortex-M7 are half as long."""

SMALL_BYTES = 16 * LINE_BYTES
"""Size below which tensors are rounded up together."""

_LEAST_BYTES = 16

# Work of the search for one multiple, which takes about 20 ms; most are found without.
_WORK = 40_000_000

# First fit takes a moment; it is tried even after the limit.
_LEAST_S = 0.1


def aligned(plan: AddressPlan, arena_limit_bytes: int, limit: TimeLimit) -> AddressPlan:
    """A plan for the same blocks, in which they begin at multiples of 64, 32 or 16 bytes.

    Args:
        plan: Addresses within the limit.
        arena_limit_bytes: Most bytes of the arena.
        limit: When to stop.

    Returns:
        The plan with the largest of these multiples that fits; ``plan`` itself if none was found.
        Blocks below ``SMALL_BYTES`` begin at least at multiples of 16 bytes.
    """
    allowed = TimeLimit(max(limit.end, time.monotonic() + _LEAST_S))
    shapes = spans_of(plan.blocks)
    unit = LINE_BYTES
    with suppress(OutOfTime), allowed.enforced():
        while shapes and unit >= _LEAST_BYTES:
            found = _placed(plan, _groups(shapes, unit), arena_limit_bytes, allowed)
            if found is not None:
                return found
            unit //= 2
    return plan


class _Group(NamedTuple):
    """Blocks that are placed as one: their numbers, and their offsets in the group.

    The shape has sizes in whole units.
    """

    blocks: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[Span, ...]


def _groups(shapes: Sequence[tuple[Span, ...]], unit: int) -> list[_Group]:
    together: dict[tuple[int, int, int | None], list[int]] = {}
    for block, shape in enumerate(shapes):
        is_small = len(shape) == 1 and shape[0].bytes < SMALL_BYTES
        key = shape[0].start, shape[-1].end, None if is_small else block
        together.setdefault(key, []).append(block)
    found = []
    for blocks in together.values():
        shape = shapes[blocks[0]]
        ends = [0, *accumulate(_up(shapes[block][0].bytes, _LEAST_BYTES) for block in blocks)]
        if len(blocks) > 1:
            shape = (replace(shape[0], bytes=ends[-1]),)
        rounded = tuple(replace(span, bytes=_up(span.bytes, unit)) for span in shape)
        found.append(_Group(tuple(blocks), tuple(ends[:-1]), rounded))
    return found


def _placed(
    plan: AddressPlan, groups: Sequence[_Group], arena_limit_bytes: int, limit: TimeLimit
) -> AddressPlan | None:
    """The plan's blocks with these groups of them; None if no addresses within the limit are found.

    First fit in the order of the plan's offsets comes first.
    """
    packing = Packing([group.shape for group in groups])
    if max(packing.load) >= arena_limit_bytes + LINE_BYTES:  # rounding adds less to the last block
        return None
    beginnings = _offsets(plan, groups, packing, arena_limit_bytes, limit)
    offsets = [0] * len(plan.blocks)
    for group, beginning in zip(groups, beginnings, strict=True):
        for block, offset in zip(group.blocks, group.offsets, strict=True):
            offsets[block] = beginning + offset
    ends = (offset + block.bytes for offset, block in zip(offsets, plan.blocks, strict=True))
    arena_bytes = max(ends)
    if arena_bytes > arena_limit_bytes:
        return None
    return replace(plan, offsets=tuple(offsets), arena_bytes=arena_bytes)


def _offsets(
    plan: AddressPlan,
    groups: Sequence[_Group],
    packing: Packing,
    arena_limit_bytes: int,
    limit: TimeLimit,
) -> Sequence[int]:
    if count_pairs(packing.shapes) > MANY_PAIRS:
        return first_fit_in_time(packing.shapes)
    lowest = [min(plan.offsets[block] for block in group.blocks) for group in groups]
    order = sorted(range(len(groups)), key=lowest.__getitem__)
    search = OrderSearch(packing, arena_limit_bytes, order)
    search.run(_WORK, limit.end)
    return search.offsets


def _up(size_bytes: int, unit: int) -> int:
    return -(-size_bytes // unit) * unit
