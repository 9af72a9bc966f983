"""What a block measures: every operation once warm and once cold, whole steps, transfers to and
from storage, all in random order, between two idle slots::

    idle before │ warm A │ step │ cold B │ write 64 KiB │ cold A │ … │ warm B │ idle after

The order is drawn anew for every block, from the seed and the block's number, so that an
interrupted block goes on in the order in which it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from devices.description import Storage
from devices.operation import OpSpec
from devices.profile import CacheState
from profiler.errors import ProfilerError

TransferMethod: TypeAlias = Literal["read", "write", "write-buffered"]
WRITE_METHODS: tuple[TransferMethod, ...] = ("write", "write-buffered")

CACHE_STATES: tuple[CacheState, ...] = ("warm", "cold")

LARGEST_TRANSFER_BYTES = 4 << 20
SCRATCH_BYTES = 2 * LARGEST_TRANSFER_BYTES
_MOST_WRITES = 64
_MOST_READS = 4096
_FEWEST_SIZES = 3
# Blocks that the byte budget provides for, over those asked for: some windows are repeated.
_BUDGET_RESERVE = 1.5


@dataclass(frozen=True)
class OpWindow:
    spec: OpSpec
    state: CacheState

    @property
    def label(self) -> str:
        return f"{self.state} {self.spec.key}"


@dataclass(frozen=True)
class StepWindow:
    index: int

    @property
    def label(self) -> str:
        return f"step {self.index}"


@dataclass(frozen=True)
class IdleWindow:
    place: Literal["before", "after"]

    @property
    def label(self) -> str:
        return f"idle {self.place}"


@dataclass(frozen=True)
class TransferWindow:
    """``most`` bounds the number of transfers, and so the bytes that a write window writes."""

    method: TransferMethod
    bytes: int
    most: int

    @property
    def label(self) -> str:
        return f"{self.method} {self.bytes}"

    @property
    def written_bytes(self) -> int:
        return self.bytes * self.most if self.method in WRITE_METHODS else 0


Window: TypeAlias = OpWindow | StepWindow | IdleWindow | TransferWindow


@dataclass(frozen=True)
class BlockContent:
    """What every block has, before it is shuffled. Where there is no data cache operations are
    measured in one of the two ``states`` only."""

    specs: tuple[OpSpec, ...]
    step_windows: int
    transfers: tuple[TransferWindow, ...]
    states: tuple[CacheState, ...] = CACHE_STATES

    def ordered(self, seed: int, block: int) -> tuple[Window, ...]:
        windows: list[Window] = [
            *(OpWindow(spec, state) for state in self.states for spec in self.specs),
            *map(StepWindow, range(self.step_windows)),
            *self.transfers,
        ]
        order = np.random.default_rng([seed, block]).permutation(len(windows))
        return IdleWindow("before"), *(windows[index] for index in order), IdleWindow("after")


def written_bytes(windows: Sequence[Window]) -> int:
    """The most that these windows write to storage, the making of the scratch file included."""
    transfers = [window for window in windows if isinstance(window, TransferWindow)]
    if not transfers:
        return 0
    return SCRATCH_BYTES + sum(window.written_bytes for window in transfers)


def plan_transfers(
    storage: Storage, *, budget_bytes: int, blocks: int
) -> tuple[TransferWindow, ...]:
    """A sweep over sizes from a page upwards, by powers of two, that stays within the budget when
    it is done in every block. Raises :class:`~profiler.errors.ProfilerError` if the budget is too
    small for three sizes."""
    available = int(budget_bytes / (blocks * _BUDGET_RESERVE)) - SCRATCH_BYTES
    sizes = [storage.page_bytes << k for k in range(32)]
    sizes = [size for size in sizes if size <= LARGEST_TRANSFER_BYTES]
    once = len(WRITE_METHODS)
    while len(sizes) > _FEWEST_SIZES and once * sum(sizes) > available:
        sizes.pop()
    left = available - once * sum(sizes)
    if left < 0 or len(sizes) < _FEWEST_SIZES:
        needed = int((SCRATCH_BYTES + once * sum(sizes)) * blocks * _BUDGET_RESERVE) + 1
        raise ProfilerError(
            f"storage: {budget_bytes} bytes are too few for {blocks} blocks of writes;"
            f" allow at least {needed}, or leave storage out"
        )
    share = left // (once * len(sizes))
    return tuple(
        TransferWindow(method, size, _most(method, size, share))
        for size in sizes
        for method in ("read", *WRITE_METHODS)
    )


def _most(method: TransferMethod, size: int, share_bytes: int) -> int:
    if method not in WRITE_METHODS:
        return _MOST_READS
    return min(1 + share_bytes // size, _MOST_WRITES)
