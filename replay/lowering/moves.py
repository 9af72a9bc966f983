"""The end of a step: what is kept goes back to where the next step expects it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from devices.operation import ELEMENT_BYTES
from devices.plan import ArenaRange, Move
from replay.lowering.checks import LoweringError

# What a plan may have of them, lest its table outgrow the tensors.
_MOST_MOVES = 1 << 14


@dataclass(frozen=True)
class Mover:
    """A tensor in RAM, and the address at which it has to be; None where any will do that is not
    somebody else's."""

    tensor: str
    block: ArenaRange
    target: int | None

    @property
    def destination(self) -> ArenaRange:
        return self.block if self.target is None else ArenaRange(self.target, self.block.bytes)


def settled(movers: Sequence[Mover], arena_bytes: int) -> tuple[Mover, ...]:
    """With a target for each: its own address, unless somebody else has to go there. Raises
    :class:`LoweringError` where the arena has no room for all."""
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
    """Moves of settled tensors in an order in which nothing is overwritten that has not moved yet.

    Where each waits for another, one of them goes aside for a while, to bytes that nobody has to go
    to. Where these are too few, all go piece by piece. Raises :class:`LoweringError` where that
    takes too many moves.
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
    """Who is in another's way, the smallest first, and where it would be in nobody's."""
    for mover in sorted(pending, key=lambda mover: mover.block.bytes):
        if any(_blocked(o, [mover]) for o in pending if o is not mover):
            room = (gap.address for gap in free if gap.bytes >= mover.block.bytes)
            yield from ((mover, address) for address in room)


def _piece_by_piece(pending: Sequence[Mover], aside: ArenaRange) -> Iterator[Move]:
    """Of pieces that are cut so that each goes to where nothing is, or exactly to where another is:
    rows of them, which move from the front, and rings, whose first one goes ``aside``."""
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
    """Cut wherever one of them begins or ends, where it is and where it goes."""
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


def _too_tight(pending: Sequence[Mover], aside: ArenaRange) -> LoweringError:
    names = ", ".join(mover.tensor for mover in pending)
    return LoweringError(
        f"a step leaves {names} where the next one does not expect them, and {aside.bytes} free"
        " bytes in a row are too few to exchange them",
        remedy="solve with a slightly larger budget",
    )


def gaps(taken: Iterable[ArenaRange], arena_bytes: int) -> Iterator[ArenaRange]:
    """What is left of the arena, in order."""
    address = 0
    for block in (*sorted(taken, key=lambda block: block.address), ArenaRange(arena_bytes, 0)):
        if block.address > address:
            yield ArenaRange(address, block.address - address)
        address = max(address, block.end)


def _overlap(one: ArenaRange, other: ArenaRange) -> bool:
    return one.address < other.end and other.address < one.end
