"""64 KiB of weights into the arena of an emulated Cortex-M4F, beside what the line allows.

``python -m benchmarks.serial_upload [--repetitions N]``. What the line allows is measured in the
same run, on the same port, with the same firmware: as many bytes in one frame that never becomes
valid, which the firmware reads and drops, and a hello behind it, whose answer says that all of them
were read (less the time of a hello by itself). Once as fast as the emulator takes them, and once
through a cable that is held to what 115200 baud carry (11,520 bytes a second, 1 ms of latency
either way, as behind a USB adapter). Repetitions are interleaved; medians and quartiles are shown.
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

from benchmarks.machine import machine_line
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


@dataclass
class Case:
    """Seconds of every repetition."""

    name: str
    pace: Pace | None
    raw_s: list[float] = field(default_factory=list)
    upload_s: list[float] = field(default_factory=list)

    def row(self) -> str:
        raw, upload = (WEIGHTS_BYTES / statistics.median(s) for s in (self.raw_s, self.upload_s))
        ratios = [a / b for a, b in zip(self.raw_s, self.upload_s, strict=True)]
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        return (
            f"{self.name:<28} raw {raw:9,.0f} B/s   upload {upload:9,.0f} B/s"
            f"   {middle:6.1%} (quartiles {low:.1%} to {high:.1%})"
        )


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
    start = time.monotonic()
    session.write(0, weights)
    elapsed = time.monotonic() - start
    assert session.read(0, 1024) == weights[:1024]
    assert session.read(len(weights) - 1024, 1024) == weights[-1024:]
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    weights = random.Random(1).randbytes(WEIGHTS_BYTES)
    cases = [
        Case("as fast as the emulator is", None),
        Case("115200 baud behind USB", UART_BEHIND_USB),
    ]
    with lab.start(load_description("emulated-m4f"), lambda _what: None) as running:
        assert isinstance(running.description.transport, SerialTransport)
        port = str(running.description.transport.port)
        address = urlsplit(port)
        for _ in range(repetitions):
            for case in cases:
                with ExitStack() as stack:
                    if case.pace is not None:
                        far_end = socket.create_connection(
                            (str(address.hostname), int(address.port or 0))
                        )
                        stack.callback(far_end.close)
                        cable = Cable(far_end, pace=case.pace)
                        stack.callback(cable.close)
                        reached = cable.port
                    else:
                        reached = port
                    line, session = stack.enter_context(_connected(reached))
                    case.raw_s.append(_raw_s(line, session))
                    case.upload_s.append(_upload_s(session, weights))
    print(machine_line())
    print(f"{WEIGHTS_BYTES:,} bytes, {repetitions} repetitions, medians")
    for case in cases:
        print(case.row())


if __name__ == "__main__":
    main()
