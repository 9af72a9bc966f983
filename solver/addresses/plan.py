"""Address plans: an arena offset for everything that a schedule has in RAM."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

from solver.addresses.exact import pack_exactly
from solver.addresses.online import first_fit_in_time
from solver.addresses.packing import Packing, count_pairs, load_of
from solver.addresses.residencies import ResidencyChain, Span, blocks_of, spans_of
from solver.addresses.search import OrderSearch
from solver.options import Coverage
from solver.problem.graph import CostedGraph
from solver.problem.schedule import Action, Compute, Free, PageIn, PageOut
from solver.time_limit import OutOfTime, TimeLimit

# Work of a local search that takes about 0.3 s on a computer that does nothing else.
A_MOMENT = 600_000_000
# Local search and CP-SAT alternate with doubling time, since the time that either needs is random.
_FIRST_WORK = 1_000_000_000
_FIRST_S = 0.5
# Shortest time for planning, even after the deadline.
_LEAST_S = 0.2
# Pairs of blocks that overlap in time: with more, first fit in the order of time is tried before
# anything else; with more, CP-SAT is not tried, since it takes minutes to begin.
MANY_PAIRS, _MOST_PAIRS_EXACT = 10_000_000, 5_000_000


@dataclass(frozen=True)
class AddressPlan:
    """Offsets of blocks in an arena of ``arena_bytes``.

    ``bound_bytes`` is a proven lower bound on the arena for these blocks.
    """

    blocks: tuple[ResidencyChain, ...]
    offsets: tuple[int, ...]
    arena_bytes: int
    bound_bytes: int

    @property
    def fragmentation(self) -> float:
        """Share of the arena beyond its lower bound."""
        return 1 - self.bound_bytes / self.arena_bytes if self.arena_bytes else 0.0

    @property
    def resident_address(self) -> dict[str, int]:
        """Offsets of the tensors in RAM when the step begins."""
        begin = self.addresses.get(-1, {})
        return {tensor: offset for tensor, offset in begin.items() if tensor is not None}

    @cached_property
    def addresses(self) -> dict[int, dict[str | None, int]]:
        """Offsets by action and tensor of what the action brings into RAM.

        Action -1 stands for the tensors in RAM before the first action; tensor None stands for the
        workspace.
        """
        found: dict[int, dict[str | None, int]] = {}
        for block, offset in zip(self.blocks, self.offsets, strict=True):
            for residency in block.residencies:
                found.setdefault(residency.first, {})[residency.tensor] = offset
        return found


class Addressed(NamedTuple):
    """A valid schedule, and addresses for everything that it has in RAM."""

    actions: tuple[Action, ...]
    plan: AddressPlan


def plan_addresses(
    graph: CostedGraph,
    actions: Sequence[Action],
    covers: Coverage,
    arena_limit_bytes: int,
    deadline: float,
    like: AddressPlan | None = None,
    work: int | None = None,
) -> AddressPlan:
    """Plan addresses for a valid schedule: first fit in many orders, alternating with CP-SAT.

    Args:
        graph: The costed graph.
        actions: The actions of a valid schedule, ``free`` actions included.
        covers: Tensors that count, and so get addresses.
        arena_limit_bytes: Size of arena that suffices: planning ends as soon as it is reached.
        deadline: End of planning, on ``time.monotonic``. Offsets that need no search are found even
            after it.
        like: Plan of a similar schedule to start from.
        work: Most work, for first fit alone. Other programs then delay the end, if ``deadline``
            leaves the time, but do not make the plan worse.

    Returns:
        The plan with the smallest arena found. Its arena may exceed the limit. Offsets are
        multiples of the greatest common divisor of the sizes.
    """
    blocks = blocks_of(graph, actions, covers)
    if not blocks:
        return AddressPlan((), (), 0, 0)
    shapes = spans_of(blocks)
    pairs = count_pairs(shapes)
    if pairs > MANY_PAIRS:
        plan = _plan_at_once(blocks, shapes)
        if plan.arena_bytes <= max(arena_limit_bytes, plan.bound_bytes):
            return plan
    try:
        with TimeLimit(max(deadline, time.monotonic() + _LEAST_S)).enforced():
            packing = Packing(shapes)
            bound = packing.bound
            target = max(arena_limit_bytes, bound)
            first = None if like is None else _order_like(blocks, like)
            search = OrderSearch(packing, target, first)
            if work is None:
                offsets, bound = _search(search, packing, target, deadline, pairs)
            else:
                search.run(work, deadline)
                offsets = search.offsets
    except OutOfTime:  # before the first offsets
        return _plan_at_once(blocks, shapes)
    return AddressPlan(blocks, tuple(offsets), packing.arena(offsets), bound)


def plan_of(
    graph: CostedGraph, actions: Sequence[Action], covers: Coverage, offsets: Sequence[int]
) -> AddressPlan:
    """The plan with these offsets, one for each block, in the order in which the blocks begin.

    Its bound on the arena is the most bytes at any time.
    """
    blocks = blocks_of(graph, actions, covers)
    ends = (offset + block.bytes for offset, block in zip(offsets, blocks, strict=True))
    return AddressPlan(
        blocks, tuple(offsets), max(ends, default=0), max(load_of(spans_of(blocks)), default=0)
    )


def _plan_at_once(
    blocks: tuple[ResidencyChain, ...], shapes: Sequence[tuple[Span, ...]]
) -> AddressPlan:
    offsets = first_fit_in_time(shapes)
    arena = max(offset + block.bytes for offset, block in zip(offsets, blocks, strict=True))
    return AddressPlan(blocks, tuple(offsets), arena, max(load_of(shapes)))


def _search(
    search: OrderSearch, packing: Packing, target: int, deadline: float, pairs: int
) -> tuple[list[int], int]:
    """Offsets of the smallest arena found, and the lower bound on the arena."""
    bound = packing.bound
    for turn in count():
        search.run(_FIRST_WORK << turn, deadline)
        offsets = search.offsets
        now = time.monotonic()
        if search.arena_bytes <= target or now >= deadline:
            break
        if pairs > _MOST_PAIRS_EXACT:
            continue
        exact = pack_exactly(packing, target, min(deadline, now + _FIRST_S * 2**turn), turn)
        if exact == "impossible":
            bound = (target // packing.unit + 1) * packing.unit
            break
        if exact != "unknown":
            offsets = exact
            break
    return offsets, bound


def _order_like(blocks: Sequence[ResidencyChain], plan: AddressPlan) -> list[int]:
    """Order of ``blocks`` by their offsets in ``plan``, new blocks last.

    First fit in this order reproduces the offsets of the plan.
    """
    offset = dict(zip(_names(plan.blocks), plan.offsets, strict=True))
    place = [offset.get(name, plan.arena_bytes) for name in _names(blocks)]
    return sorted(range(len(blocks)), key=place.__getitem__)


def _names(blocks: Sequence[ResidencyChain]) -> Iterator[tuple[str | None, int, int]]:
    """Names of blocks that are the same in similar schedules.

    A name is the block's first tensor, its size, and its occurrence number among blocks of the same
    tensor and size.
    """
    found: Counter[tuple[str | None, int]] = Counter()
    for block in blocks:
        kind = (block.residencies[0].tensor, block.bytes)
        found[kind] += 1
        yield *kind, found[kind]


def with_addresses(actions: Sequence[Action], plan: AddressPlan) -> tuple[Action, ...]:
    """Write the offsets of a plan into the actions that it was made for.

    Args:
        actions: The actions of the schedule that was planned.
        plan: The plan. Tensors in RAM when the step begins have their offsets in its
            ``resident_address``.

    Returns:
        The actions with addresses.
    """
    result: list[Action] = []
    for index, action in enumerate(actions):
        made = plan.addresses.get(index, {})
        match action:
            case Compute():
                written = {tensor: offset for tensor, offset in made.items() if tensor is not None}
                fields = {"address": written or None, "workspace_address": made.get(None)}
                result.append(action.model_copy(update=fields))
            case PageIn():
                result.append(action.model_copy(update={"address": made.get(action.tensor)}))
            case PageOut() | Free():
                result.append(action)
    return tuple(result)
