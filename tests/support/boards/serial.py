"""A stand-in for a microcontroller with the firmware, and its cable to this computer.

The board is a thread that implements the board's side of ``docs/serial-protocol.md`` on one end of
a socket pair. The cable joins it, or a socket of an emulator, to a pseudo-terminal or a TCP port
for pyserial. It can be unplugged and plugged in again, disturbed, and limited in speed.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import threading
import time
import tty
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from profiler.transports.serial.frames import NOBODY, Decoder, Frame, Kind, encode

FIRMWARE_SHA256 = "f1" * 32
KERNELS_SHA256 = "ce" * 32
HELLO = {
    "protocol": "1",
    "firmware": FIRMWARE_SHA256,
    "kernels": KERNELS_SHA256,
    "compiler": "GCC 12.2.1",
    "board": "mps2-an386",
    "cpuid": "410fc241",
    "serial": "0123abcd",
    "clock_hz": "25000000",
    "counter": "systick",
    "ram_bytes": "4194304",
    "flash_bytes": "4194304",
    "program_bytes": "40000",
    "arena_bytes": "131072",
    "stack_bytes": "2048",
    "frame_bytes": "256",
    "window": "4",
    "line_bytes": "512",
    "sync": "none",
    "matmul": "in-tree",
    "kernel_count": "30",
    "storage": "sd-spi",
    "fault": "none",
}
_WHOLE = struct.Struct("<H")
_MEASURING = {"op", "idle", "marker", "transfer"}


class StandInBoard:
    """A board that speaks the serial protocol.

    Every window lasts ``window_s`` after ``in_window`` has returned; during it the board receives
    nothing. ``hello`` overrides what it reports about itself. ``executed`` lists all lines in order
    since the stand-in was made.
    """

    def __init__(self, *, window_s: float = 0.002, hello: dict[str, str] | None = None) -> None:
        self.hello = HELLO | (hello or {})
        self.window_s = window_s
        self.arena = bytearray(int(self.hello["arena_bytes"]))
        self.executed: list[str] = []
        self.restarts = 0
        self.heard_in_windows = 0
        self.before_window: Callable[[str], None] = lambda _line: None
        self.in_window: Callable[[str], None] = lambda _line: None
        self.far_end, self._line = socket.socketpair()
        self._start()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Press the reset button."""
        self._reset_asked = True
        self._line.sendall(encode(Frame(Kind.STRANGER, NOBODY, 0, 0, b"")))

    def close(self) -> None:
        self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._line.close()
        self.far_end.close()

    def _start(self) -> None:
        self._decoder = Decoder()
        self._session = 0
        self._expected = 0
        self._last = (Kind.OK, b"", 0)
        self._text = ""
        self._pieces = b""
        self._reset_asked = False
        self._step_calls = 0
        self._clock_ns = 1_000_000

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while received := self._line.recv(4096):
                if self._reset_asked:
                    self._start()
                for frame in self._decoder.feed(received):
                    self._handle(frame)

    def _handle(self, request: Frame) -> None:
        is_hello = request.kind is Kind.HELLO
        if request.session != self._session and not is_hello:
            self._send(Kind.STRANGER, request)
            return
        known = request.session == self._session
        if not (known and request.sequence == (self._expected - 1) % 65536):
            if not is_hello and request.sequence != self._expected:
                self._send(Kind.EXPECTED, request, _WHOLE.pack(self._expected))
                return
            self._last = self._execute(request)
            self._session = request.session
            self._expected = (request.sequence + 1) % 65536
        kind, data, whole = self._last
        room = max(0, request.most - _WHOLE.size)
        if request.kind is Kind.RESTART:
            self.restarts += 1
        self._send(kind, request, _WHOLE.pack(whole) + data[:room])
        if request.kind is Kind.RESTART:
            self._start()

    def _send(self, kind: Kind, request: Frame, payload: bytes = b"") -> None:
        answer = Frame(kind, request.session, request.sequence, 0, payload)
        self._line.sendall(encode(answer))

    def _execute(self, request: Frame) -> tuple[Kind, bytes, int]:
        payload = request.payload
        match request.kind:
            case Kind.HELLO:
                self._pieces = b""
                return self._text_answer("\n".join(f"{k}={v}" for k, v in self.hello.items()))
            case Kind.LINE:
                self._pieces += payload[1:]
                if payload[:1] == b"\0":
                    return Kind.OK, b"", 0
                line, self._pieces = self._pieces.decode(), b""
                return self._run(line, request)
            case Kind.WRITE:
                (offset,) = struct.unpack_from("<I", payload)
                self.arena[offset : offset + len(payload) - 4] = payload[4:]
                return Kind.OK, b"", 0
            case Kind.READ:
                offset, length = struct.unpack("<IH", payload)
                if offset + length > len(self.arena):
                    return Kind.REFUSED, b"this is outside the arena", 25
                return Kind.OK, bytes(self.arena[offset : offset + length]), length
            case Kind.REST:
                (offset,) = _WHOLE.unpack(payload)
                return Kind.OK, self._text.encode()[offset:], len(self._text)
            case _:
                return Kind.OK, b"", 0

    def _text_answer(self, text: str, kind: Kind = Kind.OK) -> tuple[Kind, bytes, int]:
        self._text = text
        return kind, text.encode(), len(text)

    def _run(self, line: str, request: Frame) -> tuple[Kind, bytes, int]:
        self.executed.append(line)
        word, *pairs = line.split(" ")
        values = dict(pair.partition("=")[::2] for pair in pairs)
        if word == "step":
            self._step_calls, self._step_id = int(values["calls"]), values["id"]
        if word == "call":
            self._step_calls -= 1
        if word in _MEASURING or (word == "call" and self._step_calls == 0):
            return self._measure(line, values.get("id", getattr(self, "_step_id", "")), request)
        match word:
            case "arena" | "tries" | "scratch" | "step" | "buffer" | "call":
                return self._text_answer("")
            case "kernel":
                return self._text_answer(str(len(line)))
            case "storage":
                return self._text_answer("card=SD-1234 capacity_bytes=67108864 page_bytes=512")
            case "health":
                return self._text_answer(f"clock_ns={self._clock_ns} temperature_mc=0")
        return self._text_answer(f"{word} is not a known line", Kind.REFUSED)

    def _measure(self, line: str, id_: str, request: Frame) -> tuple[Kind, bytes, int]:
        self.before_window(line)
        self._send(Kind.STARTED, request)
        self.in_window(line)
        time.sleep(self.window_s)
        while select.select([self._line], [], [], 0)[0]:
            missed = self._line.recv(4096)
            self.heard_in_windows += len(missed)
            if not missed:
                break
        self._decoder.forget()
        start_ns, self._clock_ns = self._clock_ns, self._clock_ns + 20_000_000
        record = (
            f"window id={id_} executions=7 start_ns={start_ns} end_ns={self._clock_ns}"
            f" tail_end_ns={self._clock_ns} running_ns=20000000 frequency_before_khz=25000"
            " frequency_after_khz=25000 temperature_mc=0 tries=1"
        )
        return self._text_answer(record, Kind.DONE)


