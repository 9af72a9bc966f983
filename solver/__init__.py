"""The scheduler: finds the training schedule of least energy (``from solver import solve``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.published_call import solve

__all__ = ["solve"]


def __getattr__(name: str) -> Any:
    # Importing everything takes a while: load it only when `solve` is used.
    if name == "solve":
        from solver.published_call import solve

        return solve
    raise AttributeError(f"module 'solver' has no attribute {name!r}")
