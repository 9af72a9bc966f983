"""Options of a profiling run."""

from __future__ import annotations

from dataclasses import dataclass

from devices.errors import MeasurementInvalid


@dataclass(frozen=True)
class ProfileOptions:
    """How to measure a profile.

    Attributes:
        blocks: Number of blocks, each with one trial of every window.
        min_window_s: Least length of a window; longer where the meter needs more for its samples.
        seed: Seed of the order of windows.
        storage: Whether storage is measured; if not, nothing is written to it.
        storage_budget_bytes: Most bytes that may be written to storage.
        overwrite_raw_flash: Allow overwriting a raw flash partition.
        settle_s: Time for which a medium is watched after a transfer.
        step_windows: Windows per block that run the whole training step.
        idle_s: Least length of the idle windows of a block.
        leave_out: Leave out operations that do not fit into the board's memory; refuse otherwise.
        leave_out_void: Leave out operations with too few valid trials; refuse otherwise.
        poll_interval_s: Time between two polls of a board that is measuring.
    """

    blocks: int = 5
    min_window_s: float = 0.02
    seed: int = 0
    storage: bool = True
    storage_budget_bytes: int = 256 << 20
    overwrite_raw_flash: bool = False
    settle_s: float = 0.05
    step_windows: int = 3
    idle_s: float = 0.1
    leave_out: bool = False
    leave_out_void: bool = False
    poll_interval_s: float = 0.5

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.min_window_s <= 0:
            raise MeasurementInvalid(
                f"{self.blocks} blocks of windows of {self.min_window_s} s cannot be measured;"
                " at least one block and a positive length are needed"
            )
