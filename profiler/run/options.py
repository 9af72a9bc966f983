"""What the user may choose about a profile."""

from __future__ import annotations

from dataclasses import dataclass

from devices.errors import MeasurementInvalid


@dataclass(frozen=True)
class ProfileOptions:
    """``min_window_s`` is prolonged where a meter needs more for its samples. ``step_windows`` is
    how often a block runs the whole training step. Nothing is written to storage beyond
    ``storage_budget_bytes``; without ``storage`` nothing at all, and nothing to a raw flash
    partition without ``overwrite_raw_flash``."""

    blocks: int = 5
    min_window_s: float = 0.02
    seed: int = 0
    storage: bool = True
    storage_budget_bytes: int = 256 << 20
    overwrite_raw_flash: bool = False
    settle_s: float = 0.05
    step_windows: int = 3
    idle_s: float = 0.1
    poll_interval_s: float = 0.5

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.min_window_s <= 0:
            raise MeasurementInvalid(
                f"{self.blocks} blocks of windows of {self.min_window_s} s cannot be measured;"
                " at least one block and a positive length are needed"
            )
