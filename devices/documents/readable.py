"""Quantities formatted for people."""

from __future__ import annotations


def si(value: float, unit: str, digits: int = 4) -> str:
    """Format a quantity with an SI prefix: ``0.000546 J`` becomes ``546 µJ``."""
    if value == 0:
        return f"0 {unit}"
    for factor, prefix in (
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ):
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def size(size_bytes: float) -> str:
    """Format bytes: ``1226880`` becomes ``1.17 MiB``; below one KiB the number is exact."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes:.0f} B"
