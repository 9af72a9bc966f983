"""What is being done now, for the person who waits."""

from __future__ import annotations

from types import TracebackType

from commands.console import Console

_MANY = "compiling "
"""What begins so is one of dozens, told only where the next one replaces it."""


class Activity:
    """One line that changes on a terminal; lines one below the other elsewhere."""

    def __init__(self, console: Console) -> None:
        from rich.console import Console as RichConsole
        from rich.status import Status

        self._rich = RichConsole(stderr=True)
        self._status = Status("", console=self._rich)
        self._console = console

    def __enter__(self) -> Activity:
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()

    def __call__(self, what: str) -> None:
        self._status.update(what)
        if not self._rich.is_terminal and not what.startswith(_MANY):
            self._console.say(what)
