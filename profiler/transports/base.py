"""The one protocol by which the profiler reaches a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


@dataclass(frozen=True)
class CommandResult:
    """What a finished command left: its exit code and its whole output."""

    command: str
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class DetachedStatus:
    """``exit_code`` is None while the command still runs."""

    exit_code: int | None


class DetachedCommand(Protocol):
    """A command that runs on the board with no connection open, so that the board stays quiet.
    Its standard output and error go to files in the working directory."""

    def poll(self, *, timeout_s: float) -> DetachedStatus: ...

    def output(self, *, timeout_s: float) -> tuple[str, str]:
        """Standard output and error so far."""
        ...

    def stop(self, *, timeout_s: float) -> None:
        """End it and all its children. Harmless if it has ended already."""
        ...


class Transport(Protocol):
    """A board and a private directory on it.

    All methods raise :class:`~devices.errors.BoardUnreachable` when the board cannot be reached
    before the deadline, and :class:`~devices.errors.BoardCommandFailed` when it can but says no.
    Used as a context manager: entering connects, leaving closes, also after a failure.
    """

    @property
    def name(self) -> str:
        """How messages call the board: ``local``, ``pi@pi4:22``."""
        ...

    @property
    def directory(self) -> str:
        """Absolute path of the private working directory on the board (mode 0700). Commands run
        in it; relative paths given to put and get start from it."""
        ...

    def connect(self) -> None: ...

    def put(self, local: Path, remote: str, *, timeout_s: float, executable: bool = False) -> None:
        """Copy a file to the board, whole or not at all."""
        ...

    def get(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy a file from the board, whole or not at all."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run one command (no shell syntax: every word is quoted) within the time limit; when it
        is outlasted, the command and its children are ended, and it has failed. ``check`` raises
        unless it exits with 0."""
        ...

    def start(
        self, argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> DetachedCommand:
        """Run a command detached; ``timeout_s`` bounds the starting of it."""
        ...

    def close(self) -> None:
        """End what still runs detached, remove the private directory, disconnect. Never raises
        because the board is gone; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
