"""The two sides of a comparison: a campaign each, or one level of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from campaigns.keeping.directory import campaign_directory
from campaigns.keeping.results import CampaignResults, CellResult, read_campaign
from devices.documents.explain import choices
from devices.errors import InputError
from devices.results import Results

Factor: TypeAlias = Literal["board", "condition", "network", "ram_budget", "deadline", "method"]
_FACTORS: tuple[Factor, ...] = (
    *("condition", "method", "board", "network", "ram_budget", "deadline"),
)


@dataclass(frozen=True)
class Side:
    """The cells of a campaign, or those of one ``level`` of a ``factor``.

    ``words`` are those of the user that name it.
    """

    words: str
    results: CampaignResults
    factor: Factor | None = None
    level: str | None = None

    @property
    def campaign(self) -> str:
        """The words that name the campaign, without the level."""
        return self.words if self.level is None else self.words.removesuffix(f":{self.level}")

    @cached_property
    def cells(self) -> tuple[CellResult, ...]:
        """The cells of the side."""
        return tuple(
            result
            for result in self.results.cells
            if self.factor is None or getattr(result.cell, self.factor) == self.level
        )

    def by_levels(self, factor: Factor | None) -> Mapping[tuple[object, ...], CellResult]:
        """The cells by all their levels but that of ``factor``."""
        return {_levels_but(result, factor): result for result in self.cells}


def read_side(words: str, results: Results) -> Side:
    """Read one side of a comparison.

    Args:
        words: Name or directory of a campaign, or ``NAME:LEVEL`` for the cells of one level, such
            as a condition or a method.
        results: Where campaigns are looked for by name.

    Raises:
        InputError: There is no such campaign or level.
    """
    whole = campaign_directory(words, results)
    if whole.is_dir():
        return Side(words, read_campaign(whole))
    name, _, level = words.rpartition(":")
    if not name:
        return Side(words, read_campaign(whole))  # which says what is wrong
    read = read_campaign(campaign_directory(name, results))
    known: dict[str, Factor] = {}
    for factor in _FACTORS:
        for result in read.cells:
            known.setdefault(getattr(result.cell, factor), factor)
    if level not in known:
        raise InputError(f"campaign {name} has no level {level!r}; {choices(level, list(known))}")
    return Side(words, read, known[level], level)


def common_factor(first: Side, second: Side) -> Factor | None:
    """The factor whose levels the sides state; None if they are whole campaigns.

    Raises:
        InputError: They state levels of different factors, or only one of them states a level and
            the other's campaign has several.
    """
    stated = {side.factor for side in (first, second) if side.factor is not None}
    if len(stated) > 1:
        raise InputError(
            f"{first.words} is a {first.factor} and {second.words} a {second.factor}: they cannot"
            " be compared; name two levels of the same factor"
        )
    factor = next(iter(stated), None)
    for side in (first, second):
        levels = {getattr(result.cell, factor) for result in side.cells} if factor else set()
        if len(levels) > 1:
            raise InputError(
                f"{side.words} has several levels of {factor}: {', '.join(sorted(levels))}; name"
                f" one of them, such as {side.words}:{min(levels)}"
            )
    return factor


def _levels_but(result: CellResult, factor: Factor | None) -> tuple[object, ...]:
    cell = result.cell
    return tuple(
        (name, value) for name, value in cell.model_dump(exclude={"hash"}).items() if name != factor
    )
