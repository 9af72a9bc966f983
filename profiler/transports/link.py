"""What a transport to a POSIX board needs of a connection: that it runs shell scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol, TypeAlias

Sink: TypeAlias = Callable[[bytes], object]


class ConnectionLostError(ConnectionError):
    """A network failure that may pass. ``started`` says whether the script may have begun."""

    def __init__(self, reason: str, *, started: bool = False) -> None:
        super().__init__(reason)
        self.started = started


class NoAnswerError(ConnectionLostError):
    """The script had not ended when its time was over, and was abandoned."""

    def __init__(self, time_limit_s: float) -> None:
        super().__init__(f"no answer within {time_limit_s:.3g} s", started=True)


class Link(Protocol):
    """One way to a shell. Everything else about a transport is the same for all of them."""

    @property
    def name(self) -> str:
        """How messages call the board."""
        ...

    @property
    def patience_s(self) -> float:
        """How long a lost connection is worth restoring; 0 where there is none to lose."""
        ...

    def open(self, *, timeout_s: float) -> None:
        """Connect, once; nothing happens if connected already.

        Raises :class:`ConnectionLostError` for what may pass and
        :class:`~devices.errors.BoardUnreachable` for what will not.
        """
        ...

    def execute(
        self, script: str, *, timeout_s: float, source: BinaryIO | None, out: Sink, err: Sink
    ) -> int:
        """Run a script with ``source`` (a real file) as its input, pass on its standard output and
        error as they come, and return its exit code.

        Raises :class:`ConnectionLostError`, which is :class:`NoAnswerError` after ``timeout_s``.
        Whatever is raised, also by a sink, the script's streams are closed then.
        """
        ...

    def close(self) -> None:
        """Disconnect. Never raises; may be called twice."""
        ...
