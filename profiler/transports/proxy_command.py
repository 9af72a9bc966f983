"""``ProxyCommand``: a program that passes data to and from a host instead of a direct
connection."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from devices.program import ended_in_any_case

_END_LIMIT_S = 2.0


@dataclass(frozen=True)
class ProxyCommand:
    """A running command. ``socket`` is this program's end of the connection."""

    socket: socket.socket
    standard_error: BinaryIO

    @property
    def last_words(self) -> str:
        """Last line that the command printed on standard error."""
        self.standard_error.seek(0)
        lines = self.standard_error.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@contextlib.contextmanager
def running_proxy(command: str) -> Iterator[ProxyCommand]:
    """Run a shell command on one end of a pair of sockets; end it and its children afterwards.

    paramiko's own implementation does not notice that the command has ended and waits for it with a
    busy processor. Raises :class:`OSError` if there is no shell to run it.
    """
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as standard_error:

        def start() -> subprocess.Popen[bytes]:
            with theirs:
                return subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command}"],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=standard_error,
                    start_new_session=True,
                )

        with ended_in_any_case(start, _end):
            yield ProxyCommand(ours, standard_error)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGHUP, signal.SIGKILL):  # ssh sends the first
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_LIMIT_S)
            return
