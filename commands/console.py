"""Console of a command: results go to standard output, everything else to standard error.

No other module prints or animates. A reader that closes its pipe, as ``head`` does, ends neither
the command nor what it measures, and does not change its exit code.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from devices.documents.readable import printable

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

# An activity that takes longer is named where there is no terminal.
_SOON_S = 0.5


@dataclass(frozen=True)
class Console:
    """Output of a command; with ``json_output``, standard output carries one JSON document only."""

    json_output: bool = False

    def say(self, text: str) -> None:
        """Print a message for a person on standard error."""
        _print(text, sys.stderr)

    def result(self, text: str) -> None:
        """Print a result for a person on standard output; nothing with ``json_output``."""
        if not self.json_output:
            _print(text, sys.stdout)

    def document(self, data: Any) -> None:
        """Print the result as JSON on standard output; nothing without ``json_output``."""
        if self.json_output:
            _print(json.dumps(data, indent=1), sys.stdout)

    def table(self, rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> None:
        """Print rows in aligned columns, the first row as the head.

        ``right`` holds the indices of the right-aligned columns.
        """
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        aligned = set(right)
        for row in rows:
            cells = (
                cell.rjust(width) if column in aligned else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            self.result("  ".join(cells).rstrip())

    def status(self, text: str = "", *, lines_every_s: float = 0.0) -> Status:
        """Create a line that shows the current activity, at first ``text``."""
        return Status(self, text, lines_every_s)

    def progress(self, activity: str, things: int | None = None) -> Progress:
        """Create a progress bar.

        It counts the finished ones of ``things``, or shows a share from 0 to 1 without them.
        """
        return Progress(self, activity, things)


def _lines(text: str) -> str:
    """The text without what would change a terminal: names in it may be from files of others."""
    return "\n".join(map(printable, text.split("\n")))


def _print(text: str, stream: TextIO) -> None:
    try:
        print(_lines(text), file=stream, flush=True)
    except BrokenPipeError:
        _ignore_from_now_on(stream)


def _ignore_from_now_on(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _rich_console() -> RichConsole:
    """A console of rich on standard error, whose reader may go, too."""
    from rich.console import Console as RichConsole

    class Lasting(RichConsole):
        def on_broken_pipe(self) -> None:
            _ignore_from_now_on(sys.stderr)

    return Lasting(stderr=True)


class Status:
    """A line that shows the current activity; created by :meth:`Console.status`.

    A terminal shows one line that changes. Other outputs get one line below the other, at most one
    in ``lines_every_s`` seconds; the first ``text`` only if the activity takes a while. Use it as a
    context manager.
    """

    def __init__(self, console: Console, text: str, lines_every_s: float) -> None:
        from rich.status import Status as RichStatus

        self._console = console
        self._first = threading.Timer(_SOON_S, console.say, (text,))
        self._first.daemon = True
        self._rich = _rich_console()
        self._says_first = bool(text) and not self._rich.is_terminal
        self._status = RichStatus(_lines(text), console=self._rich)
        self._lines_every_s = lines_every_s
        self._next_line_at = 0.0
        self._phase = ""

    def __enter__(self) -> Self:
        self._status.start()
        if self._says_first:
            self._first.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._first.cancel()
        self._status.stop()

    def show(self, text: str, *, phase: str = "", passing: bool = False) -> None:
        """Show ``text``; a ``passing`` one only on a terminal, where the next one replaces it.

        The first text of a ``phase`` is never left out.
        """
        self._first.cancel()
        self._status.update(_lines(text))
        is_new, self._phase = phase != self._phase, phase
        too_soon = time.monotonic() < self._next_line_at and not is_new
        if self._rich.is_terminal or passing or too_soon:
            return
        self._next_line_at = time.monotonic() + self._lines_every_s
        self._console.say(text)


class Progress:
    """A progress bar on a terminal, a line for each activity elsewhere.

    Created by :meth:`Console.progress`; use it as a context manager.
    """

    def __init__(self, console: Console, activity: str, things: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        words, elapsed = TextColumn("{task.description}"), TimeElapsedColumn()
        share = TextColumn("{task.percentage:3.0f} %")
        columns = (
            (words, BarColumn(), share, elapsed, TextColumn("{task.fields[left]}"))
            if things is None
            else (MofNCompleteColumn(), BarColumn(), elapsed, words)
        )
        self._progress = RichProgress(*columns, console=_rich_console(), transient=True)
        self._task = self._progress.add_task(
            _lines(activity), total=1.0 if things is None else things, left=""
        )
        self._console = console
        self._things = things
        self._shown = ("", 0.0)

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

    def show(
        self, activity: str, done: float, left: str = "", *, things: int | None = None
    ) -> None:
        """Show the activity and how far it is.

        ``done`` is a number of things, or a share from 0 to 1; ``left`` is the remaining time as
        text; ``things`` is their number, if it has changed.
        """
        if things is not None:
            self._things = things
            self._progress.update(self._task, total=things)
        self._progress.update(self._task, description=_lines(activity), completed=done, left=left)
        # A share changes too often for a line at each change.
        shown = (activity, 0.0 if self._things is None else done)
        if self._progress.console.is_terminal or shown == self._shown:
            return
        self._shown = shown
        amount = f"{100 * done:3.0f} %" if self._things is None else f"{done} of {self._things}"
        self._console.say(f"{amount}  {activity}  {left}".rstrip())
