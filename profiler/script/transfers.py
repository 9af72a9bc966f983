"""Storage transfers that a block measures, and the most wear that they cause.

For every method of moving pages a sweep over sizes is measured: from a page (for erasing: an erase
block) upwards by powers of two. Where flash must be erased before it is written, the blocks that a
window may write are erased before the window::

    erased, unseen            │ write │ write │ write │ …   the window, up to ``most`` writes
    ceil(most · bytes / erase_block_bytes) blocks
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from devices.description import Storage
from devices.errors import RequestRefused

TransferMethod: TypeAlias = Literal["read", "write", "erase", "write-buffered"]

LARGEST_TRANSFER_BYTES = 4 << 20
SCRATCH_FILE_BYTES = 2 * LARGEST_TRANSFER_BYTES

ENDURANCE_SHARE = 0.01
"""Share of an erase block's endurance that one profile may use."""

_SECTOR_BYTES = 512
_MOST_ERASED_AT_ONCE = 16  # blocks
_MOST_ERASES = 16
_MOST_WRITES = 64
_MOST_READS = 4096
_FEWEST_SIZES = 3

# Harness runs that the budgets provide for, per requested block, since some windows are repeated.
_RESERVE = 1.5

# Raw flash of Linux: linux_mtd.h measures on half of the good blocks, and accepts a stretch with up
# to an eighth of bad blocks.
_MOST_BAD_SHARE = 8
_FEWEST_RAW_BLOCKS = 64


@dataclass(frozen=True)
class TransferWindow:
    """A window of transfers of ``bytes`` each. ``most`` bounds their number, and so what is
    overwritten."""

    method: TransferMethod
    bytes: int
    most: int

    @property
    def label(self) -> str:
        return f"{self.method} {self.bytes}"


@dataclass(frozen=True)
class Wear:
    """Most wear that something causes to a medium. For flash with erase blocks, every erased block
    counts as written; ``cycles`` counts the erasures of the block that is erased most often."""

    written_bytes: int = 0
    erased_blocks: int = 0
    cycles: int = 0

    def __add__(self, other: Wear) -> Wear:
        return Wear(
            self.written_bytes + other.written_bytes,
            self.erased_blocks + other.erased_blocks,
            self.cycles + other.cycles,
        )

    def times(self, count: int) -> Wear:
        return Wear(count * self.written_bytes, count * self.erased_blocks, count * self.cycles)


