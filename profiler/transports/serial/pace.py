"""How long an answer takes, and how long a frame may be: both follow what the line does."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALLEST_PIECE_BYTES = 16
_GROWTH = 4  # by a quarter: with halving, balanced where about a quarter of all frames are lost

_BITS_PER_BYTE = 10  # with start and stop bit

# Of the time-out that RFC 6298 sets for TCP: gains, and how many deviations count.
_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4
_UNMEASURED_S = 0.25
_SHORTEST_S = 0.005  # within this computer's scheduling


@dataclass
class PieceSize:
    """``most`` is the largest there may be, and where it begins."""

    most: int
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = self.most

    def shrink(self) -> None:
        """Such a frame was lost."""
        self.bytes = max(min(SMALLEST_PIECE_BYTES, self.most), self.bytes // 2)

    def grow(self, arrived_bytes: int) -> None:
        """Such a frame arrived, unless it was a much smaller one, which says nothing."""
        if 2 * arrived_bytes >= self.bytes:
            self.bytes = min(self.most, self.bytes + max(1, self.bytes // _GROWTH))


class RoundTrip:
    """The time until an answer is given up: that of the bytes on the line, which is at most what
    the baud rate says, and what comes on top, smoothed with its deviation as in RFC 6298."""

    def __init__(self, baud: int) -> None:
        self._byte_s = _BITS_PER_BYTE / baud
        self._smoothed_s: float | None = None
        self._deviation_s = 0.0

    def limit_s(self, on_line_bytes: int) -> float:
        """For so many bytes, there and back."""
        over_s = _UNMEASURED_S
        if self._smoothed_s is not None:
            over_s = self._smoothed_s + _DEVIATIONS * self._deviation_s
        return max(_SHORTEST_S, over_s) + self._byte_s * on_line_bytes

    def learn(self, on_line_bytes: int, passed_s: float) -> None:
        """From an answer to what was sent only once."""
        self._byte_s = min(self._byte_s, passed_s / on_line_bytes)  # some lines only claim a rate
        over_s = passed_s - self._byte_s * on_line_bytes
        if self._smoothed_s is None:
            self._smoothed_s, self._deviation_s = over_s, over_s / 2
            return
        error_s = over_s - self._smoothed_s
        self._deviation_s += _DEVIATION_GAIN * (abs(error_s) - self._deviation_s)
        self._smoothed_s += _GAIN * error_s
