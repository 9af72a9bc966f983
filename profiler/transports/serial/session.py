"""Session with the firmware of a microcontroller (``docs/serial-protocol.md``)."""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from devices.errors import BoardCommandFailed, BoardUnreachable
from profiler.transports.deadline import Deadline
from profiler.transports.serial.exchange import Exchange, Piece, Silence, StrangerError
from profiler.transports.serial.frames import Frame, Kind
from profiler.transports.serial.line import Line
from profiler.transports.serial.pace import SMALLEST_PIECE_BYTES
from profiler.transports.serial.wire import Wire

PROTOCOL = "1"

_LENGTH = struct.Struct("<H")
_OFFSET = struct.Struct("<H")
_ADDRESS = struct.Struct("<I")
_STRETCH = struct.Struct("<IH")
_MOST = 0xFFFF
_DIGITS = re.compile(r"[0-9]{1,5}")
_FIRST_LINE_BYTES = 256  # until the board reports its limits


class SerialSession:
    """A session with a board on a line. ``hello`` must come first.

    All methods raise :class:`~devices.errors.BoardUnreachable` when the board does not answer
    within the deadline, :class:`~profiler.transports.serial.exchange.StrangerError` when it has
    restarted, and :class:`~devices.errors.BoardCommandFailed` when it refuses.

    Args:
        line: The line, not yet open.
        board: Name of the board in messages.
        deadline_s: Time within which the board must answer.
    """

    def __init__(self, line: Line, board: str, deadline_s: float) -> None:
        self._line = line
        self._wire = Wire(line, board, deadline_s)
        self._exchange = Exchange(self._wire, board, deadline_s)
        self._board = board
        self._deadline_s = deadline_s
        self._line_bytes = _FIRST_LINE_BYTES

    @property
    def number(self) -> int:
        """Number of the session that the last hello began."""
        return self._wire.session

    @property
    def in_window(self) -> bool:
        """Whether a window was opened whose end has not been reported."""
        return self._exchange.in_window

    def on_wait(self, call: Callable[[], None]) -> None:
        """Set a function that is called several times a second while an answer is awaited."""
        self._wire.on_wait = call

    def open(self) -> None:
        self._line.open()

    def close(self) -> None:
        """Close the line. Never raises; may be called twice."""
        self._line.close()

    def hello(self, deadline_s: float | None = None) -> Mapping[str, str]:
        """Begin a new session and return what the board reports about itself.

        If its ``protocol`` is not :data:`PROTOCOL`, no other method works. ``deadline_s`` is for
        the first answer, instead of the line's.
        """
        deadline = Deadline(self._deadline_s if deadline_s is None else deadline_s)
        answer = self._exchange.greet(1 + secrets.randbelow(0xFFFF), deadline)
        reply = dict(line.partition("=")[::2] for line in self._whole(answer).splitlines())
        if reply.get("protocol") == PROTOCOL:
            frame_bytes, window, self._line_bytes = (
                self._limit(reply, name, least)
                for name, least in (
                    ("frame_bytes", SMALLEST_PIECE_BYTES),
                    ("window", 1),
                    ("line_bytes", 1),
                )
            )
            self._exchange.agree(frame_bytes, window)
        return reply

    def _limit(self, reply: Mapping[str, str], name: str, least: int) -> int:
        """A limit that the firmware reports."""
        text = reply.get(name, "")
        if not (_DIGITS.fullmatch(text) and least <= int(text) <= _MOST):
            raise BoardCommandFailed(
                f"{self._board}: the firmware's hello has {name} {text[:20]!r}; allowed: a whole"
                f" number from {least} to {_MOST}"
            )
        return int(text)

    def line(self, text: str, silence: Silence | None = None) -> str:
        """Have a line of a plan executed and return its answer. ``silence`` is for lines that
        measure."""
        encoded = text.encode("ascii")
        if len(encoded) > self._line_bytes:
            raise BoardCommandFailed(
                f"{self._board}: a line of the plan has {len(encoded)} bytes; the firmware takes"
                f" {self._line_bytes}: {text}"
            )
        answer = self._exchange.transact(_LineRequest(encoded), silence)
        reply = self._whole(answer)
        if answer.kind is Kind.REFUSED:
            raise BoardCommandFailed(f"{self._board}: the firmware refuses {text!r}: {reply}")
        return reply

    def write(self, offset: int, data: bytes) -> None:
        """Write data into the arena."""
        if data:
            self._accepted(self._exchange.transact(_WriteRequest(offset, data)), "write")

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes from the arena."""
        data = b""
        while len(data) < length:
            stretch = min(length - len(data), _MOST)
            request = _Single(Kind.READ, _STRETCH.pack(offset + len(data), stretch))
            answer = self._accepted(self._exchange.transact(request), "read")
            data += self._some(answer.payload[_LENGTH.size :])
        return data

    def restart(self) -> None:
        """Restart the board. After that it accepts only a hello."""
        try:
            self._exchange.transact(_Single(Kind.RESTART, b""))
        except StrangerError:
            return  # it has restarted already, and its answer was lost

    def _whole(self, answer: Frame) -> str:
        """The text of an answer, including the rest that did not fit into its frame."""
        (length,) = _LENGTH.unpack_from(answer.payload)
        text = answer.payload[_LENGTH.size :]
        while len(text) < length:
            rest = self._exchange.transact(_Single(Kind.REST, _OFFSET.pack(len(text))))
            text += self._some(self._accepted(rest, "send the rest").payload[_LENGTH.size :])
        return _readable(text)

    def _accepted(self, answer: Frame, what: str) -> Frame:
        if answer.kind is Kind.REFUSED:
            reason = _readable(answer.payload[_LENGTH.size :])
            raise BoardCommandFailed(f"{self._board}: the firmware does not {what}: {reason}")
        return answer

    def _some(self, data: bytes) -> bytes:
        if not data:
            raise BoardUnreachable(f"{self._board}: the firmware's answer breaks off")
        return data


def _readable(text: bytes) -> str:
    """Text of the firmware, which is printable ASCII on one or more lines."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}"
        for character in text.decode("ascii", errors="replace")
    )


@dataclass(frozen=True)
class _Single:
    """A request of one piece, which is repeated unchanged."""

    kind: Kind
    payload: bytes

    def piece(self, _start: int, _size: int, /) -> Piece:
        return Piece(self.kind, self.payload, self.payload)


_MORE, _LAST = b"\0", b"\1"


@dataclass(frozen=True)
class _LineRequest:
    """A line of a plan. To request a lost answer again, its text is not needed."""

    text: bytes

    def piece(self, start: int, size: int, /) -> Piece:
        end = start + size - len(_LAST)
        if end < len(self.text):
            return Piece(Kind.LINE, _MORE + self.text[start:end], _MORE, end)
        return Piece(Kind.LINE, _LAST + self.text[start:], _LAST)


@dataclass(frozen=True)
class _WriteRequest:
    offset: int
    data: bytes

    def piece(self, start: int, size: int, /) -> Piece:
        end = start + size - _ADDRESS.size
        address = _ADDRESS.pack(self.offset + start)
        return Piece(
            Kind.WRITE,
            address + self.data[start:end],
            address,
            end if end < len(self.data) else None,
        )
