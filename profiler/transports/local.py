"""Transport to this computer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from typing import BinaryIO

from devices.errors import SetupMissing
from devices.program import ended_in_any_case
from profiler.transports.deadline import Deadline
from profiler.transports.link import NoAnswerError, Sink
from profiler.transports.posix import PosixTransport

_CHUNK_BYTES = 64 * 1024


class LocalTransport(PosixTransport):
    """Runs commands here, with the same private directory and time limits as on any board."""

    def __init__(self) -> None:
        super().__init__(_LocalLink())


class _LocalLink:
    """Implements :class:`~profiler.transports.link.Link`."""

    name = "local"
    patience_s = 0.0

    def open(self, *, timeout_s: float) -> None:
        """Does nothing: no connection is needed."""

    def execute(
        self, script: str, *, timeout_s: float, source: BinaryIO | None, out: Sink, err: Sink
    ) -> int:
        deadline = Deadline(timeout_s)

        def start() -> subprocess.Popen[bytes]:
            # A session of its own: Ctrl-C in the terminal reaches only this process, which then
            # ends the shell and, on closing, the processes that the shell supervises.
            try:
                return subprocess.Popen(
                    ["sh", "-c", script],
                    stdin=subprocess.DEVNULL if source is None else source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise SetupMissing(
                    "this computer: the shell sh, which runs all commands, is not installed",
                    remedy="install it with: sudo apt install dash, or correct PATH",
                ) from None

        with ended_in_any_case(start, _end) as shell:
            try:
                _pass_on(shell, out, err, deadline)
                return shell.wait(deadline.remaining_s)
            except subprocess.TimeoutExpired:
                raise NoAnswerError(timeout_s) from None

    def close(self) -> None:
        """Does nothing: no connection exists."""


def _end(shell: subprocess.Popen[bytes]) -> None:
    if shell.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)


def _pass_on(shell: subprocess.Popen[bytes], out: Sink, err: Sink, deadline: Deadline) -> None:
    """Pass output on until both streams end. Raises :class:`subprocess.TimeoutExpired`."""
    with selectors.DefaultSelector() as selector:
        for stream, sink in ((shell.stdout, out), (shell.stderr, err)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, sink)
        while selector.get_map():
            ready = selector.select(deadline.remaining_s)
            if not ready and deadline.expired:
                raise subprocess.TimeoutExpired(shell.args, deadline.seconds)
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if chunk:
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
