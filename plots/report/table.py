"""The table of cells: its columns, and the factors by which it can be filtered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from campaigns.keeping.results import CellResult
from devices.documents.readable import lower_bound, size
from plots.report.figures import CellFigures, Figure
from plots.report.words import interval_words, percent


@dataclass(frozen=True)
class Entry:
    """Text of a table's cell; ``order`` sorts it, ``source`` is that of joules."""

    text: str
    order: float | None = None
    source: str | None = None


@dataclass(frozen=True)
class Column:
    """A column: its heading, and its entry for each cell. ``is_number``: aligned to the right."""

    name: str
    entry_of: Callable[[CellFigures], Entry]
    is_number: bool = True


@dataclass(frozen=True)
class Factor:
    """A factor by which rows are filtered, with its levels."""

    name: str
    levels: tuple[str, ...]


NOTHING = Entry("–")

_FACTORS: tuple[tuple[str, Callable[[CellResult], str]], ...] = (
    ("state", lambda result: result.state),
    ("board", lambda result: result.cell.board),
    ("condition", lambda result: result.cell.condition),
    ("network", lambda result: result.cell.network),
    ("batch", lambda result: str(result.cell.batch or "its own")),
    ("RAM budget", lambda result: result.cell.ram_budget),
    ("deadline", lambda result: result.cell.deadline),
    ("method", lambda result: result.cell.method),
)


def factors_of(results: Sequence[CellResult]) -> tuple[Factor, ...]:
    """The factors with more than one level among the cells."""
    levels = ((name, tuple(dict.fromkeys(map(level, results)))) for name, level in _FACTORS)
    return tuple(Factor(name, found) for name, found in levels if len(found) > 1)


def levels_of(result: CellResult, factors: Sequence[Factor]) -> list[int]:
    """Number of a cell's level in each of the factors."""
    level_of = dict(_FACTORS)
    return [factor.levels.index(level_of[factor.name](result)) for factor in factors]


def columns_of(cells: Sequence[CellFigures]) -> tuple[Column, ...]:
    """The columns in which some cell has an entry; those of factors if cells differ in them."""
    varying = {factor.name for factor in factors_of([each.result for each in cells])}
    columns = (
        *(_factor_column(name, level) for name, level in _FACTORS if name in varying),
        Column("energy predicted", lambda each: _figure(each.predicted_energy, "J")),
        Column("proven bound", _bound),
        Column("gap", _gap),
        Column("energy as run", lambda each: _figure(each.measured_energy, "J")),
        Column("energy, run over predicted", lambda each: _share(each.energy_difference)),
        Column("time predicted", lambda each: _figure(each.predicted_time, "s")),
        Column("time as run", lambda each: _figure(each.measured_time, "s")),
        Column("time, run over predicted", lambda each: _share(each.time_difference)),
        Column("RAM needed", _ram),
        Column("recomputed", lambda each: _count(each, "recomputations")),
        Column("paged in", lambda each: _count(each, "page_ins")),
        Column("replays", _replays),
    )
    return tuple(
        column for column in columns if any(column.entry_of(each) != NOTHING for each in cells)
    )


def _factor_column(name: str, level: Callable[[CellResult], str]) -> Column:
    if name == "RAM budget":
        return Column(name, _budget)
    if name == "batch":
        return Column(name, lambda each: Entry(level(each.result), each.result.cell.batch or 0))
    return Column(name, lambda each: Entry(level(each.result)), is_number=False)


def _budget(cell: CellFigures) -> Entry:
    word, solved = cell.result.cell.ram_budget, cell.result.solved
    if solved is None:
        return Entry(word)
    in_bytes = size(solved.ram_bytes)
    return Entry(f"{word} = {in_bytes}" if word.endswith("%") else in_bytes, solved.ram_bytes)


def _figure(figure: Figure | None, unit: str) -> Entry:
    if figure is None:
        return NOTHING
    return Entry(interval_words(figure.interval, unit), figure.interval.median, figure.source)


def _bound(cell: CellFigures) -> Entry:
    if cell.bound is None:
        return NOTHING
    least_j = cell.bound.interval.median
    return Entry(lower_bound(least_j, "J"), least_j, cell.bound.source)


def _share(share: float | None) -> Entry:
    return NOTHING if share is None else Entry(percent(share), share)


def _gap(cell: CellFigures) -> Entry:
    solved = cell.result.solved
    if solved is None or solved.gap is None:
        return NOTHING
    return Entry(f"{100 * solved.gap:.2f} %", solved.gap)


def _ram(cell: CellFigures) -> Entry:
    """Bytes of the arena, or the sum of bytes where there are no addresses."""
    solved = cell.result.solved
    needed = None if solved is None else solved.arena_bytes or solved.peak_bytes
    return NOTHING if needed is None else Entry(size(needed), needed)


def _count(cell: CellFigures, what: str) -> Entry:
    found = getattr(cell.result.solved, what, None)
    return NOTHING if found is None else Entry(str(found), found)


def _replays(cell: CellFigures) -> Entry:
    done, wanted = len(cell.result.repetitions), cell.result.wanted_repetitions
    return Entry(f"{done} of {wanted}", done) if wanted else NOTHING
