"""How long a storage medium lasts that every training step writes to.

Flash endures so many program-erase cycles a block. Raw flash is written by this project alone, part
after part round its scratch, so that its blocks wear evenly and its life follows from the erases
that were counted. A card or a drive has a controller that spreads what is written over all of it
(Gal and Toledo, *Algorithms and data structures for flash memories*, ACM Computing Surveys 37,
2005); how much more it writes than it is given (its write amplification) it does not tell, so that
what is stated is the longest that it can last.
"""

from __future__ import annotations

from devices.description import Storage
from devices.documents.document import StrictModel
from devices.quantities import NonNegative, Positive, Size

DAYS_PER_YEAR = 365.25

_RAW = frozenset({"nor-flash", "nand", "qspi-flash"})


class Wear(StrictModel):
    """``years`` that the medium lasts at ``steps_per_day``; None where that is not known, or
    nothing is written, which ``reason`` tells. With ``at_most`` it is an upper bound.
    ``spread_bytes`` are those that share the wear, ``endurance_cycles`` is the data sheet's."""

    written_bytes_per_step: NonNegative
    erased_blocks_per_step: NonNegative
    endurance_cycles: Size | None = None
    spread_bytes: Size | None = None
    steps_per_day: Positive
    years: NonNegative | None = None
    at_most: bool = False
    reason: str | None = None


def wear(
    storage: Storage,
    written_bytes_per_step: float,
    erased_blocks_per_step: float,
    part_bytes: int,
    steps_per_day: float,
) -> Wear:
    """``part_bytes`` is the part of the storage that one step writes; the next one writes the next
    part, as many as fit into the scratch."""
    raw = storage.erase_block_bytes if storage.medium in _RAW else None
    spread_bytes: int | None
    if raw is not None and storage.scratch_bytes is not None:
        spread_bytes = storage.scratch_bytes // part_bytes * part_bytes if part_bytes else 0
    else:
        spread_bytes = None if raw is not None else storage.capacity_bytes
    worn_bytes = written_bytes_per_step if raw is None else erased_blocks_per_step * raw
    endurance = storage.endurance_cycles
    years = None
    if worn_bytes == 0:
        reason: str | None = "a step writes nothing to storage, which so does not wear"
    elif endurance is None:
        reason = f"the description of the {storage.medium} states no endurance_cycles"
    elif not spread_bytes:
        key = "capacity_bytes" if raw is None else "scratch_bytes for one step"
        reason = f"the description of the {storage.medium} states no {key}"
    else:
        years = endurance * spread_bytes / worn_bytes / (steps_per_day * DAYS_PER_YEAR)
        reason = (
            None
            if raw is not None
            else "the card's own controller writes more than it is given, how much is not known:"
            " the medium lasts no longer than that"
        )
    return Wear(
        written_bytes_per_step=written_bytes_per_step,
        erased_blocks_per_step=erased_blocks_per_step,
        endurance_cycles=endurance,
        spread_bytes=spread_bytes,
        steps_per_day=steps_per_day,
        years=years,
        at_most=years is not None and raw is None,
        reason=reason,
    )
