"""What a campaign says of schedules that have changed values, which is a defect."""

from __future__ import annotations

from collections.abc import Sequence

from commands.console import Console

_MOST_SHOWN = 20


def show_other_values(console: Console, cells: Sequence[str]) -> None:
    """Name the first of the cells whose schedules have changed values."""
    for cell in cells[:_MOST_SHOWN]:
        console.result(f"values DIFFER from those of the unscheduled step: {cell}")
    if len(cells) > _MOST_SHOWN:
        console.result(f"and {len(cells) - _MOST_SHOWN} more cells whose values differ")
