"""Adapt the time limit of an answer and the size of a frame to the line."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALLEST_PIECE_BYTES = 16
_GROWTH = (
    4  # by a quarter; with halving on loss, in balance where about a quarter of all frames are lost
)

_BITS_PER_BYTE = 10  # with start and stop bit

# Constants of TCP's time-out in RFC 6298: gains, and the number of deviations.
_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4
_UNMEASURED_S = 0.25
_SHORTEST_S = 0.005  # of the order of this computer's scheduling


@dataclass
class PieceSize:
    """Payload size in bytes, between a fixed minimum and ``most``, where it starts."""

    most: int
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = self.most

    def shrink(self) -> None:
        """Halve the size, since a frame of this size was lost."""
        self.bytes = max(min(SMALLEST_PIECE_BYTES, self.most), self.bytes // 2)

    def grow(self, arrived_bytes: int) -> None:
        """Grow the size, since a frame arrived. A much smaller frame is ignored, as it proves
        nothing."""
        if 2 * arrived_bytes >= self.bytes:
            self.bytes = min(self.most, self.bytes + max(1, self.bytes // _GROWTH))


class RoundTrip:
    """Time limit of an answer.

    It is the time of the bytes on the line, at most what the baud rate implies, plus the remaining
    delay, smoothed with its deviation as in RFC 6298.
    """

    def __init__(self, baud: int) -> None:
        self._byte_s = _BITS_PER_BYTE / baud
        self._smoothed_s: float | None = None
        self._deviation_s = 0.0

    def limit_s(self, on_line_bytes: int) -> float:
        """Time limit for so many bytes, there and back."""
        over_s = _UNMEASURED_S
        if self._smoothed_s is not None:
            over_s = self._smoothed_s + _DEVIATIONS * self._deviation_s
        return max(_SHORTEST_S, over_s) + self._byte_s * on_line_bytes

    def learn(self, on_line_bytes: int, passed_s: float) -> None:
        """Learn from an answer to a frame that was sent only once."""
        self._byte_s = min(
            self._byte_s, passed_s / on_line_bytes
        )  # some lines are faster than their nominal rate
        over_s = passed_s - self._byte_s * on_line_bytes
        if self._smoothed_s is None:
            self._smoothed_s, self._deviation_s = over_s, over_s / 2
            return
        error_s = over_s - self._smoothed_s
        self._deviation_s += _DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
        self._smoothed_s += _GAIN * error_s
