"""``Program``: a mixed-integer linear program as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from solver.time_limit import check_time

Sense: TypeAlias = Literal["<", "=", ">"]
# Columns with their coefficients.
Terms: TypeAlias = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Row:
    """A constraint: ``sum(coefficients * columns) sense right_side``."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    sense: Sense
    right_side: float


@dataclass
class Program:
    """A program: minimise the cost over the columns, subject to the rows.

    Columns and rows can be added but not removed. Adding one raises
    :class:`~solver.time_limit.OutOfTime` after the enforced time limit.
    """

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def column(
        self, *, cost: float = 0.0, lower: float = 0.0, upper: float = 1.0, integer: bool = True
    ) -> int:
        """Add a variable, binary by default, and return its index."""
        check_time()
        self.lower.append(lower)
        self.upper.append(upper)
        self.cost.append(cost)
        self.integer.append(integer)
        return len(self.cost) - 1

    def row(self, terms: Iterable[tuple[int, float]], sense: Sense, right_side: float) -> None:
        """Add a constraint. Terms of the same column are summed, and zeros dropped."""
        check_time()
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        kept = {column: value for column, value in merged.items() if value}
        self.rows.append(Row(tuple(kept), tuple(kept.values()), sense, right_side))

    def tighten(self, row: int, amount: float) -> None:
        """Add a copy of a constraint with its right side lowered by ``amount``."""
        old = self.rows[row]
        terms = zip(old.columns, old.coefficients, strict=True)
        self.row(terms, old.sense, old.right_side - amount)

    def objective(self, values: Sequence[float]) -> float:
        return math.fsum(c * v for c, v in zip(self.cost, values, strict=True) if c)

    def satisfied_by(self, values: Sequence[float], tolerance: float = 1e-6) -> bool:
        """Whether ``values`` satisfy all rows and the columns' limits."""
        limits = zip(self.lower, values, self.upper, strict=True)
        if any(not low - tolerance <= value <= high + tolerance for low, value, high in limits):
            return False
        for row in self.rows:
            terms = zip(row.coefficients, row.columns, strict=True)
            excess = math.fsum(v * values[c] for v, c in terms) - row.right_side
            if row.sense != ">" and excess > tolerance:
                return False
            if row.sense != "<" and excess < -tolerance:
                return False
        return True


def weighted_sum(terms: Terms, values: Sequence[float]) -> float:
    """Sum of ``terms`` at a solution."""
    return math.fsum(values[column] * coefficient for column, coefficient in terms)
