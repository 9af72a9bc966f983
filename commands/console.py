"""Where a command writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Console:
    """With ``json_output`` standard output carries one JSON document and nothing else."""

    json_output: bool

    def say(self, text: str) -> None:
        """For the person who waits."""
        print(text, file=sys.stderr, flush=True)

    def result(self, text: str) -> None:
        """For the person who reads; nothing where a program reads."""
        if not self.json_output:
            print(text, flush=True)

    def document(self, data: Any) -> None:
        """For the program that reads; nothing where a person does."""
        if self.json_output:
            json.dump(data, sys.stdout, indent=1)
            sys.stdout.write("\n")
            sys.stdout.flush()

    def table(self, rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> None:
        """Rows in columns, the first row being the head; ``right`` columns are right-aligned."""
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        aligned = set(right)
        for row in rows:
            cells = (
                cell.rjust(width) if column in aligned else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            self.result("  ".join(cells).rstrip())


def time_words(source: str | None, what: str = "time") -> str:
    """A heading for seconds. They are measured even where joules are estimated, but not on an
    emulated board, nor where a paper's rates are all that there is."""
    return f"{what} ({source})" if source in {"emulated", "published"} else what


WITHOUT_ADDRESSES = (
    "baselines count RAM as a sum of bytes, as they are published (DTR and Coop choose addresses);"
    " every schedule of this solver has addresses in one arena"
)


def si(value: float, unit: str, digits: int = 4) -> str:
    """``0.000546 J`` as ``546 µJ``."""
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
    """``1226880`` as ``1.17 MiB``; exact bytes below one KiB."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes:.0f} B"
