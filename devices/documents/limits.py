"""Limits on documents, which keep the time and memory of reading bounded for any input.

Files of this project stay far below them.
"""

from __future__ import annotations

from decimal import Decimal

from devices.errors import InputError

MOST_BYTES = 64 << 20
"""Size of a file."""

MOST_VALUES = 1_000_000
"""Scalars, lists and mappings of a document, those that aliases repeat included."""

MOST_LEVELS = 64
"""Lists and mappings inside each other."""

_MOST_DIGITS = 400


class LimitError(InputError):
    """A document is larger or deeper than any of this project."""


def whole_number(text: str) -> int:
    """Parse a whole number: decimal, or hexadecimal or octal after ``0x`` or ``0o``."""
    _check_digits(text)
    return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)


def number(text: str) -> int | float:
    """Parse a decimal number; an exact whole number (``1e9``, ``4.0``) becomes an int."""
    _check_digits(text)
    value = float(text)
    if not value.is_integer():  # infinity, too, whose exponent may be none that Decimal has
        return value
    return int(value) if abs(value) < 2**53 or Decimal(text) == value else value


def check_values(count: int) -> None:
    """Raise :class:`LimitError` for more values than a document may have."""
    if count > MOST_VALUES:
        raise LimitError(f"more than {MOST_VALUES:,} values, which no file of this project has")


def check_levels(levels: int) -> None:
    """Raise :class:`LimitError` for more levels than a document may have."""
    if levels > MOST_LEVELS:
        raise LimitError(f"nested too deeply: more than {MOST_LEVELS} levels")


def _check_digits(text: str) -> None:
    if len(text) > _MOST_DIGITS:
        raise LimitError(
            f"found the number {text[:10]}… of {len(text)} characters; allowed: {_MOST_DIGITS}"
        )
