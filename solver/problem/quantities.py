"""RAM budgets, slices and deadlines as text: parsing ``512KiB``, ``40%``, ``2.5`` and ``1.5x``."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from devices.documents.explain import shown
from devices.errors import InputError
from devices.quantities import LEAST, MOST, MOST_BYTES, Slices

_UNITS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)")
_PERCENT = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*%")
_MULTIPLE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*x")


class QuantityError(InputError):
    """A text is not a size or a deadline; the message says what is allowed."""


def parse_ram_bytes(text: str, peak_bytes: int) -> int:
    """Parse a RAM budget: ``512KiB``, ``1.2MB``, ``40000``, or ``40%`` of ``peak_bytes``.

    Args:
        text: The budget as written by a user.
        peak_bytes: Peak of a step that recomputes and pages nothing, the base of percentages.

    Returns:
        The budget in bytes.

    Raises:
        QuantityError: ``text`` is none of these, or more than ``MOST_BYTES``.
    """
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return _whole_bytes(peak_bytes * _exactly(percent["number"]) / 100, text)
    found_bytes = parse_bytes(text)
    if found_bytes is None:
        raise QuantityError(
            f"{shown(text)} is not a RAM budget: give bytes (40000), a size (512KiB, 1.2MB)"
            " or a share of the unconstrained peak (40%)"
        )
    return _whole_bytes(found_bytes, text)


def parse_slices(text: str) -> Slices:
    """Parse slices of weights, and of activations: ``64KiB``, ``40000``, ``64KiB:16KiB``.

    Raises:
        QuantityError: ``text`` is none, or a size is less than a byte.
    """
    sizes = [parse_bytes(each) for each in text.split(":")]
    if len(sizes) > 2 or any(size is None or not 1 <= size <= MOST_BYTES for size in sizes):
        raise QuantityError(
            f"{shown(text)} is not the size of a slice: give bytes (40000) or a size (64KiB) of"
            " weights, or two (64KiB:16KiB), the second of activations"
        )
    return Slices(*(int(size or 0) for size in sizes))


def parse_bytes(text: str) -> Fraction | None:
    """A number with a unit, in bytes; None if ``text`` is anything else."""
    size = _SIZE.fullmatch(text.strip())
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if not size or size["unit"].lower() not in units:
        return None
    return _exactly(size["number"]) * units[size["unit"].lower()]


def _exactly(number: str) -> Fraction:
    """The number as written: 64.1 kB are 64,100 bytes, and a binary product is less."""
    return Fraction(Decimal(number))  # Decimal takes any number of digits


def _whole_bytes(size_bytes: Fraction, text: str) -> int:
    if size_bytes > MOST_BYTES:
        raise QuantityError(f"{shown(text)} is too large a RAM budget: at most 256 TiB are allowed")
    return int(size_bytes)


def parse_deadline_s(text: str, step_s: float) -> float:
    """Parse a deadline: ``2.5`` (seconds), or ``1.5x`` (a multiple of ``step_s``).

    Args:
        text: The deadline as written by a user.
        step_s: Time of a step that recomputes and pages nothing, the base of multiples.

    Returns:
        The deadline in seconds.

    Raises:
        QuantityError: ``text`` is neither, or not a plausible time.
    """
    multiple = _MULTIPLE.fullmatch(text.strip())
    try:
        deadline_s = float(multiple["number"]) * step_s if multiple else float(text)
    except ValueError:
        deadline_s = -1.0
    if deadline_s > 0 and not LEAST <= deadline_s <= MOST:
        raise QuantityError(
            f"{shown(text)} is not a plausible deadline: allowed are {LEAST:g} to {MOST:g} seconds"
        )
    if not deadline_s > 0 and not (multiple and step_s == 0):
        raise QuantityError(
            f"{shown(text)} is not a deadline: give seconds (2.5) or a multiple of one step"
            " with nothing recomputed or paged (1.5x)"
        )
    return deadline_s
