"""Emulated boards with firmware, and a peer that sends single frames as a test asks."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from devices.description import DeviceDescription, SerialTransport, load_description
from profiler.building.firmware_image import build_firmware
from profiler.lab import RunningBoard, start
from profiler.transports.serial.frames import Decoder, Frame, Kind, encode
from profiler.transports.serial.line import Line
from tests.support.progress import ignore

PATIENCE_S = 60.0
ANSWER_S = 2.0
FIRST_SEQUENCE = 65530  # wraps around after a few requests
BOARDS = ("mps2-an386", "lm3s6965evb", "microbit", "netduinoplus2")
NS = 1_000_000_000


def description_of(board: str) -> DeviceDescription:
    """Description of the emulated ``board``."""
    named = {
        "mps2-an386": "emulated-m4f",
        "lm3s6965evb": "emulated-m3-sd",
        "microbit": "emulated-m0-flash",
    }
    if board in named:
        return load_description(named[board])
    described = load_description("emulated-m4f").model_dump(by_alias=True)
    described["name"] = board
    described["processor"]["clock_hz"] = 168e6
    described["firmware"] |= {"board": board, "flash_address": 0x08000000}
    described["emulator"] |= {"machine": board, "icount_shift": 3}
    described["memory"] |= {"ram_bytes": 131072, "flash_bytes": 1 << 20}
    return DeviceDescription.model_validate(described)


def without_icount(description: DeviceDescription) -> DeviceDescription:
    """The description without icount: the board's clock follows this computer's."""
    assert description.emulator is not None
    emulator = description.emulator.model_copy(update={"icount_shift": None})
    return description.model_copy(update={"emulator": emulator})


# --- a peer that sends single frames --------------------------------------------------------------


@dataclass
class Peer:
    """The computer's end of a serial line; it sends each frame once, exactly as asked."""

    description: DeviceDescription
    decoder: Decoder = field(default_factory=Decoder)
    frames: list[Frame] = field(default_factory=list)
    sequence: int = 0
    session: int = 1000
    frame_bytes: int = 128
    running: RunningBoard | None = None

    def __post_init__(self) -> None:
        transport = self.description.transport
        assert isinstance(transport, SerialTransport)
        assert transport.port is not None
        self.line = Line(transport.port, transport.baud)
        self.line.open()

    def send(
        self, kind: int, payload: bytes = b"", *, ahead: int = 0, most: int = 2048, session: int = 0
    ) -> None:
        """Send one frame, ``ahead`` of the expected sequence number; no answer is awaited."""
        sequence = (self.sequence + ahead) % 65536
        self.raw(encoded(kind, session or self.session, sequence, most, payload))

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self.line.send(data)

    def receive(self) -> Frame:
        """The next frame; fail if none arrives in an ample time."""
        deadline = time.monotonic() + PATIENCE_S
        frame = self.receive_by(deadline)
        assert frame is not None, "the board sends nothing"
        return frame

    def receive_by(self, deadline: float) -> Frame | None:
        """The next frame; None after ``deadline`` on the monotonic clock, in seconds."""
        while not self.frames and time.monotonic() < deadline:
            self.frames += self.decoder.feed(self.line.receive(0.2))
        return self.frames.pop(0) if self.frames else None

    def ask(self, kind: Kind, payload: bytes = b"", *, most: int = 2048) -> Frame:
        """Send the next request in order and return its answer."""
        self.send(kind, payload, most=most)
        answer = self.receive()
        while answer.sequence == FIRST_SEQUENCE != self.sequence:  # to a repeated HELLO
            answer = self.receive()
        assert (answer.session, answer.sequence) == (self.session, self.sequence)
        self.sequence = (self.sequence + 1) % 65536
        return answer

    def insist(self, kind: Kind, payload: bytes = b"") -> Frame:
        """Repeat a request until it is answered: a board that is starting up receives nothing."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.send(kind, payload)
            until = time.monotonic() + ANSWER_S
            while (frame := self.receive_by(until)) is not None:
                if frame.session == self.session:
                    return frame
        raise AssertionError("the board does not start")

    def hello(self) -> dict[str, str]:
        """Begin a new session and return what the board reports about itself."""
        self.session += 1
        self.sequence = FIRST_SEQUENCE
        reported = dict(
            line.split("=", 1) for line in text_of(self.insist(Kind.HELLO)).splitlines()
        )
        self.sequence += 1
        self.frame_bytes = int(reported["frame_bytes"])
        return reported

    def line_pieces(self, text: str) -> list[bytes]:
        """Payloads that transmit a line of a plan; the last one begins with 1."""
        size = self.frame_bytes - 1
        cuts = [text[i : i + size].encode() for i in range(0, len(text), size)]
        return [*(b"\0" + cut for cut in cuts[:-1]), b"\1" + cuts[-1]]

    def say(self, text: str) -> Frame:
        """Send a line of a plan and return its final answer."""
        for piece in self.line_pieces(text):
            answer = self.ask(Kind.LINE, piece)
        return self.receive() if answer.kind is Kind.STARTED else answer

    def done(self, text: str) -> str:
        """Send a line that must succeed; returns the text of its answer."""
        answer = self.say(text)
        assert answer.kind in {Kind.OK, Kind.DONE}, text_of(answer)
        return text_of(answer)

    def window(self, text: str) -> dict[str, int]:
        """Send a line that measures a window; returns the fields of its record."""
        word, *pairs = self.done(text).split(" ")
        assert word == "window"
        return {key: int(value) for key, value in (pair.split("=") for pair in pairs)}

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the board's arena."""
        return self.ask(Kind.READ, struct.pack("<IH", offset, length), most=65535).payload[2:]

    def write(self, offset: int, data: bytes) -> Frame:
        """Write to the board's arena."""
        return self.ask(Kind.WRITE, struct.pack("<I", offset) + data)


