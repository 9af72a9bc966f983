"""QEMU's Machine Protocol (docs/interop/qmp-spec in QEMU's sources): one JSON document per line."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SOCKET = "monitor"


class MonitorError(ConnectionError):
    """The emulator has ended, does not answer, or refuses a command."""


def listen(directory: Path) -> socket.socket:
    """Listening socket by which the emulator of this directory is controlled."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(directory) as short:
        listener.bind(f"{short}/{_SOCKET}")
    listener.listen()
    return listener


class Monitor:
    """Connection to the emulator of a directory. It accepts one at a time; others wait.

    Everything raises :class:`MonitorError`.
    """

    def __init__(self, directory: Path, *, timeout_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        self._lines = self._socket.makefile("rb")
        try:
            with _short(directory) as short:
                self._socket.connect(f"{short}/{_SOCKET}")
            self._read()  # its greeting
            self.execute("qmp_capabilities")
        except OSError as error:
            self.close()
            raise MonitorError(f"cannot connect to the emulator: {error}") from error

    def execute(self, command: str, **arguments: str) -> Any:
        """Execute a command and return its result."""
        request = json.dumps({"execute": command, "arguments": arguments})
        try:
            self._socket.sendall(request.encode() + b"\n")
            answer = self._read()
            while "event" in answer:
                answer = self._read()
        except OSError as error:
            raise MonitorError(f"the emulator does not answer {command}: {error}") from error
        if "error" in answer:
            raise MonitorError(f"the emulator refuses {command}: {answer['error']['desc']}")
        return answer["return"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise MonitorError("it has ended")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """A shorter path of a directory, since a socket's path may have at most 107 bytes."""
    handle = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