@dataclass
class Noise:
    """Disturbance: this share of all bytes is flipped, dropped or doubled, equally often."""

    share: float
    seed: int = 1
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._random.random() >= self.share:
                out.append(byte)
                continue
            match self._random.randrange(3):
                case 0:
                    out.append(byte ^ (1 << self._random.randrange(8)))
                case 1:
                    out += bytes([byte, byte])
        return bytes(out)


Disturb = Callable[[bytes], bytes]


def undisturbed(data: bytes) -> bytes:
    """The data unchanged."""
    return data


@dataclass(frozen=True)
class Pace:
    """Speed of a UART on a USB adapter; the latency applies to each direction."""

    bytes_per_s: float
    latency_s: float


class _End(Protocol):
    def fileno(self) -> int: ...


class _Way:
    """One direction of a cable: bytes, each with the time at which it may leave."""

    def __init__(self, disturb: Disturb, pace: Pace | None) -> None:
        self.disturb = disturb
        self._pace = pace
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._free_at = 0.0

    def put(self, data: bytes) -> None:
        data, now = self.disturb(data), time.monotonic()
        if self._pace is None:
            self._waiting.append((now, data))
            return
        begin = max(now, self._free_at)
        for at in range(0, len(data), 16):
            chunk = data[at : at + 16]
            begin += len(chunk) / self._pace.bytes_per_s
            self._waiting.append((begin + self._pace.latency_s, chunk))
        self._free_at = begin

    def take(self) -> bytes:
        now, ready = time.monotonic(), []
        while self._waiting and self._waiting[0][0] <= now:
            ready.append(self._waiting.popleft()[1])
        return b"".join(ready)

    @property
    def due_s(self) -> float | None:
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None

    def drop(self) -> None:
        self._waiting.clear()


