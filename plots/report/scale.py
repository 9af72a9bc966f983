"""Axes of pictures in the page: round tick values, and positions between two ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plots.style import binary_unit

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, in a unit of ``divisor``, drawn from ``start`` to ``end``.

    ``ticks`` are values with their labels.
    """

    low: float
    high: float
    start: float
    end: float
    divisor: float
    unit: str

    def at(self, value: float) -> float:
        """Position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round values within the axis, with their labels."""
        step = _round_step((self.high - self.low) / self.divisor, 5)
        first = math.ceil(self.low / self.divisor / step - 1e-9)
        last = math.floor(self.high / self.divisor / step + 1e-9)
        places = max(0, -math.floor(math.log10(step) + 1e-9))
        if not math.isclose(step, round(step, places)):
            places += 1
        return [
            (number * step * self.divisor, f"{number * step:.{places}f}")
            for number in range(first, last + 1)
        ]


def byte_axis(values: list[float], start: float, end: float) -> Axis:
    """Axis of sizes in bytes."""
    divisor, unit = binary_unit(max(values))
    return Axis(*_widened(values), start, end, divisor, unit)


def quantity_axis(values: list[float], unit: str, start: float, end: float) -> Axis:
    """Axis of a quantity with an SI prefix."""
    largest = max(map(abs, values))
    divisor, prefix = next(
        ((factor, prefix) for factor, prefix in _PREFIXES if largest >= factor), _PREFIXES[-1]
    )
    return Axis(*_widened(values), start, end, divisor, prefix + unit)


def plain_axis(values: list[float], unit: str, start: float, end: float) -> Axis:
    """Axis of a quantity in its own unit."""
    return Axis(*_widened(values), start, end, 1.0, unit)


def _widened(values: list[float]) -> tuple[float, float]:
    """Ends around all values, with some room; never below zero unless a value is."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return (low - room if low < 0 else max(0.0, low - room)), high + room


def _round_step(span: float, wanted: int) -> float:
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
