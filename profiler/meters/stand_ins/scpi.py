"""Stand-in for a SCPI instrument.

It is a real TCP server, or the far end of a real pseudo-terminal, with the few commands of a power
meter. It measures nothing.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

IDENTITY = "STAND-IN,SMU-1,0000,1.0"


@dataclass
class ScpiStandIn:
    """Answers of the instrument. ``answers`` are by query; a list is used up one answer at a time,
    and its last answer repeats. None means no answer. ``heard`` holds every received line."""

    answers: dict[str, str | list[str | None]] = field(default_factory=dict)
    known: tuple[str, ...] = ("*CLS",)
    heard: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_open: bool = False

    def answer(self, line: str) -> str | None:
        self.heard.append(line)
        if line == "*IDN?":
            return IDENTITY
        if line == "SYST:ERR?":
            return self.errors.pop(0) if self.errors else '+0,"No error"'
        answer = self.answers.get(line)
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is None and line not in self.known:
            self.errors.append(f'-113,"Undefined header; {line}"')
        return answer


class _Served(threading.Thread):
    """Answers lines on one descriptor after another until stopped."""

    def __init__(self, stand_in: ScpiStandIn) -> None:
        super().__init__(daemon=True)
        self.stand_in = stand_in
        self._wake, self._woken = os.pipe()
        self.start()

    def end(self) -> None:
        os.write(self._woken, b".")
        self.join()
        os.close(self._wake)
        os.close(self._woken)

    def converse(self, descriptor: int) -> None:
        pending = b""
        while self.wait(descriptor):
            try:
                came = os.read(descriptor, 4096)
            except OSError:
                return
            if not came:
                return
            *lines, pending = (pending + came).split(b"\n")
            for line in lines:
                answer = self.stand_in.answer(line.decode().strip())
                if answer is not None:
                    os.write(descriptor, answer.encode() + b"\n")

    def wait(self, descriptor: int) -> bool:
        ready, _, _ = select.select([descriptor, self._wake], [], [])
        return self._wake not in ready


class _Tcp(_Served):
    def __init__(self, stand_in: ScpiStandIn) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        super().__init__(stand_in)

    def run(self) -> None:
        with self.server:
            while self.wait(self.server.fileno()):
                connection, _ = self.server.accept()
                with connection:
                    self.stand_in.is_open = True
                    self.converse(connection.fileno())
                    self.stand_in.is_open = False


class _Serial(_Served):
    def __init__(self, stand_in: ScpiStandIn, descriptor: int) -> None:
        self.descriptor = descriptor
        super().__init__(stand_in)

    def run(self) -> None:
        self.converse(self.descriptor)


@contextmanager
def over_tcp(stand_in: ScpiStandIn) -> Iterator[str]:
    """Serve over TCP and yield the VISA address. On leaving, the connection breaks."""
    served = _Tcp(stand_in)
    try:
        yield f"TCPIP::127.0.0.1::{served.server.getsockname()[1]}::SOCKET"
    finally:
        served.end()


@contextmanager
def over_serial(stand_in: ScpiStandIn) -> Iterator[str]:
    near, far = os.openpty()
    tty.setraw(far)
    served = _Serial(stand_in, near)
    try:
        yield f"ASRL{os.ttyname(far)}::INSTR"
    finally:
        served.end()
        os.close(near)
        os.close(far)
