"""Words and numbers of the report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from campaigns.design.cells import Cell
from campaigns.design.file import AS_DESCRIBED, NO_DEADLINE
from devices.documents.readable import si
from devices.profile import Interval


class Sourced(Protocol):
    """Something with the source of its joules."""

    @property
    def source(self) -> str | None:
        """``measured``, ``published`` and so on."""


def group_words(cell: Cell) -> str:
    """Board, condition, network, batch and deadline of a cell."""
    parts = [cell.board]
    parts += [] if cell.condition == AS_DESCRIBED else [cell.condition]
    parts += [cell.network]
    parts += [] if cell.batch is None else [f"batch {cell.batch}"]
    parts += [] if cell.deadline == NO_DEADLINE else [f"deadline {cell.deadline}"]
    return ", ".join(parts)


def interval_words(interval: Interval, unit: str) -> str:
    """A median, and the half width of its interval as a percentage if it has one."""
    half = (interval.high - interval.low) / 2
    share = f" ±{100 * half / interval.median:.2g} %" if interval.median and half else ""
    return f"{si(interval.median, unit)}{share}"


def percent(share: float) -> str:
    """A relative difference, with its sign."""
    return f"{100 * share:+.2f} %".replace("-", "\N{MINUS SIGN}")


def sources_of(figures: Iterable[Sourced | None]) -> str:
    """The sources of joules, each once."""
    sources = [each.source for each in figures if each is not None and each.source]
    return ", ".join(dict.fromkeys(sources))


def geometric_mean(ratios: list[float]) -> float:
    """Geometric mean of positive ratios."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
