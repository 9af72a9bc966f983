"""The end of a step: what is kept goes back to where the next step expects it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from devices.plan import Block, Move
from solver.lowering_checks import LoweringError


@dataclass(frozen=True)
class Mover:
    """A tensor in RAM, and the address at which it has to be; None where any will do that is not
    somebody else's."""

    tensor: str
    block: Block
    target: int | None

    @property
    def destination(self) -> Block:
        return self.block if self.target is None else Block(self.target, self.block.bytes)


def ordered_moves(movers: Sequence[Mover], arena_bytes: int) -> tuple[Move, ...]:
    """Moves in an order in which nothing is overwritten that has not moved yet.

    Where each waits for another, one that stands in the way goes to free bytes for a while. Raises
    :class:`LoweringError` where the arena has none.
    """
    placed = _placed(movers, arena_bytes)
    moves = []
    while pending := [mover for mover in placed if mover.block != mover.destination]:
        mover = next((m for m in pending if not _blocked(m, placed)), None)
        if mover is not None:
            address = mover.destination.address
        else:
            mover, address = _stepping_aside(pending, placed, arena_bytes)
        moves.append(Move(mover.tensor, mover.block, address))
        moved = replace(mover, block=Block(address, mover.block.bytes))
        placed = [moved if each is mover else each for each in placed]
    return tuple(moves)


def _placed(movers: Sequence[Mover], arena_bytes: int) -> list[Mover]:
    """With a target for those that have none and stand where another has to go."""
    taken = [mover.destination for mover in movers if mover.target is not None]
    placed = []
    for mover in movers:
        if mover.target is None:
            if any(overlap(mover.block, other) for other in taken):
                here = [other.block for other in movers]
                address = _lowest_gap(mover.block.bytes, [*taken, *here], arena_bytes)
                if address is None:
                    address = _lowest_gap(mover.block.bytes, taken, arena_bytes)
                if address is None:
                    raise _no_room([mover])
                mover = replace(mover, target=address)
            taken.append(mover.destination)
        placed.append(mover)
    return placed


def _blocked(mover: Mover, placed: Iterable[Mover]) -> bool:
    return any(other is not mover and overlap(mover.destination, other.block) for other in placed)


def _stepping_aside(
    pending: Sequence[Mover], placed: Sequence[Mover], arena_bytes: int
) -> tuple[Mover, int]:
    """The smallest tensor that is in another's way, and bytes where it is in nobody's."""
    in_the_way = [
        mover
        for mover in pending
        if any(o is not mover and overlap(o.destination, mover.block) for o in pending)
    ]
    for mover in sorted(in_the_way, key=lambda m: m.block.bytes):
        taken = [other.block for other in placed]
        taken += [other.destination for other in placed if other is not mover]
        address = _lowest_gap(mover.block.bytes, taken, arena_bytes)
        if address is not None:
            return mover, address
    raise _no_room(pending)


def _no_room(movers: Sequence[Mover]) -> LoweringError:
    names = ", ".join(mover.tensor for mover in movers)
    return LoweringError(
        f"the step leaves {names} where the next step does not expect them, and the arena has no"
        " free bytes to exchange them; solve with a slightly larger budget"
    )


def _lowest_gap(size_bytes: int, taken: Collection[Block], arena_bytes: int) -> int | None:
    address = 0
    for block in sorted(taken, key=lambda block: block.address):
        if block.address - address >= size_bytes:
            return address
        address = max(address, block.end)
    return address if arena_bytes - address >= size_bytes else None


def overlap(one: Block, other: Block) -> bool:
    return one.address < other.end and other.address < one.end
