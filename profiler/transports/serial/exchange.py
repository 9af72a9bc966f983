"""Requests in order over a line that loses, changes and doubles bytes, and may be interrupted.

A long request goes in pieces, several under way at once. Where one is lost, a probe (a request far
out of sequence, to which the board answers what it expects) says from which on: a line keeps the
order of what it carries, so what was sent before the probe and is still expected will never arrive,
and may be cut anew, into smaller pieces. Of a request that did arrive only the answer is missing,
and is asked for again.
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
_PROBE_PAYLOAD = struct.pack("<H", 0)  # of REST, which would change nothing were it carried out
_PROBE_MOST = 16
_EXPECTED = struct.Struct("<H")

_FIRST_MOST = 256  # until the board says what it can
_OVERHEAD_BYTES = 15  # of a frame on the line
# Nobody else is on the line, who would have to be let through as on a network; with a factor of 2,
# time would grow without bound where more than half of all frames are lost.
_PATIENCE = 1.5
_SLOWEST_RETRY_S = 1.0
_SLOWEST_RETRY_IN_WINDOW_S = 30.0


class StrangerError(MeasurementInvalid):
    """The board does not know the session: it has started anew since it was greeted."""


@dataclass(frozen=True)
class Silence:
    """After the board has said that a window opens, nothing is asked for ``quiet_s``. The window is
    over within ``limit_s``, or the board is lost."""

    quiet_s: float
    limit_s: float


@dataclass(frozen=True)
class Piece:
    """``end`` is where the next one begins, None behind the last. ``repeat`` is the payload with
    which a lost answer is had again."""

    kind: Kind
    payload: bytes
    repeat: bytes
    end: int | None = None


class Request(Protocol):
    def piece(self, start: int, size: int, /) -> Piece:
        """From ``start`` on, with a payload of at most ``size`` bytes."""
        ...


class Exchange:
    """One request at a time, in the order of a session's sequence. ``board`` is what messages call
    it, with its port."""

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
        """The longest payload, and how many requests may be under way."""
        self.requests, self.answers = PieceSize(frame_bytes), PieceSize(frame_bytes)
        self.window = window

    def greet(self, session: int, deadline: Deadline) -> Frame:
        """Begin a session; the answer to its hello. Raises
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
            + (", and what the board sends is not its protocol" if heard else "")
            + f". {self.wire.line.remedy}"
        )

    def transact(self, request: Request, silence: Silence | None = None) -> Frame:
        """All pieces of a request; the answer to the last, or the refusal of any.

        Raises :class:`StrangerError` and :class:`~devices.errors.BoardUnreachable`; after these,
        and after an interruption, the board has to be greeted again.
        """
        return _Transaction(self, request, silence or Silence(0.0, self.deadline_s)).run()

    def probe(self, deadline: Deadline) -> int:
        """Ask what the board expects. The sequence of this question, which no other has had for
        long."""
        self._probes = (self._probes + 1) % _PROBES
        sequence = (self.sequence + _PROBE_DISTANCE + self._probes) % SEQUENCES
        session = self.wire.session
        self.wire.send(Frame(Kind.REST, session, sequence, _PROBE_MOST, _PROBE_PAYLOAD), deadline)
        return sequence


@dataclass
class _Sent:
    """``on_line_bytes`` is its frame and that of a plain answer; ``under_way_bytes`` is all that
    was on the line when it was sent."""

    start: int
    piece: Piece
    sent_at: float
    on_line_bytes: int = 0
    under_way_bytes: int = 0
    once: bool = True


class _Transaction:
    """Sent and unanswered pieces are numbered from ``exchange.sequence`` on."""

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
        """As many pieces as may be under way; none while it is not known which have arrived."""
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
        """The next answer should come soon; with every try in vain it is given more time."""
        exchange = self._exchange
        on_line_bytes = self._under_way_bytes() + exchange.answers.bytes
        first_s = exchange.round_trip.limit_s(on_line_bytes)
        slowest_s = _SLOWEST_RETRY_IN_WINDOW_S if exchange.in_window else _SLOWEST_RETRY_S
        self._wait(min(first_s * _PATIENCE ** min(self._tries, 64), max(first_s, slowest_s)))

    def _wait(self, wait_s: float) -> None:
        self._until = time.monotonic() + min(wait_s, self._deadline.remaining_s)

    # --- what the board says ---------------------------------------------------------------------

    def _heard(self, frame: Frame) -> Frame | None:
        """The answer to the last piece, or a refusal."""
        if frame.kind is Kind.STRANGER:
            raise StrangerError(f"{self._exchange.board}: the board has started anew")
        if frame.kind is Kind.EXPECTED and frame.sequence == self._probe:
            self._located(_EXPECTED.unpack(frame.payload)[0])
            return None
        index = (frame.sequence - self._exchange.sequence) % SEQUENCES
        if index >= len(self._sent):
            return None  # said before, about what is settled
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
        """Said again, it means the same: the window is still open."""
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
        """What was sent before the probe has arrived up to there, and nothing behind it will."""
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

    # --- what it did not say ---------------------------------------------------------------------

    def _ask_again(self) -> None:
        self._tries += 1
        if self._only_answer_missing:
            self._exchange.answers.shrink()
            self._repeat()
        else:
            self._probe = self._exchange.probe(self._deadline)
            self._rearm()

    def _repeat(self) -> None:
        """In a window, nobody hears it; behind one, the answer was lost."""
        self._sent[0].once = False
        self._send(0, self._sent[0].piece.repeat)

    def _lost(self) -> str:
        board, limit_s = self._exchange.board, self._deadline.seconds
        if self._exchange.in_window:
            return (
                f"{board}: a window was opened and the board not heard of again within"
                f" {limit_s:.3g} s. Is it still powered?"
            )
        remedy = self._exchange.wire.line.remedy
        return f"{board}: the board has not answered for {limit_s:.3g} s. {remedy}"
