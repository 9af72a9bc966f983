"""Results of the benchmark and their tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pages import Table

_SUMMARY_HEAD = (
    "board",
    "operations",
    "deviation, median",
    "deviation, worst",
    "second run, median",
    "second run, worst",
)
_HEAD = ("operation", "instructions", "counted", "measured", "deviation", "second run")


@dataclass(frozen=True)
class OperationResult:
    """One execution of an operation: its instructions, the time that they take, and the medians
    that the profiler measured in two runs."""

    operation: str
    instructions: float
    counted_s: float
    first_s: float
    second_s: float

    @property
    def deviation(self) -> float:
        return self.first_s / self.counted_s - 1.0

    @property
    def repetition(self) -> float:
        return self.second_s / self.first_s - 1.0

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.operation,
            f"{self.instructions:,.0f}",
            f"{self.counted_s * 1e3:.4f} ms",
            f"{self.first_s * 1e3:.4f} ms",
            f"{self.deviation:+.4%}",
            f"{self.repetition:+.4%}",
        )


@dataclass(frozen=True)
class BoardResult:
    """``operations`` are those that fit, of ``every`` many of the model."""

    board: str
    model: str
    every: int
    operations: Sequence[OperationResult]

    @property
    def sentence(self) -> str:
        return (
            f"{self.board}: {len(self.operations)} of the {self.every} distinct operations of"
            f" {self.model} fit into the board."
        )

    @property
    def cells(self) -> tuple[str, ...]:
        deviations = [abs(operation.deviation) for operation in self.operations]
        repetitions = [abs(operation.repetition) for operation in self.operations]
        return (
            self.board,
            f"{len(self.operations)} of {self.model}",
            f"{statistics.median(deviations):.4%}",
            f"{max(deviations):.4%}",
            f"{statistics.median(repetitions):.4%}",
            f"{max(repetitions):.4%}",
        )


def summary_table(results: Sequence[BoardResult]) -> Table:
    text = "Sizes of the deviations, over all operations of a board."
    return Table(_SUMMARY_HEAD, [result.cells for result in results], "Summary", text)


def board_table(result: BoardResult) -> Table:
    rows = [operation.cells for operation in result.operations]
    return Table(_HEAD, rows, result.board, result.sentence)
