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
    """Name each cell if cells are as wide as a line of text, and otherwise layers.

    Names consist of parts between dots, from the network's block to the tensor. A run is a sequence
    of neighbours of one group whose names begin with the same parts. Of all numbers of parts, the
    one is taken with which the most cells are in runs that have room for a name. Where that leaves
    out most cells of a group, since layers alternate or are narrow, each layer that has room has
    its name in the middle of its cells.

    Args:
        names: Name of each cell, in order.
        groups: Group of each cell, such as the tensor's kind. Cells of a group are neighbours.
        pitch_inches: Width of a cell.

    Returns:
        Names that do not overlap, in order.
    """
    if pitch_inches >= LINE_INCHES:
        return [CellName(name, i, i + 1) for i, name in enumerate(names)]
    least = LINE_INCHES / pitch_inches
    found: list[CellName] = []
    for _, group in groupby(range(len(names)), key=groups.__getitem__):
        cells = list(group)
        parts = [tuple(names[cell].split(".")) for cell in cells]
        named = _runs(parts, least)
        if 2 * _cells_of(named) < len(cells):
            named = _layers(parts, least)
        first = cells[0]
        found += [CellName(each.text, first + each.first, first + each.end) for each in named]
    return found


def _cells_of(named: Sequence[CellName]) -> int:
    return sum(name.end - name.first for name in named)


def _runs(parts: Sequence[tuple[str, ...]], least: float) -> list[CellName]:
    """Runs of at least so many cells, by as many parts of names as name the most cells."""
    best: list[CellName] = []
    for depth in range(max(map(len, parts)), 0, -1):
        found = []
        prefixes = [name[:depth] for name in parts]
        for prefix, run in groupby(range(len(parts)), key=prefixes.__getitem__):
            cells = list(run)
            if len(cells) >= least:
                found.append(CellName(".".join(prefix), cells[0], cells[-1] + 1))
        if _cells_of(found) > _cells_of(best):
            best = found
    return best


def _layers(parts: Sequence[tuple[str, ...]], least: float) -> list[CellName]:
    """Names at the medians of the cells of layers, those of most cells first, by as few parts as
    tell layers apart."""
    depth = next((d for d in range(1, max(map(len, parts))) if len({p[:d] for p in parts}) > 1), 1)
    cells: dict[tuple[str, ...], list[int]] = {}
    for cell, words in enumerate(parts):
        cells.setdefault(words[:depth], []).append(cell)
    found: list[CellName] = []
    for prefix, own in sorted(cells.items(), key=lambda item: -len(item[1])):
        middle = own[len(own) // 2]
        name = CellName(".".join(prefix), middle, middle + 1)
        at_edge = not least / 2 <= name.middle <= len(parts) - least / 2
        if not at_edge and all(abs(name.middle - each.middle) >= least for each in found):
            found.append(name)
    return sorted(found, key=lambda each: each.first)
