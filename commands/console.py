"""The console of a command: results go to standard output, everything else to standard error.

The only module that prints or animates.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Console:
    """With ``json_output`` standard output carries one JSON document and nothing else."""

    json_output: bool = False

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

    def status(self, text: str = "", *, lines_every_s: float = 0.0) -> Status:
        """A changing line that says what is being done; it begins with ``text``."""
        return Status(self, text, lines_every_s)

    def progress(self, activity: str, things: int | None = None) -> Progress:
        """How far ``activity`` and those that follow it are: how many of so many ``things`` are
        done, or without them which share of all."""
        return Progress(self, activity, things)


class Status:
    """One line that changes on a terminal; lines one below the other elsewhere, at most one in
    ``lines_every_s`` seconds. To be made by :meth:`Console.status`, and used as a context manager.
    """

    def __init__(self, console: Console, text: str, lines_every_s: float) -> None:
        from rich.console import Console as RichConsole
        from rich.status import Status as RichStatus

        self._console = console
        self._rich = RichConsole(stderr=True)
        self._status = RichStatus(text, console=self._rich)
        self._lines_every_s = lines_every_s
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()

    def show(self, text: str, *, passing: bool = False) -> None:
        """``passing``: shown only where the next one replaces it."""
        self._status.update(text)
        if self._rich.is_terminal or passing or time.monotonic() < self._next_line_at:
            return
        self._next_line_at = time.monotonic() + self._lines_every_s
        self._console.say(text)


class Progress:
    """A bar on a terminal, a line for each activity elsewhere. To be made by
    :meth:`Console.progress`, and used as a context manager."""

    def __init__(self, console: Console, activity: str, things: int | None) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        words, elapsed = TextColumn("{task.description}"), TimeElapsedColumn()
        share = TextColumn("{task.percentage:3.0f} %")
        columns = (
            (words, BarColumn(), share, elapsed, TextColumn("{task.fields[left]}"))
            if things is None
            else (MofNCompleteColumn(), BarColumn(), elapsed, words)
        )
        self._progress = RichProgress(*columns, console=RichConsole(stderr=True), transient=True)
        self._task = self._progress.add_task(
            activity, total=1.0 if things is None else things, left=""
        )
        self._console = console
        self._things = things
        self._said = ("", 0.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, activity: str, done: float, left: str = "") -> None:
        """``done``: of the things, or the share. ``left`` says how long the rest takes."""
        self._progress.update(self._task, description=activity, completed=done, left=left)
        # Of a share each change would be a line.
        said = (activity, 0.0 if self._things is None else done)
        if self._progress.console.is_terminal or said == self._said:
            return
        self._said = said
        amount = f"{100 * done:3.0f} %" if self._things is None else f"{done} of {self._things}"
        self._console.say(f"{amount}  {activity}  {left}".rstrip())