def encoded(kind: int, session: int, sequence: int, most: int, payload: bytes) -> bytes:
    """An encoded frame; unknown kinds are allowed."""
    if kind in set(Kind):
        return encode(Frame(Kind(kind), session, sequence, most, payload))
    from cobs import cobs

    body = struct.pack("<BHHHH", kind, session, sequence, most, len(payload)) + payload
    return b"\0" + bytes(cobs.encode(body + struct.pack("<I", zlib.crc32(body)))) + b"\0"


def text_of(answer: Frame) -> str:
    """The text of an answer that is transmitted whole."""
    (length,) = struct.unpack_from("<H", answer.payload)
    assert length == len(answer.payload) - 2
    return answer.payload[2:].decode()


def emulated(description: DeviceDescription) -> Iterator[Peer]:
    """A session with a board that runs meanwhile."""
    running = start(description, ignore)
    try:
        peer = Peer(running.description, running=running)
        peer.hello()
        yield peer
        peer.line.close()
    finally:
        running.stop()


# --- instructions ---------------------------------------------------------------------------------


@dataclass
class Traced:
    """A board whose emulator logs the address of every instruction."""

    peer: Peer
    log: Path
    process: subprocess.Popen[bytes]

    def instructions(self) -> list[int]:
        """Addresses of all executed instructions; ends the emulator."""
        self.process.terminate()
        self.process.wait()
        lines = self.log.read_text().splitlines()
        return [int(line.split("/")[1], 16) for line in lines if line.startswith("Trace")]


@contextmanager
def traced(description: DeviceDescription, log: Path) -> Iterator[Traced]:
    """A session with a board whose instructions are logged to ``log``."""
    emulator, elf = description.emulator, build_firmware(description).elf
    assert emulator is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        # QEMU sends single bytes, and accepted sockets inherit the option: none waits for an ACK.
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words = [emulator.program, "-M", emulator.machine, "-kernel", str(elf), "-nodefaults"]
        words += ["-chardev", f"socket,id=line,fd={server.fileno()},server=on,wait=off"]
        words += ["-serial", "chardev:line", "-display", "none"]
        words += ["-icount", f"shift={emulator.icount_shift},sleep=on"]
        words += ["-singlestep", "-d", "exec,nochain", "-D", str(log)]
        process = subprocess.Popen(words, pass_fds=[server.fileno()], stderr=subprocess.DEVNULL)
        port = f"socket://127.0.0.1:{server.getsockname()[1]}"
    try:
        transport = description.transport.model_copy(update={"port": port})
        peer = Peer(description.model_copy(update={"transport": transport}))
        peer.hello()
        yield Traced(peer, log, process)
        peer.line.close()
    finally:
        process.kill()
        process.wait()


def addresses_of(elf: Path) -> dict[str, int]:
    """Addresses of a program's symbols by name."""
    listed = subprocess.run(
        ["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True
    )
    rows = (row.split() for row in listed.stdout.splitlines())
    return {name: int(address, 16) for address, _, name in rows}
