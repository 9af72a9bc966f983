"""Decides what the board should do: ``from solver import solve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.published_call import solve

__all__ = ["solve"]


def __getattr__(name: str) -> Any:
    # What a solve needs takes a while to import: who wants only a part need not wait.
    if name == "solve":
        from solver.published_call import solve

        return solve
    raise AttributeError(f"module 'solver' has no attribute {name!r}")
