"""Upload of 64 KiB of weights to an emulated Cortex-M4F, against the raw rate of the line.

python -m benchmarks.serial_upload [--repetitions N]
    [--write docs/benchmarks/serial-upload.md]
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

from benchmarks.machine import program_version
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from devices.description import SerialTransport, load_description
from profiler import lab
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession
from tests.support.boards.serial import Cable, Pace

BAUD = 115_200
WEIGHTS_BYTES = 64 << 10
UART_BEHIND_USB = Pace(bytes_per_s=BAUD / 10, latency_s=0.001)
_NO_FRAME = b"\x55"
_DEADLINE_S = 60.0
_RECEIVE_S = 0.05

_HEAD = ("line", "raw", "upload", "upload / raw", "quartiles")
_TEXT = """
{size:,} bytes of weights go into the arena of the board `emulated-m4f`. The raw rate is measured in
the same run, on the same port, with the same firmware: as many bytes in one invalid frame, which
the firmware reads and drops, and then a request whose answer shows that all bytes were read. The
time of the request alone is subtracted.

The line is once as fast as the emulator, and once held to {rate:,.0f} bytes a second with 1 ms of
latency in each direction, as {baud} baud through a USB adapter are. Medians of {repetitions}
interleaved repetitions. The raw rate waits for an answer, so an upload can exceed it.
"""


@dataclass
class LineResult:
    """Seconds of every repetition on one line. Without ``pace`` the line is not slowed down."""

    name: str
    pace: Pace | None
    raw_s: list[float] = field(default_factory=list)
    upload_s: list[float] = field(default_factory=list)

    @property
    def cells(self) -> tuple[str, ...]:
        raw, upload = (WEIGHTS_BYTES / statistics.median(s) for s in (self.raw_s, self.upload_s))
        ratios = [a / b for a, b in zip(self.raw_s, self.upload_s, strict=True)]
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        return (
            self.name,
            f"{raw:,.0f} B/s",
            f"{upload:,.0f} B/s",
            f"{middle:.1%}",
            f"{low:.1%} to {high:.1%}",
        )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    publish("benchmarks.serial_upload", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    lines = [
        LineResult("as fast as the emulator", None),
        LineResult(f"{BAUD} baud through USB", UART_BEHIND_USB),
    ]
    weights = random.Random(1).randbytes(WEIGHTS_BYTES)
    with lab.start(load_description("emulated-m4f"), lambda _line: None) as running:
        assert isinstance(running.description.transport, SerialTransport)
        port = str(running.description.transport.port)
        compiler = running.description.toolchain.compiler
        for repetition in range(arguments.repetitions):
            report_progress(f"repetition {repetition + 1} of {arguments.repetitions}")
            for line in lines:
                _repeat(line, port, weights)
    text = _TEXT.format(
        size=WEIGHTS_BYTES, rate=BAUD / 10, baud=BAUD, repetitions=arguments.repetitions
    )
    return Page(
        "Upload over a serial line",
        text,
        [Table(_HEAD, [line.cells for line in lines])],
        [program_version("qemu-system-arm"), program_version(compiler)],
    )


def _repeat(result: LineResult, port: str, weights: bytes) -> None:
    with ExitStack() as stack:
        if result.pace is not None:
            port = stack.enter_context(_slowed(port, result.pace))
        line, session = stack.enter_context(_connected(port))
        result.raw_s.append(_raw_s(line, session))
        result.upload_s.append(_upload_s(session, weights))


@contextmanager
def _slowed(port: str, pace: Pace) -> Iterator[str]:
    """Port that leads to ``port`` at the given pace."""
    address = urlsplit(port)
    far_end = socket.create_connection((str(address.hostname), int(address.port or 0)))
    with ExitStack() as stack:
        stack.callback(far_end.close)
        cable = Cable(far_end, pace=pace)
        stack.callback(cable.close)
        yield cable.port


@contextmanager
def _connected(port: str) -> Iterator[tuple[Line, SerialSession]]:
    line = Line(port, BAUD)
    session = SerialSession(line, "board", _DEADLINE_S)
    session.open()
    try:
        session.hello()
        yield line, session
    finally:
        session.close()


def _raw_s(line: Line, session: SerialSession) -> float:
    """Seconds until the firmware has read as many bytes as the weights have."""
    start = time.monotonic()
    line.send(b"\0" + _NO_FRAME * WEIGHTS_BYTES + b"\0")
    while line.is_sending:
        line.receive(_RECEIVE_S)
    session.hello()
    with_hello_s = time.monotonic() - start
    start = time.monotonic()
    session.hello()
    return with_hello_s - (time.monotonic() - start)


def _upload_s(session: SerialSession, weights: bytes) -> float:
    """Seconds of an upload. Both ends of the weights are read back."""
    start = time.monotonic()
    session.write(0, weights)
    elapsed = time.monotonic() - start
    assert session.read(0, 1024) == weights[:1024]
    assert session.read(len(weights) - 1024, 1024) == weights[-1024:]
    return elapsed


if __name__ == "__main__":
    main()
