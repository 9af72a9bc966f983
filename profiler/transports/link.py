"""Protocol of a connection to a POSIX board: it runs shell scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol, TypeAlias

Sink: TypeAlias = Callable[[bytes], object]


class ConnectionLostError(ConnectionError):
    """A network failure that may be temporary. ``started`` says whether the script may have
    begun."""

    def __init__(self, reason: str, *, started: bool = False) -> None:
        super().__init__(reason)
        self.started = started


class NoAnswerError(ConnectionLostError):
    """The script did not end within its time limit and was abandoned."""

    def __init__(self, time_limit_s: float) -> None:
        super().__init__(f"no answer within {time_limit_s:.3g} s", started=True)


class Link(Protocol):
    """One way to a shell. Everything else about a transport is the same for all links."""

    @property
    def name(self) -> str:
        """Name of the board in messages."""
        ...

    @property
    def patience_s(self) -> float:
        """How long to try to restore a lost connection; 0 for a link that cannot be lost."""
        ...

    def open(self, *, timeout_s: float) -> None:
        """Connect; does nothing if connected already.

        Raises :class:`ConnectionLostError` for temporary failures and
        :class:`~devices.errors.BoardUnreachable` for permanent ones.
        """
        ...

    def execute(
        self, script: str, *, timeout_s: float, source: BinaryIO | None, out: Sink, err: Sink
    ) -> int:
        """Run a script and return its exit code.

        ``source`` (a real file) is its standard input; its standard output and error are passed on
        as they come. Raises :class:`ConnectionLostError`, after ``timeout_s`` as
        :class:`NoAnswerError`. Whatever is raised, also by a sink, the script's streams are closed
        then.
        """
        ...

    def close(self) -> None:
        """Disconnect. Never raises; may be called twice."""
        ...
