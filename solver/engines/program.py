"""``Program``: a mixed-integer linear program as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from solver.time_limit import check_time

Sense: TypeAlias = Literal["<", "=", ">"]
# Distance of a column from an integer, absolute, that the tolerances of engines explain, and
# difference of sums, relative to their largest term, that rounding explains.
_FRACTION, _ROUNDING = 1e-6, 1e-9
# Columns with their coefficients.
Terms: TypeAlias = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Row:
    """A constraint: ``sum(coefficients * columns) sense right_side``."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    sense: Sense
    right_side: float

    def holds(self, values: Sequence[float]) -> bool:
        """Whether the values of all columns satisfy the row, up to the rounding of its terms."""
        terms = [v * values[c] for c, v in zip(self.columns, self.coefficients, strict=True)]
        slack = _ROUNDING * max(map(abs, (*terms, self.right_side)))
        excess = math.fsum((*terms, -self.right_side))
        return (self.sense == ">" or excess <= slack) and (self.sense == "<" or excess >= -slack)


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

    def satisfied_by(self, values: Sequence[float], *, relaxed: bool = False) -> bool:
        """Whether ``values`` are a solution, beyond doubt; without integrality if ``relaxed``.

        What engines accept as a solution may break a row by an absolute tolerance, which is much in
        a row of small coefficients. Here integer columns count as the integers that they mean, and
        a row holds up to the rounding of its largest term. A solution that an engine found may
        therefore not satisfy the program, although one close to it does.
        """
        exact = list(values)
        for column, (low, value, high) in enumerate(
            zip(self.lower, values, self.upper, strict=True)
        ):
            if self.integer[column] and not relaxed:
                exact[column] = float(round(value))
                if abs(value - exact[column]) > _FRACTION:
                    return False
            slack = _ROUNDING * max(1.0, abs(value))
            if not low - slack <= exact[column] <= high + slack:
                return False
        return all(row.holds(exact) for row in self.rows)


def weighted_sum(terms: Terms, values: Sequence[float]) -> float:
    """Sum of ``terms`` at a solution."""
    return math.fsum(values[column] * coefficient for column, coefficient in terms)
