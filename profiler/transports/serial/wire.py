"""Frames of one session over a line that may be interrupted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from devices.errors import BoardUnreachable
from profiler.transports.deadline import Deadline
from profiler.transports.serial.frames import NOBODY, Decoder, Frame, encode
from profiler.transports.serial.line import Line, LineDownError

_REOPEN_PAUSE_S = 0.2
_PULSE_S = 0.25


class Wire:
    """Sends and receives the frames of one session.

    ``board`` is the board's name in messages; ``deadline_s`` is how long to wait for a lost line to
    come back. ``on_wait`` is called several times a second while something is awaited.
    """

    def __init__(self, line: Line, board: str, deadline_s: float) -> None:
        self.line = line
        self.decoder = Decoder()
        self.session = 0
        self.on_wait: Callable[[], None] = lambda: None
        self._board = board
        self._deadline_s = deadline_s
        self._frames: deque[Frame] = deque()

    def send(self, frame: Frame, deadline: Deadline) -> int:
        """Send a frame and return its number of bytes on the line. Raises
        :class:`~devices.errors.BoardUnreachable` when the line stays lost."""
        encoded = encode(frame)
        while True:
            try:
                self.line.send(encoded)
            except LineDownError as error:
                if deadline.expired:
                    raise BoardUnreachable(
                        f"{self._board}: the connection is lost again after every attempt to"
                        f" restore it: {error}. {self.line.remedy}"
                    ) from error
                self._reopen(deadline)
            else:
                return len(encoded)

    def receive(self, until: float, deadline: Deadline) -> Frame | None:
        """The next frame of the session, or of a board that has just started.

        None at the time ``until`` (of the monotonic clock), and after an interruption, when any
        frame under way may be lost. Raises as ``send``.
        """
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.session in {self.session, NOBODY} and frame.fits_its_kind:
                    return frame
            self.on_wait()
            wait_s = until - time.monotonic()
            if wait_s <= 0:
                return None
            try:
                received = self.line.receive(min(wait_s, _PULSE_S))
            except LineDownError:
                self._reopen(deadline)
                return None
            self._frames.extend(self.decoder.feed(received))

    def _reopen(self, deadline: Deadline) -> None:
        """Reopen the line. A pause limits the attempts on a port that opens and fails at once."""
        self.decoder.forget()
        limit = Deadline(min(self._deadline_s, deadline.remaining_s))
        while True:
            self.on_wait()
            time.sleep(min(_REOPEN_PAUSE_S, limit.remaining_s))
            try:
                self.line.open()
            except BoardUnreachable as error:
                if limit.expired:
                    raise BoardUnreachable(
                        f"{self._board}: the connection was lost and did not come back within"
                        f" {limit.seconds:.3g} s: {error}"
                    ) from error
            else:
                return