@dataclass(frozen=True)
class Scratch:
    """The stretch of a medium that is overwritten.

    The harness is given its ``bytes``, fills ``filled_bytes`` of them when it opens it, and uses
    ``free_bytes`` for transfers. ``budget_bytes`` is the most that a profile may write.
    """

    bytes: int
    filled_bytes: int
    free_bytes: int
    budget_bytes: int
    page_bytes: int
    erase_block_bytes: int | None
    endurance_cycles: int | None
    methods: tuple[TransferMethod, ...]

    @classmethod
    def of(cls, storage: Storage, budget_bytes: int) -> Scratch:
        """The scratch of a board's storage. Raises :class:`~devices.errors.RequestRefused` if the
        stretch of the description is not made of whole pages or erase blocks."""
        if storage.scratch_bytes is None:
            return cls._file(storage, budget_bytes)
        block = storage.erase_block_bytes
        unit = block or storage.page_bytes
        size, offset = storage.scratch_bytes, storage.scratch_offset_bytes
        if unit % storage.page_bytes or size % unit or offset % unit:
            raise RequestRefused(
                f"storage: scratch_bytes {size} and scratch_offset_bytes {offset} must be"
                f" multiples of {unit} bytes (an erase block, or else a page), and {unit} of"
                f" page_bytes {storage.page_bytes}"
            )
        filled, free = 0, size
        if storage.mtd_partition is not None:
            size = min(size, max(SCRATCH_FILE_BYTES, _FEWEST_RAW_BLOCKS * unit) // unit * unit)
            filled = size // unit // 2 * unit
            free = (size // unit - size // unit // _MOST_BAD_SHARE) // 2 * unit
        return cls(
            bytes=size,
            filled_bytes=filled,
            free_bytes=free,
            budget_bytes=budget_bytes,
            page_bytes=storage.page_bytes,
            erase_block_bytes=block,
            endurance_cycles=None if block is None else storage.endurance_cycles,
            methods=("read", "write") if block is None else ("read", "write", "erase"),
        )

    @classmethod
    def _file(cls, storage: Storage, budget_bytes: int) -> Scratch:
        """A scratch file. The layer below the file system levels the wear."""
        if storage.page_bytes % _SECTOR_BYTES:
            raise RequestRefused(
                f"storage: page_bytes {storage.page_bytes} must be a multiple of {_SECTOR_BYTES}:"
                " files are read and written past the page cache in whole sectors"
            )
        return cls(
            bytes=SCRATCH_FILE_BYTES,
            filled_bytes=SCRATCH_FILE_BYTES,
            free_bytes=SCRATCH_FILE_BYTES,
            budget_bytes=budget_bytes,
            page_bytes=storage.page_bytes,
            erase_block_bytes=None,
            endurance_cycles=None,
            methods=("read", "write", "write-buffered"),
        )

    def overwritten_bytes(self, window: TransferWindow) -> int:
        """Most bytes that a window writes, erasing included."""
        if window.method == "read":
            return 0
        return _rounded_up(window.bytes * window.most, self.erase_block_bytes or 1)

    def wear(self, windows: Sequence[object]) -> Wear:
        """Most wear of one harness run with these windows, including the filling of the scratch."""
        transfers = [window for window in windows if isinstance(window, TransferWindow)]
        if not transfers:
            return Wear()
        written = sum(map(self.overwritten_bytes, transfers))
        if self.erase_block_bytes is None:
            return Wear(self.filled_bytes + written)
        erased = written // self.erase_block_bytes
        filled = self.filled_bytes // self.erase_block_bytes
        return Wear(self.filled_bytes + written, erased + filled, self._cycles(erased))

    def allows(self, wear: Wear) -> bool:
        """Whether a profile may cause this wear to the medium."""
        allowed = math.inf
        if self.endurance_cycles is not None:
            allowed = ENDURANCE_SHARE * self.endurance_cycles
        return wear.written_bytes <= self.budget_bytes and wear.cycles <= allowed

    def bytes_for_windows(self, harness_runs: float) -> int:
        """Bytes that the windows of each of so many harness runs may overwrite."""
        available = int(self.budget_bytes / harness_runs) - self.filled_bytes
        if self.endurance_cycles is None or self.erase_block_bytes is None:
            return available
        # The inverse of _cycles.
        cycles = int(ENDURANCE_SHARE * self.endurance_cycles / harness_runs)
        erased_blocks = max(0, (cycles * (self._free_blocks + 1) - 1) // 2)
        return min(available, erased_blocks * self.erase_block_bytes)

    def _cycles(self, erased_blocks: int) -> int:
        """Most erasures of one block when ``erased_blocks`` blocks are erased.

        The harness erases from one end to the other and restarts when the next stretch does not
        fit. A lap and the first stretch of the next one then are longer than the N blocks of the
        scratch, so that n erased blocks are at most 1 + 2n/(N + 1) laps; in a lap no block is
        erased twice.
        """
        return 1 + 2 * erased_blocks // (self._free_blocks + 1)

    @property
    def _free_blocks(self) -> int:
        return self.free_bytes // (self.erase_block_bytes or 1)


def plan_transfers(
    scratch: Scratch, *, blocks: int, memory_bytes: int
) -> tuple[TransferWindow, ...]:
    """Choose the transfers of a block: at least three sizes for each method.

    Each transfer lies within the scratch and (except erasing) within ``memory_bytes``. Their number
    is such that the scratch allows all blocks, including some repeated windows. Raises
    :class:`~devices.errors.RequestRefused` where that is impossible.
    """
    sizes = _sizes(scratch, memory_bytes)
    harness_runs = blocks * _RESERVE
    available = scratch.bytes_for_windows(harness_runs)
    while (least := _least(scratch, sizes)) > available:
        longer = [ladder for ladder in sizes.values() if len(ladder) > _FEWEST_SIZES]
        if not longer:
            raise _too_little(scratch, blocks, harness_runs, least)
        largest = max(ladder[-1] for ladder in longer)
        for ladder in longer:
            if ladder[-1] == largest:
                ladder.pop()
    writing = sum(len(ladder) for method, ladder in sizes.items() if method != "read")
    share = (available - least) // writing
    return tuple(
        TransferWindow(method, size, _most(scratch, method, size, share))
        for method, ladder in sizes.items()
        for size in ladder
    )


def _sizes(scratch: Scratch, memory_bytes: int) -> Mapping[TransferMethod, list[int]]:
    largest = min(LARGEST_TRANSFER_BYTES, memory_bytes, scratch.free_bytes)
    sizes = {method: _ladder(scratch.page_bytes, largest) for method in scratch.methods}
    if scratch.erase_block_bytes is not None:
        block = scratch.erase_block_bytes
        at_once = min(scratch.free_bytes, _MOST_ERASED_AT_ONCE * block)
        sizes["erase"] = _ladder(block, at_once)
    if any(len(ladder) < _FEWEST_SIZES for ladder in sizes.values()):
        blocks = f" and of {scratch.erase_block_bytes}" if scratch.erase_block_bytes else ""
        raise RequestRefused(
            f"storage: a fit of costs needs at least {_FEWEST_SIZES} sizes, multiples of"
            f" {scratch.page_bytes} bytes{blocks}; so many do not fit into {memory_bytes} bytes of"
            f" memory and {scratch.free_bytes} bytes of storage for transfers."
            " Enlarge the description's scratch_bytes, or leave storage out (--no-storage)"
        )
    return sizes


def _ladder(unit: int, largest: int) -> list[int]:
    sizes = [unit << k for k in range(32) if unit << k <= largest]
    if len(sizes) == 2 and 3 * unit <= largest:
        sizes.append(3 * unit)
    return sizes


def _least(scratch: Scratch, sizes: Mapping[TransferMethod, Sequence[int]]) -> int:
    """Bytes that a block overwrites with a single transfer in every window."""
    return sum(
        scratch.overwritten_bytes(TransferWindow(method, size, 1))
        for method, ladder in sizes.items()
        for size in ladder
    )


def _most(scratch: Scratch, method: TransferMethod, size: int, share_bytes: int) -> int:
    """Number of transfers: as many as fill the blocks that are erased for them, and the added
    share."""
    if method == "read":
        return _MOST_READS
    least = scratch.overwritten_bytes(TransferWindow(method, size, 1))
    count = _MOST_ERASES if method == "erase" else _MOST_WRITES
    stretch = max(least, min(least + share_bytes, count * size))
    if method == "write" and scratch.erase_block_bytes is not None:
        stretch = min(stretch, scratch.free_bytes)
        stretch -= stretch % scratch.erase_block_bytes
    return stretch // size


def _too_little(scratch: Scratch, blocks: int, harness_runs: float, least: int) -> RequestRefused:
    needed = int((scratch.filled_bytes + least) * harness_runs) + 1
    if needed > scratch.budget_bytes:
        return RequestRefused(
            f"storage: a write budget of {scratch.budget_bytes} bytes is too small for {blocks}"
            " blocks",
            remedy=f"allow at least {needed} bytes, or leave storage out",
        )
    return RequestRefused(
        f"storage: {blocks} blocks would use more than {ENDURANCE_SHARE:.0%} of the"
        f" {scratch.endurance_cycles} cycles that the flash endures, in {scratch.free_bytes} bytes"
        " of it. Enlarge the description's scratch_bytes, measure fewer blocks, or leave storage"
        " out (--no-storage)"
    )


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
