"""Budgets and deadlines as people write them."""

from __future__ import annotations

import re

from devices.errors import InputError

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)")
_PERCENT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*%")
_MULTIPLE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*x")


class QuantityError(InputError):
    """A size or a deadline that cannot be read; the message says what is allowed."""


def parse_ram_bytes(text: str, peak_bytes: int) -> int:
    """``512KiB``, ``1.2MB``, ``40000``, or ``40%`` of ``peak_bytes``.

    Raises :class:`QuantityError`.
    """
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return int(peak_bytes * float(percent["number"]) / 100)
    size = _SIZE.fullmatch(text.strip())
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if not size or size["unit"].lower() not in units:
        raise QuantityError(
            f"{text!r} is not a RAM budget: give bytes (40000), a size (512KiB, 1.2MB)"
            " or a share of the unconstrained peak (40%)"
        )
    return int(float(size["number"]) * units[size["unit"].lower()])


def parse_deadline_s(text: str, step_s: float) -> float:
    """``2.5`` seconds, or ``1.5x`` of ``step_s``. Raises :class:`QuantityError`."""
    multiple = _MULTIPLE.fullmatch(text.strip())
    if multiple:
        return float(multiple["number"]) * step_s
    try:
        deadline_s = float(text)
    except ValueError:
        deadline_s = -1.0
    if not 0 < deadline_s < float("inf"):
        raise QuantityError(
            f"{text!r} is not a deadline: give seconds (2.5) or a multiple of one step with nothing"
            " recomputed or paged (1.5x)"
        )
    return deadline_s