class Cable:
    """A cable from ``board``, a socket, to ``port``, by which pyserial opens it.

    With ``directory`` the port is a symbolic link to a pseudo-terminal, as udev makes them; without
    it, a TCP port.
    """

    def __init__(
        self,
        board: socket.socket,
        directory: Path | None = None,
        *,
        up: Disturb = undisturbed,
        down: Disturb = undisturbed,
        pace: Pace | None = None,
    ) -> None:
        self._board = board
        self._link = None if directory is None else directory / "board"
        self._up, self._down = _Way(up, pace), _Way(down, pace)
        self._lock = threading.RLock()
        self._listener: socket.socket | None = None
        self._near: _End | None = None
        self._slave: int | None = None
        self._ended = False
        self._tcp_port = 0
        self.plug()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    @property
    def port(self) -> str:
        """The port as pyserial names it."""
        if self._link is not None:
            return str(self._link)
        return f"socket://127.0.0.1:{self._tcp_port}"

    def disturb(self, up: Disturb, down: Disturb) -> None:
        """Change the disturbance towards the board (``up``) and from it (``down``)."""
        self._up.disturb, self._down.disturb = up, down

    def plug(self) -> None:
        """Plug the cable in at this computer's end."""
        with self._lock:
            if self._link is None:
                self._listener = socket.create_server(("127.0.0.1", self._tcp_port))
                self._tcp_port = self._listener.getsockname()[1]
                return
            master, self._slave = os.openpty()
            tty.setraw(self._slave)
            self._near = os.fdopen(master, "r+b", buffering=0)
            self._link.symlink_to(os.ttyname(self._slave))

    def pull(self) -> None:
        """Unplug the cable at this computer's end; bytes under way are lost."""
        with self._lock:
            if self._link is not None:
                self._link.unlink(missing_ok=True)
            if self._slave is not None:
                os.close(self._slave)
                self._slave = None
            for end in (self._listener, self._near):
                if isinstance(end, socket.socket) and end is self._near:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                if end is not None:
                    end.close()  # type: ignore[attr-defined]
            self._listener = self._near = None
            self._up.drop()
            self._down.drop()

    def close(self) -> None:
        """Unplug for good; the board's end stays open."""
        self._ended = True
        self._thread.join(timeout=10)
        self.pull()

    def _carry(self) -> None:
        while not self._ended:
            with self._lock:
                near, listener = self._near, self._listener
            ends: list[_End] = [self._board]
            ends += [end for end in (near, listener if near is None else None) if end is not None]
            dues = [due for way in (self._up, self._down) if (due := way.due_s) is not None]
            try:
                readable = select.select(ends, [], [], min([0.05, *dues]))[0]
            except (OSError, ValueError):  # just pulled
                continue
            with self._lock, contextlib.suppress(OSError, ValueError):
                self._move(readable, near, listener)

    def _move(
        self, readable: list[_End], near: _End | None, listener: socket.socket | None
    ) -> None:
        if self._board in readable:
            data = self._board.recv(4096)
            if not data:
                self._ended = True
            self._down.put(data)
        if listener is not None and listener in readable and listener is self._listener:
            self._near, _ = listener.accept()
            self._near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if near is not None and near in readable and near is self._near:
            data = self._read(near)
            self._up.put(data)
        if up := self._up.take():
            self._board.sendall(up)
        if down := self._down.take():
            self._write(down)

    def _read(self, near: _End) -> bytes:
        if not isinstance(near, socket.socket):
            return os.read(near.fileno(), 4096)
        try:
            data = near.recv(4096)
        except OSError:
            data = b""
        if not data:
            near.close()
            self._near = None
        return data

    def _write(self, data: bytes) -> None:
        """Write to the port's reader; data is dropped if none is connected."""
        near = self._near
        if near is None:
            return
        while data:
            data = data[os.write(near.fileno(), data) :]
