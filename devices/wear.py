"""Life of a storage medium that every training step writes to.

Flash endures a limited number of program-erase cycles per block. Raw flash is written by this
project alone, part after part in a circle through the scratch area, so that its blocks wear evenly
and its life follows from the counted erases. A card or drive has a controller that spreads writes
over the whole medium (Gal and Toledo, *Algorithms and data structures for flash memories*, ACM
Computing Surveys 37, 2005). The controller does not report its write amplification, so the stated
life is an upper bound.
"""

from __future__ import annotations

from typing import Protocol

from devices.documents.document import StrictModel
from devices.quantities import MOST, NonNegative, Positive, Size

DAYS_PER_YEAR = 365.25

_RAW = frozenset({"nor-flash", "nand", "qspi-flash"})


class StorageMedium(Protocol):
    """Properties of a storage medium that a board's description and its profile both state."""

    @property
    def medium(self) -> str: ...
    @property
    def page_bytes(self) -> int: ...
    @property
    def erase_block_bytes(self) -> int | None: ...
    @property
    def capacity_bytes(self) -> int | None: ...
    @property
    def scratch_bytes(self) -> int | None: ...
    @property
    def endurance_cycles(self) -> int | None: ...


class Wear(StrictModel):
    """Wear of a storage medium by training.

    The medium lasts ``years`` at ``steps_per_day``; None if that is unknown or nothing is written,
    for the ``reason`` given. ``at_most``: ``years`` is an upper bound. ``spread_bytes`` share the
    wear; ``endurance_cycles`` is from the data sheet.
    """

    written_bytes_per_step: NonNegative
    erased_blocks_per_step: NonNegative
    endurance_cycles: Size | None = None
    spread_bytes: Size | None = None
    steps_per_day: Positive
    years: NonNegative | None = None
    at_most: bool = False
    reason: str | None = None


def wear(
    storage: StorageMedium,
    written_bytes_per_step: float,
    erased_blocks_per_step: float,
    part_bytes: int,
    steps_per_day: float,
) -> Wear:
    """Compute how long a storage medium lasts.

    Args:
        storage: The medium.
        written_bytes_per_step: Bytes that a step writes.
        erased_blocks_per_step: Erase blocks that a step erases.
        part_bytes: Part of the scratch area that one step writes; the next step writes the next
            part, and after the last one comes the first again.
        steps_per_day: Training steps a day.

    Returns:
        The wear, with the medium's life in years if it is known.
    """
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
        reason: str | None = "a step writes nothing to storage, so it does not wear"
    elif endurance is None:
        reason = f"the description of the {storage.medium} states no endurance_cycles"
    elif not spread_bytes:
        key = "capacity_bytes" if raw is None else "scratch_bytes for one step"
        reason = f"the description of the {storage.medium} states no {key}"
    else:
        years = endurance * spread_bytes / worn_bytes / (steps_per_day * DAYS_PER_YEAR)
        years = min(years, MOST)
        reason = (
            None
            if raw is not None
            else "an upper bound: the medium's own controller writes an unknown amount more than it"
            " is given"
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
