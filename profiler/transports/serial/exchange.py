"""Requests in order over a line that loses, changes and doubles bytes, and may be interrupted.

A long request goes in pieces, several under way at once. After a loss, a probe is sent: a request
far out of sequence, to which the board answers the sequence number that it expects. A line keeps
the order of what it carries, so pieces that were sent before the probe and are still expected will
never arrive; they may be cut again, into smaller pieces. If the request did arrive, only its answer
is missing, and is requested again.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from devices.errors import BoardUnreachable, MeasurementInvalid
from profiler.transports.deadline import Deadline
from profiler.transports.serial.frames import SEQUENCES, Frame, Kind
from profiler.transports.serial.pace import PieceSize, RoundTrip
from profiler.transports.serial.wire import Wire

_PROBE_DISTANCE = 0x4000
_PROBES = 0x8000
_PROBE_PAYLOAD = struct.pack("<H", 0)  # of REST, which has no side effect
_PROBE_MOST = 16
_EXPECTED = struct.Struct("<H")

_FIRST_MOST = 256  # until the board reports its limits
_OVERHEAD_BYTES = 15  # of a frame on the line
# Unlike on a network, no other traffic needs room, so the factor can be small; with 2, time would
# grow without bound where more than half of all frames are lost.
_PATIENCE = 1.5
_SLOWEST_RETRY_S = 1.0
_SLOWEST_RETRY_IN_WINDOW_S = 30.0


class StrangerError(MeasurementInvalid):
    """The board does not know the session: it has restarted since the last hello."""


@dataclass(frozen=True)
class Silence:
    """Expected silence of the board while it is in a window.

    After the board has reported that a window opens, nothing is asked for ``quiet_s``. The window
    ends within ``limit_s``, or the board is lost.
    """

    quiet_s: float
    limit_s: float


@dataclass(frozen=True)
class Piece:
    """One piece of a request. ``end`` is the start of the next piece, None after the last.
    ``repeat`` is the payload that requests a lost answer again."""

    kind: Kind
    payload: bytes
    repeat: bytes
    end: int | None = None


class Request(Protocol):
    """A request, which can be cut into pieces."""

    def piece(self, start: int, size: int, /) -> Piece:
        """The piece that starts at ``start``, with a payload of at most ``size`` bytes."""
        ...


class Exchange:
    """Sends one request at a time, in the order of a session's sequence. ``board`` is the board's
    name in messages, with its port."""

    def __init__(self, wire: Wire, board: str, deadline_s: float) -> None:
        self.wire = wire
        self.board = board
        self.deadline_s = deadline_s
        self.round_trip = RoundTrip(wire.line.baud)
        self.sequence = 0
        self.in_window = False
        self.agree(_FIRST_MOST, 1)
        self._probes = 0

    def agree(self, frame_bytes: int, window: int) -> None:
        """Set the longest payload in bytes, and how many requests may be under way."""
        self.requests, self.answers = PieceSize(frame_bytes), PieceSize(frame_bytes)
        self.window = window

    def greet(self, session: int, deadline: Deadline) -> Frame:
        """Begin a session and return the answer to its hello. Raises
        :class:`~devices.errors.BoardUnreachable`."""
        self.wire.session, self.sequence, self.in_window = session, 0, False
        self.agree(_FIRST_MOST, 1)
        noise_bytes = self.wire.decoder.noise_bytes
        wait_s = self.round_trip.limit_s(_FIRST_MOST)
        while not deadline.expired:
            self.wire.send(Frame(Kind.HELLO, session, 0, self.answers.bytes), deadline)
            until = time.monotonic() + min(wait_s, deadline.remaining_s)
            while (frame := self.wire.receive(until, deadline)) is not None:
                if frame.kind is Kind.OK and frame.sequence == 0:
                    self.sequence = 1
                    return frame
            self.answers.shrink()
            wait_s = min(_PATIENCE * wait_s, _SLOWEST_RETRY_S)
        heard = self.wire.decoder.noise_bytes > noise_bytes
        raise BoardUnreachable(
            f"{self.board}: the firmware did not answer within {deadline.seconds:g} s"
            + ("; it sends data that are not the protocol's" if heard else "")
            + f". {self.wire.line.remedy}"
        )

    def transact(self, request: Request, silence: Silence | None = None) -> Frame:
        """Send all pieces of a request and return the answer to the last one, or the first refusal.

        Raises :class:`StrangerError` and :class:`~devices.errors.BoardUnreachable`. After these,
        and after an interruption, a new hello is needed.
        """
        return _Transaction(self, request, silence or Silence(0.0, self.deadline_s)).run()

    def probe(self, deadline: Deadline) -> int:
        """Ask for the sequence number that the board expects. Returns the probe's own sequence
        number, which has not been used for long."""
        self._probes = (self._probes + 1) % _PROBES
        sequence = (self.sequence + _PROBE_DISTANCE + self._probes) % SEQUENCES
        session = self.wire.session
        self.wire.send(Frame(Kind.REST, session, sequence, _PROBE_MOST, _PROBE_PAYLOAD), deadline)
        return sequence


@dataclass
class _Sent:
    """A piece that was sent. ``on_line_bytes`` counts its frame and a plain answer;
    ``under_way_bytes`` is all that was on the line when it was sent."""

    start: int
    piece: Piece
    sent_at: float
    on_line_bytes: int = 0
    under_way_bytes: int = 0
    once: bool = True


class _Transaction:
    """One request under way. Sent and unanswered pieces are numbered from ``exchange.sequence``
    on."""

    def __init__(self, exchange: Exchange, request: Request, silence: Silence) -> None:
        self._exchange = exchange
        self._request = request
        self._silence = silence
        self._sent: deque[_Sent] = deque()
        self._next: int | None = 0
        self._probe: int | None = None
        self._only_answer_missing = False
        self._tries = 0
        self._until = 0.0
        self._deadline = Deadline(silence.limit_s)

    def run(self) -> Frame:
        while True:
            self._fill()
            frame = self._exchange.wire.receive(self._until, self._deadline)
            if frame is not None:
                answer = self._heard(frame)
                if answer is not None:
                    return answer
            elif self._deadline.expired:
                raise BoardUnreachable(self._lost())
            elif not self._exchange.in_window or time.monotonic() >= self._until:
                self._ask_again()

    def _fill(self) -> None:
        """Send as many pieces as may be under way; none while a probe is unanswered."""
        exchange = self._exchange
        while self._next is not None and self._probe is None and len(self._sent) < exchange.window:
            piece = self._request.piece(self._next, exchange.requests.bytes)
            self._sent.append(_Sent(self._next, piece, time.monotonic()))
            self._next = piece.end
            self._send(len(self._sent) - 1, piece.payload)

    def _send(self, index: int, payload: bytes) -> None:
        exchange, sent = self._exchange, self._sent[index]
        sequence = (exchange.sequence + index) % SEQUENCES
        frame = Frame(
            sent.piece.kind, exchange.wire.session, sequence, exchange.answers.bytes, payload
        )
        sent.on_line_bytes = exchange.wire.send(frame, self._deadline) + _OVERHEAD_BYTES
        sent.under_way_bytes = self._under_way_bytes()
        self._rearm()

    def _under_way_bytes(self) -> int:
        return sum(sent.on_line_bytes for sent in self._sent)

    def _rearm(self) -> None:
        """Set the time by which the next answer is due; it grows with every failed try."""
        exchange = self._exchange
        on_line_bytes = self._under_way_bytes() + exchange.answers.bytes
        first_s = exchange.round_trip.limit_s(on_line_bytes)
        slowest_s = _SLOWEST_RETRY_IN_WINDOW_S if exchange.in_window else _SLOWEST_RETRY_S
        self._wait(min(first_s * _PATIENCE ** min(self._tries, 64), max(first_s, slowest_s)))

    def _wait(self, wait_s: float) -> None:
        self._until = time.monotonic() + min(wait_s, self._deadline.remaining_s)

    # --- frames from the board -------------------------------------------------------------------

    def _heard(self, frame: Frame) -> Frame | None:
        """Handle a frame. Returns the answer to the last piece, or a refusal; None otherwise."""
        if frame.kind is Kind.STRANGER:
            raise StrangerError(f"{self._exchange.board}: the board has restarted")
        if frame.kind is Kind.EXPECTED and frame.sequence == self._probe:
            self._located(_EXPECTED.unpack(frame.payload)[0])
            return None
        index = (frame.sequence - self._exchange.sequence) % SEQUENCES
        if index >= len(self._sent):
            return None  # an old frame about a settled piece
        match frame.kind:
            case Kind.EXPECTED:
                if self._probe is None:
                    self._ask_again()
            case Kind.STARTED if self._sent[index].piece.end is None:
                self._settle(index)
                self._fall_silent()
            case Kind.OK | Kind.DONE:
                return self._answered(frame, index)
            case Kind.REFUSED:
                self._settle(index + 1)
                self._exchange.in_window = False
                return frame
        return None

    def _answered(self, frame: Frame, index: int) -> Frame | None:
        exchange, last = self._exchange, self._sent[index]
        if last.once and frame.kind is Kind.OK:
            on_line_bytes = last.under_way_bytes + len(frame.payload)
            exchange.round_trip.learn(on_line_bytes, time.monotonic() - last.sent_at)
        exchange.requests.grow(len(last.piece.payload))
        self._settle(index + 1)
        if last.piece.end is None:
            exchange.in_window = False
            exchange.answers.grow(len(frame.payload))
            return frame
        if not self._sent:
            self._probe = None
        return None

    def _fall_silent(self) -> None:
        """Enter the window's silence. A repeated report means the same: the window is still
        open."""
        if not self._exchange.in_window:
            self._exchange.in_window = True
            self._only_answer_missing = True
            self._probe = None
            self._tries = 0
            self._deadline = Deadline(self._silence.limit_s)
            self._wait(self._silence.quiet_s)

    def _settle(self, count: int) -> None:
        for _ in range(count):
            self._sent.popleft()
        self._exchange.sequence = (self._exchange.sequence + count) % SEQUENCES
        if count:
            self._tries = 0
            self._deadline = Deadline(self._silence.limit_s)
            self._rearm()

    def _located(self, expected: int) -> None:
        """Handle the answer to a probe: pieces before ``expected`` have arrived, and later ones
        will not."""
        exchange = self._exchange
        self._probe = None
        self._tries = 0
        arrived = (expected - exchange.sequence) % SEQUENCES
        if arrived > len(self._sent):
            raise StrangerError(f"{exchange.board}: the board is in another request than expected")
        if arrived < len(self._sent):
            self._settle(arrived)
            exchange.requests.shrink()
            self._next = self._sent[0].start
            self._sent.clear()
            return
        exchange.answers.shrink()
        if self._sent and self._sent[-1].piece.end is None:
            self._settle(arrived - 1)
            self._only_answer_missing = True
            self._repeat()
        else:
            self._settle(arrived)

    # --- missing answers -------------------------------------------------------------------------

    def _ask_again(self) -> None:
        self._tries += 1
        if self._only_answer_missing:
            self._exchange.answers.shrink()
            self._repeat()
        else:
            self._probe = self._exchange.probe(self._deadline)
            self._rearm()

    def _repeat(self) -> None:
        """Request the answer again. A board in a window ignores it; after the window, the answer
        was lost."""
        self._sent[0].once = False
        self._send(0, self._sent[0].piece.repeat)

    def _lost(self) -> str:
        board, limit_s = self._exchange.board, self._deadline.seconds
        if self._exchange.in_window:
            return (
                f"{board}: a window was opened, and the board did not answer within"
                f" {limit_s:.3g} s. Check that it is still powered"
            )
        remedy = self._exchange.wire.line.remedy
        return f"{board}: the board has not answered for {limit_s:.3g} s. {remedy}"
