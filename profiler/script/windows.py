"""What a block measures: every operation once warm and once cold, whole steps, transfers to and
from storage, all in random order, between two idle slots::

    idle before │ warm A │ step │ cold B │ write 64 KiB │ cold A │ … │ warm B │ idle after

The order is drawn anew for every block, from the seed and the block's number, so that an
interrupted block goes on in the order in which it began.
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


Window: TypeAlias = OpWindow | StepWindow | IdleWindow | TransferWindow


@dataclass(frozen=True)
class BlockContent:
    """What every block has, before it is shuffled. Where there is no data cache operations are
    measured in one of the two ``states`` only. ``scratch`` is what transfers overwrite."""

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
