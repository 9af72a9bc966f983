"""Moves at the end of a step: kept tensors go to the addresses where the next step reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from devices.operation import ELEMENT_BYTES
from devices.plan import ArenaRange, Move
from replay.lowering.checks import ArenaTooTight, LoweringError

# Limit of moves in a plan, so that its table does not outgrow the tensors.
_MOST_MOVES = 1 << 14


@dataclass(frozen=True)
class Mover:
    """A tensor in RAM and the address to which it must move; None if any free address will do."""

    tensor: str
    block: ArenaRange
    target: int | None

    @property
    def destination(self) -> ArenaRange:
        return self.block if self.target is None else ArenaRange(self.target, self.block.bytes)


def with_targets(movers: Sequence[Mover], arena_bytes: int) -> tuple[Mover, ...]:
    """The movers with a target for each; without one, a mover stays, unless its bytes are needed.

    Raises :class:`LoweringError` where the arena has no room for all.
    """
    taken = [mover.destination for mover in movers if mover.target is not None]
    found = []
    for mover in movers:
        address = mover.destination.address
        if mover.target is None and any(_overlap(mover.block, other) for other in taken):
            size_bytes = mover.block.bytes
            room = next((gap for gap in gaps(taken, arena_bytes) if gap.bytes >= size_bytes), None)
            if room is None:
                raise LoweringError(f"a step ends with no room for the result {mover.tensor}")
            address = room.address
        found.append(replace(mover, target=address))
        if mover.target is None:
            taken.append(found[-1].destination)
    return tuple(found)


def ordered_moves(movers: Sequence[Mover], arena_bytes: int) -> tuple[Move, ...]:
    """Moves of tensors with targets, in an order that overwrites no tensor before it has moved.

    Where tensors wait for each other in a cycle, one of them first moves to bytes that are no
    tensor's target. Where no such gap is large enough, all move in pieces. Raises
    :class:`LoweringError` where that takes too many moves.
    """
    moves = []
    destinations = [mover.destination for mover in movers]
    pending = [mover for mover in movers if mover.block != mover.destination]
    while pending:
        mover = next((m for m in pending if not _blocked(m, pending)), None)
        if mover is not None:
            pending.remove(mover)
            moves.append(Move(mover.tensor, mover.block, mover.destination.address))
            continue
        free = list(gaps([*destinations, *(mover.block for mover in pending)], arena_bytes))
        way_out = next(_ways_out(pending, free), None)
        if way_out is None:
            break
        mover, address = way_out
        moves.append(Move(mover.tensor, mover.block, address))
        pending[pending.index(mover)] = replace(mover, block=ArenaRange(address, mover.block.bytes))
    if pending:
        free = list(gaps(destinations, arena_bytes))
        aside = max(free, key=lambda gap: gap.bytes, default=ArenaRange(0, 0))
        for piece in _piece_by_piece(pending, aside):
            moves.append(piece)
            if len(moves) > _MOST_MOVES:
                raise _too_tight(pending, aside)
    return tuple(moves)


def _blocked(mover: Mover, pending: Iterable[Mover]) -> bool:
    return any(other is not mover and _overlap(mover.destination, other.block) for other in pending)


def _ways_out(pending: Sequence[Mover], free: Sequence[ArenaRange]) -> Iterator[tuple[Mover, int]]:
    """Movers on another's target, smallest first, each with free addresses where it blocks none."""
    for mover in sorted(pending, key=lambda mover: mover.block.bytes):
        if any(_blocked(o, [mover]) for o in pending if o is not mover):
            room = (gap.address for gap in free if gap.bytes >= mover.block.bytes)
            yield from ((mover, address) for address in room)


def _piece_by_piece(pending: Sequence[Mover], aside: ArenaRange) -> Iterator[Move]:
    """Moves of pieces, cut so that each target is free or exactly the place of another piece.

    Pieces then form rows, which move starting with the piece whose target is free, and rings, whose
    first piece moves ``aside`` in parts as large as that gap.
    """
    at = {piece.block.address: piece for piece in _pieces(pending, aside)}
    rings = []
    while at:
        row = [next(iter(at.values()))]
        while ahead := at.get(row[-1].destination.address):
            if ahead is row[0]:
                break
            row.append(ahead)
        if ahead is None:
            yield from (Move(p.tensor, p.block, p.destination.address) for p in reversed(row))
        else:
            rings.append(row)
        for piece in row:
            del at[piece.block.address]
    for ring in rings:
        step_bytes = aside.bytes // ELEMENT_BYTES * ELEMENT_BYTES
        if not step_bytes:
            raise _too_tight(pending, aside)
        for done_bytes in range(0, ring[0].block.bytes, step_bytes):
            size_bytes = min(step_bytes, ring[0].block.bytes - done_bytes)

            def part(piece: Mover, start: int = done_bytes, size: int = size_bytes) -> ArenaRange:
                return ArenaRange(piece.block.address + start, size)

            first, *others = ring
            yield Move(first.tensor, part(first), aside.address)
            for piece in reversed(others):
                yield Move(piece.tensor, part(piece), piece.destination.address + done_bytes)
            left = ArenaRange(aside.address, size_bytes)
            yield Move(first.tensor, left, first.destination.address + done_bytes)


def _pieces(pending: Sequence[Mover], aside: ArenaRange) -> Iterator[Mover]:
    """The movers cut wherever a mover, or the target of one, begins or ends."""
    cuts: set[int] = set()
    found = [a for m in pending for b in (m.block, m.destination) for a in (b.address, b.end)]
    while found:
        cut = found.pop()
        if cut in cuts:
            continue
        cuts.add(cut)
        if len(cuts) > _MOST_MOVES:
            raise _too_tight(pending, aside)
        for mover in pending:
            way = mover.destination.address - mover.block.address
            if mover.block.address < cut < mover.block.end:
                found.append(cut + way)
            if mover.destination.address < cut < mover.destination.end:
                found.append(cut - way)
    ordered = sorted(cuts)
    for mover in pending:
        way = mover.destination.address - mover.block.address
        within = [cut for cut in ordered if mover.block.address <= cut <= mover.block.end]
        for start, end in pairwise(within):
            yield Mover(mover.tensor, ArenaRange(start, end - start), start + way)


def _too_tight(pending: Sequence[Mover], aside: ArenaRange) -> ArenaTooTight:
    names = ", ".join(mover.tensor for mover in pending)
    return ArenaTooTight(
        f"a step ends with {names} at other addresses than the next step begins with, and the"
        f" largest gap of {aside.bytes} free bytes is too small to exchange them",
        remedy="solve with a slightly larger budget",
    )


def gaps(taken: Iterable[ArenaRange], arena_bytes: int) -> Iterator[ArenaRange]:
    """Gaps of the arena between the ``taken`` ranges, in order of address."""
    address = 0
    for block in (*sorted(taken, key=lambda block: block.address), ArenaRange(arena_bytes, 0)):
        if block.address > address:
            yield ArenaRange(address, block.address - address)
        address = max(address, block.end)


def _overlap(one: ArenaRange, other: ArenaRange) -> bool:
    return one.address < other.end and other.address < one.end
