"""Values in which a document differs from what follows from other documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

ROUNDING = 1e-6
"""Relative difference up to which figures are equal; gaps, which are relative, may differ by it."""


@dataclass(frozen=True)
class Unlike:
    """A value at ``path`` of a document: as it is stated, and as it should be."""

    path: str
    stated: str
    found: str


def unlike(stated: object, found: object, path: str = "") -> Iterator[Unlike]:
    """Find the values in which two documents differ, apart from rounding.

    Args:
        stated: A document of dictionaries, lists and scalars.
        found: The same document, made again.
        path: Path of the two.
    """
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in {**stated, **found}:
            inner = f"{path}.{key}" if path else key
            yield from unlike(stated.get(key), found.get(key), inner)
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for index, (value, other) in enumerate(zip(stated, found, strict=True)):
            yield from unlike(value, other, f"{path}[{index}]")
    elif not _same(stated, found):
        yield Unlike(path, _shown(stated), _shown(found))


def _same(stated: object, found: object) -> bool:
    if isinstance(stated, float) and isinstance(found, float):
        return math.isclose(stated, found, rel_tol=ROUNDING, abs_tol=ROUNDING * ROUNDING)
    return stated == found


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case float():
            return f"{value:.7g}"
        case list():
            return f"{len(value)} entries"
        case dict():
            return "other keys"
    return str(value)
