"""Sessions with a board whose frames arrive whole but say anything: checksums hold, content not."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

from profiler.transports.serial.exchange import Silence
from profiler.transports.serial.frames import Decoder, Frame, Kind, encode
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession
from tests.support.boards.serial import HELLO

_DEADLINE_S = 0.02
_HELLO = "".join(f"{key}={value}\n" for key, value in HELLO.items()).encode()
_NUMBERS = (b"0", b"-1", b"1", b"65535", b"99999999999", b"x", b"", b"9" * 5000)


class _Answering(Line):
    """A line to a board that answers each request with bytes drawn from ``chance``."""

    def __init__(self, chance: random.Random, content: bytes) -> None:
        super().__init__("port", 115_200)
        self._chance = chance
        self._content = content
        self._decoder = Decoder()
        self._answers: deque[bytes] = deque()

    def open(self) -> None:
        """Nothing is to be opened."""

    def close(self) -> None:
        """Nothing is to be closed."""

    def send(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            for _ in range(self._chance.choice((0, 1, 1, 1, 1, 2))):
                self._answers.append(encode(self._answer(frame)))

    def receive(self, _timeout_s: float) -> bytes:
        return self._answers.popleft() if self._answers else b""

    def _answer(self, request: Frame) -> Frame:
        chance = self._chance
        usual = {Kind.HELLO: Kind.OK, Kind.LINE: Kind.DONE}.get(request.kind, Kind.OK)
        kind = usual if chance.random() < 0.8 else chance.choice(list(Kind))
        session = request.session if chance.random() < 0.95 else chance.randrange(1 << 16)
        sequence = request.sequence
        if chance.random() < 0.05:
            sequence = chance.randrange(1 << 16)
        return Frame(kind, session, sequence, 0, self._payload(request))

    def _payload(self, request: Frame) -> bytes:
        chance = self._chance
        if chance.random() < 0.1:
            return chance.randbytes(chance.randrange(4))
        text = self._content
        if request.kind is Kind.HELLO:
            text = _HELLO
            if chance.random() < 0.7:
                key = chance.choice((b"frame_bytes", b"window", b"line_bytes", b"protocol"))
                lines = [line for line in _HELLO.splitlines() if not line.startswith(key)]
                text = b"\n".join((*lines, key + b"=" + chance.choice(_NUMBERS)))
        length = len(text) if chance.random() < 0.7 else chance.randrange(1 << 16)
        return (length & 0xFFFF).to_bytes(2, "little") + text[: chance.choice((1000, 10, 0))]


def take_answers(path: Path) -> None:
    """Talk to a board whose answers are drawn from the input."""
    content = path.read_bytes()
    session = SerialSession(_Answering(random.Random(content), content), "board", _DEADLINE_S)
    session.open()
    reply = session.hello(_DEADLINE_S)
    if reply.get("protocol") != "1":
        return
    session.line("idle id=0 " + "x" * 300, Silence(0.0, _DEADLINE_S))
    session.write(0, bytes(500))
    session.read(0, 100)
    session.restart()
