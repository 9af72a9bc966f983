"""Quantities and failures of the operating system, formatted for people."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from pathlib import Path

_MOST_IN_A_WORD = 400

_PREFIXES = (
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)

NO_SOURCE = "source not stated"
"""In place of the energy source of joules that state none."""


def si(value: float, unit: str, digits: int = 4) -> str:
    """Format a quantity with an SI prefix: ``0.000546 J`` becomes ``546 µJ``."""
    return _with_prefix(value, unit, digits, ROUND_HALF_EVEN)


def lower_bound(value: float, unit: str, digits: int = 4) -> str:
    """Format a proven lower bound as :func:`si` does, but rounded down, so that it still holds."""
    return _with_prefix(value, unit, digits, ROUND_FLOOR)


def _with_prefix(value: float, unit: str, digits: int, rounding: str) -> str:
    rounded = _rounded(value, digits, rounding)
    for factor, prefix in _PREFIXES:
        if abs(rounded) >= factor:
            # Three digits before the point are no reason for an exponent.
            return f"{rounded / factor:.{max(digits, 3)}g} {prefix}{unit}"
    return f"{rounded:.{digits}g} {unit}"


def _rounded(value: float, digits: int, rounding: str) -> float:
    # Beyond 12 digits are errors of floating point, which are not worth a step of the last digit.
    return float(Context(prec=digits, rounding=rounding).create_decimal(f"{value:.12g}"))


def size(size_bytes: float) -> str:
    """Format bytes: ``1226880`` becomes ``1.17 MiB``; below one KiB the number is exact."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes:.0f} B"


def smallest_ram_words(enough_bytes: int, bound_bytes: int | None) -> str:
    """The smallest RAM budget: exactly, or between what was found and what is proven."""
    found = f"{enough_bytes} bytes ({size(enough_bytes)})"
    if enough_bytes == bound_bytes:
        return found
    at_most = f"at most {found}, for which a schedule was found"
    return at_most if bound_bytes is None else f"{at_most}; at least {bound_bytes} bytes are needed"


def above_least(gap: float) -> str:
    """Format how far a figure may be above the least possible one, rounded up.

    Args:
        gap: The share of the figure that is above a proven bound, from 0 to 1.
    """
    if gap >= 1:
        return "without a proof of how far above the least"
    if gap >= 0.5:
        return f"at most {_rounded(1 / (1 - gap), 3, ROUND_CEILING):.3g} times the least"
    return f"at most {_rounded(100 * gap / (1 - gap), 3, ROUND_CEILING):.3g} % above the least"


def file_failure(error: OSError) -> str:
    """Format what is wrong with which file; a file where a directory is needed is named itself."""
    if error.filename is None:
        return error.strerror or str(error)
    path = Path(str(error.filename))
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next((p for p in (path, *path.parents) if p.exists() and not p.is_dir()), None)
        if file is not None:
            return f"{file}: this is a file, but a directory is needed here"
    if isinstance(error, IsADirectoryError):
        return f"{path}: this is a directory, but a file is needed here"
    return f"{path}: {error.strerror or error}"


def time_words(source: str | None, what: str = "time") -> str:
    """Head a column of seconds with ``what``, and with the source where they are not measured.

    Seconds are measured even where joules are estimated, except on an emulated board and in
    published profiles.
    """
    return f"{what} ({source})" if source in {"emulated", "published"} else what


def printable(text: str) -> str:
    """The text on one line: line breaks and control characters are escaped."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def with_short_words(text: str) -> str:
    """Shorten words of hundreds of characters; they end in dots."""
    return re.sub(rf"(\S{{{_MOST_IN_A_WORD}}})\S{{4,}}", r"\1...", text)
