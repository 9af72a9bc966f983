"""Names of the rows or columns of a matrix: of each, or of the layers that have room for one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from plots.layout import LINE_INCHES


@dataclass(frozen=True)
class CellName:
    """A name in the middle of the cells from ``first`` to before ``end``."""

    text: str
    first: int
    end: int

    @property
    def middle(self) -> float:
        return (self.first + self.end) / 2


def cell_names(
    names: Sequence[str], groups: Sequence[Hashable], pitch_inches: float
) -> list[CellName]:
    """Name each cell if cells are as wide as a line of text, and otherwise runs of cells.

    Names consist of parts between dots, from the network's block to the tensor. A run is a sequence
    of neighbours of one group whose names begin with the same parts. Of all numbers of parts, the
    one is taken with which the most cells are in runs that have room for a name.

    Args:
        names: Name of each cell, in order.
        groups: Group of each cell, such as the tensor's kind.
        pitch_inches: Width of a cell.

    Returns:
        Names that do not overlap, in order.
    """
    if pitch_inches >= LINE_INCHES:
        return [CellName(name, i, i + 1) for i, name in enumerate(names)]
    parts = [tuple(name.split(".")) for name in names]
    best: list[CellName] = []
    covered = 0
    for depth in range(max(map(len, parts), default=0), 0, -1):
        found = []
        keys = [(group, part[:depth]) for group, part in zip(groups, parts, strict=True)]
        for (_, prefix), run in groupby(range(len(keys)), key=keys.__getitem__):
            cells = list(run)
            if len(cells) * pitch_inches >= LINE_INCHES:
                found.append(CellName(".".join(prefix), cells[0], cells[-1] + 1))
        named = sum(name.end - name.first for name in found)
        if named > covered:
            best, covered = found, named
    return best
