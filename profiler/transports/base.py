"""Protocol by which the profiler reaches a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from devices.claims.owner import Owner


@dataclass(frozen=True)
class CommandResult:
    """Exit code and whole output of a finished command."""

    command: str
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class DetachedStatus:
    """State of a detached command. ``exit_code`` is None while it runs."""

    exit_code: int | None


class DetachedCommand(Protocol):
    """A command that runs on the board with no connection open, so that the board stays quiet. Its
    standard output and error go to files in the working directory."""

    def poll(self, *, timeout_s: float) -> DetachedStatus: ...

    def output(self, *, timeout_s: float) -> tuple[str, str]:
        """Standard output and error so far."""
        ...

    def stop(self, *, timeout_s: float) -> None:
        """End the command and all its children. Does nothing if it has ended already."""
        ...


class Transport(Protocol):
    """A board and a private directory on it.

    All methods raise :class:`~devices.errors.BoardUnreachable` when the board cannot be reached
    before the deadline, and :class:`~devices.errors.BoardCommandFailed` when it is reached but the
    operation fails. As a context manager, entering connects and leaving closes, also after a
    failure.
    """

    @property
    def name(self) -> str:
        """Name of the board in messages: ``local``, ``pi@pi4:22``."""
        ...

    @property
    def directory(self) -> str:
        """Absolute path of the private working directory on the board (mode 0700). Commands run in
        it; relative paths of put and get start from it."""
        ...

    def connect(self) -> None: ...

    def claim(self, owner: Owner) -> None:
        """Use the board alone from now on, while the transport is connected.

        This keeps out processes of other users and of other computers that claim it too. A claim
        expires when its owner has been silent for some minutes, unless what it has started still
        runs; calls after that do not renew it, and the board has to be claimed again. Repeating a
        claim that has not expired changes nothing. Raises
        :class:`~devices.errors.BoardInUse` if another process has claimed the board.
        """
        ...

    def put(self, local: Path, remote: str, *, timeout_s: float, executable: bool = False) -> None:
        """Copy a file to the board, as a whole or not at all."""
        ...

    def get(self, remote: str, local: Path, *, timeout_s: float) -> None:
        """Copy a file from the board, as a whole or not at all."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run one command within a time limit. Every word is quoted; there is no shell syntax.

        At the limit, the command and its children are ended and the command has failed. With
        ``check``, an exit code other than 0 raises.
        """
        ...

    def start(
        self, argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> DetachedCommand:
        """Start a detached command. ``timeout_s`` bounds only the start."""
        ...

    def close(self) -> None:
        """End detached commands, remove the private directory and disconnect. Does not raise if the
        board is lost; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
