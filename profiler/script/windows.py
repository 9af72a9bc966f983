"""Windows of a block.

A block measures every operation once warm and once cold, whole steps, and transfers to and from
storage, all in random order, between two idle windows::

    idle before │ warm A │ step │ cold B │ write 64 KiB │ cold A │ … │ warm B │ idle after

The order is drawn for every block, from the seed and the block's number, so that an interrupted
block continues in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from devices.operation import OpSpec
from devices.profile import CacheState
from profiler.script.transfers import Scratch, TransferWindow

CACHE_STATES: tuple[CacheState, ...] = ("warm", "cold")


@dataclass(frozen=True)
class OpWindow:
    """Window of one operation, with warm or cold caches."""

    spec: OpSpec
    state: CacheState

    @property
    def label(self) -> str:
        return f"{self.state} {self.spec.key}"


@dataclass(frozen=True)
class StepWindow:
    """Window of a whole training step."""

    index: int

    @property
    def label(self) -> str:
        return f"step {self.index}"


@dataclass(frozen=True)
class IdleWindow:
    """Window in which the board is idle, at the start or the end of a block."""

    place: Literal["before", "after"]

    @property
    def label(self) -> str:
        return f"idle {self.place}"


Window: TypeAlias = OpWindow | StepWindow | IdleWindow | TransferWindow


@dataclass(frozen=True)
class BlockContent:
    """Windows of every block, before they are shuffled.

    On a board without a data cache, operations are measured in only one of the two ``states``.
    ``scratch`` is the stretch that transfers overwrite.
    """

    specs: tuple[OpSpec, ...]
    step_windows: int
    transfers: tuple[TransferWindow, ...]
    states: tuple[CacheState, ...] = CACHE_STATES
    scratch: Scratch | None = None

    def ordered(self, seed: int, block: int) -> tuple[Window, ...]:
        windows: list[Window] = [
            *(OpWindow(spec, state) for state in self.states for spec in self.specs),
            *map(StepWindow, range(self.step_windows)),
            *self.transfers,
        ]
        order = np.random.default_rng([seed, block]).permutation(len(windows))
        return IdleWindow("before"), *(windows[index] for index in order), IdleWindow("after")
