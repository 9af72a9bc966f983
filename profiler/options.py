"""What the user may choose about a profile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProfileOptions:
    """``min_window_s`` is prolonged where a meter needs more for its samples. ``step_windows`` is
    how often a block runs the whole training step. Nothing is written to storage beyond
    ``storage_budget_bytes``; without ``storage`` nothing at all."""

    blocks: int = 5
    min_window_s: float = 0.02
    seed: int = 0
    storage: bool = True
    storage_budget_bytes: int = 256 << 20
    settle_s: float = 0.05
    step_windows: int = 3
    idle_s: float = 0.1
    poll_interval_s: float = 0.5
