"""Synchronisation by a line of the board that is high while a window is open.

The line also rises in windows that are not recorded (calibration, repeated tries), so the recorded
windows are identified among the pulses by their lengths and by the time between them::

    line      ▁▇▇▁▁▇▁▇▇▇▁▁▁▇▇▇▁▁▇▇▇▇▇▁
    windows    └┘   └─┘   (×)  └───┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from devices.errors import MeasurementInvalid
from profiler.meters.base import BlockRecord
from profiler.meters.capture import Capture, Flaw
from profiler.meters.sync.base import MOST_RATE_ERROR, ClockMap, SyncLost

_RATE_WANDER = 2e-3
"""Largest change of the rate during a block, as of an RC oscillator that warms up."""

_LATENCY_S = 300e-6
"""Delay between the line and the reading of the clock, on a board with an operating system."""

_MOST_UNMATCHED = 0.1
"""Largest share of windows whose pulse a glitch has split. Their neighbours give their times."""

_RECENT = 16
_CLEARLY_WORSE = 3.0


@dataclass(frozen=True)
class _Pulses:
    """Rising and falling edges on the instrument's time base: float64 [pulses]."""

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start_s)


@dataclass(frozen=True)
class _Match:
    """Pairs of a window and a pulse, and the rms distance of starts from their expected times."""

    pairs: list[tuple[int, int]]
    missed_s: float


@dataclass(frozen=True)
class GpioSynchroniser:
    """Implements :class:`~profiler.meters.sync.base.Synchroniser` by a line on logic input
    ``input``."""

    input: int
    marker: None = None
    guard_s: float = 0.0

    @property
    def name(self) -> str:
        return f"gpio: the board's line on logic input {self.input}"

    def clock(self, capture: Capture, block: BlockRecord) -> ClockMap:
        pulses = _pulses(capture, self.input)
        if len(pulses) == 0 and capture.flawed(Flaw.LOST, slice(None)).any():
            raise SyncLost("all edges of the sync line are among lost samples")
        if len(pulses) == 0:
            raise MeasurementInvalid(
                f"logic input {self.input} of the instrument saw no window during a whole block:"
                " check the wire from the board's sync line, the instrument's logic supply (on a"
                " PPK2: VCC of the logic port), and sync.input in the description"
            )
        match = _Matcher(capture, pulses, _recorded(capture, block.windows_ns)).best()
        windows = [window for window, _ in match.pairs]
        chosen = [pulse for _, pulse in match.pairs]
        edges_ns = np.array(block.windows_ns, dtype=np.int64)[windows]
        edges_s = np.stack([pulses.start_s[chosen], pulses.end_s[chosen]], axis=1)
        excess_s = _excess_s(edges_s, edges_ns, capture.period_s)
        # Which part of it comes before the window is not known.
        edges_s += np.stack([excess_s / 2, -excess_s / 2], axis=1)
        return ClockMap(
            board_ns=edges_ns.ravel(),
            meter_s=edges_s.ravel(),
            uncertainty_s=capture.period_s / 2 + float(np.quantile(excess_s, 0.95)) / 2,
        )


def _excess_s(
    pulses_s: NDArray[np.float64], windows_ns: NDArray[np.int64], period_s: float
) -> NDArray[np.float64]:
    """How much longer each pulse is than its window, float64 [pairs]; both are [pairs, 2].

    The line rises before the board reads its clock, and falls after it. An excess of less than a
    sample period cannot be told from the distance of the samples, and counts as none.
    """
    windows_s = (windows_ns - windows_ns[0, 0]) / 1e9
    if len(windows_s) == 1:
        return np.zeros(1)
    rate = float(pulses_s[-1, 0] - pulses_s[0, 0]) / float(windows_s[-1, 0])
    excess_s = np.diff(pulses_s, axis=1)[:, 0] - rate * np.diff(windows_s, axis=1)[:, 0]
    if np.median(excess_s) <= period_s:
        return np.zeros(len(excess_s))
    return np.asarray(np.maximum(excess_s, 0.0))


def _recorded(
    capture: Capture, windows_ns: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int], ...]:
    """Windows, in order of time, that can lie within the capture.

    An instrument whose memory is full drops what comes later. The capture begins before the first
    window.
    """
    begin_ns, length_s = windows_ns[0][0], capture.end_s - capture.start_s
    longest_ns = 1e9 * length_s / (1 - MOST_RATE_ERROR)
    fitting = tuple(each for each in windows_ns if each[1] - begin_ns <= longest_ns)
    return fitting or windows_ns[:1]


def _pulses(capture: Capture, number: int) -> _Pulses:
    """Pulses of a logic input. An edge lies between two samples.

    Pulses that begin or end among lost samples are left out; their windows are void.
    """
    if capture.inputs is None:
        raise MeasurementInvalid("the instrument recorded no logic inputs: use another sync")
    level = ((capture.inputs >> number) & 1).astype(np.int8)
    changed = np.flatnonzero(np.diff(level)) + 1
    if len(changed) == 0:
        return _Pulses(np.empty(0), np.empty(0))
    edges_s = capture.time_s(changed) - capture.period_s / 2
    lost = capture.flawed(Flaw.LOST, slice(None))
    seen = ~(lost[changed] | lost[changed - 1])
    first = (
        0 if level[changed[0]] else 1
    )  # the start of a line that is high from the beginning is unknown
    falling = slice(first + 1, None, 2)
    count = len(edges_s[falling])
    rising = slice(first, first + 2 * count, 2)
    whole = seen[rising] & seen[falling]
    return _Pulses(edges_s[rising][whole], edges_s[falling][whole])


class _Matcher:
    """Walks along windows and pulses together. The rate of the two clocks, learnt so far, predicts
    the next pulse."""

    def __init__(
        self, capture: Capture, pulses: _Pulses, windows_ns: tuple[tuple[int, int], ...]
    ) -> None:
        self._capture: Final = capture
        self._pulses: Final = pulses
        self._latency_s: Final = _LATENCY_S + capture.period_s
        table = np.array(windows_ns, dtype=np.int64)
        self._windows_s: Final = (table - table[0, 0]) / 1e9

    def best(self) -> _Match:
        """The best match. Raises :class:`SyncLost` if no walk succeeds, or several do."""
        found = sorted(self._walks(), key=lambda match: match.missed_s)
        if not found:
            raise SyncLost(
                f"{len(self._pulses)} pulses of the sync line do not fit the"
                f" {len(self._windows_s)} windows that the board recorded: look for noise on the"
                " line, or for another program that drives it"
            )
        best = found[0]
        floor_s = self._capture.period_s
        for other in found[1:]:
            differs = any(dict(best.pairs).get(w, p) != p for w, p in other.pairs)
            if differs and other.missed_s <= _CLEARLY_WORSE * best.missed_s + floor_s:
                raise SyncLost("the pulses of the sync line fit the board's windows in two ways")
        return best

    def _walks(self) -> Iterator[_Match]:
        allowed = self._most_unmatched()
        for window in range(allowed + 1):
            for pulse in range(len(self._pulses)):
                match = self._walk(window, pulse, allowed - window)
                if match is not None:
                    yield match

    def _most_unmatched(self) -> int:
        """Windows whose pulse may be missing: a share of all, and as many as can lie among lost
        samples."""
        count = len(self._windows_s)
        lost = int(np.count_nonzero(self._capture.flawed(Flaw.LOST, slice(None))))
        shortest_s = float(np.diff(self._windows_s, axis=1).min())
        hidden = 1 + int(lost * self._capture.period_s / shortest_s) if lost else 0
        return min(int(_MOST_UNMATCHED * count) + hidden, count // 2)

    def _walk(self, window: int, pulse: int, allowed: int) -> _Match | None:
        pulses, windows_s = self._pulses, self._windows_s
        if not self._fits(window, pulse, 1.0, MOST_RATE_ERROR):
            return None
        pairs = [(window, pulse)]
        missed: list[float] = []
        for following in range(window + 1, len(windows_s)):
            rate, rate_error = self._rate(pairs)
            at_window, at_pulse = pairs[-1]
            gap_s = windows_s[following, 0] - windows_s[at_window, 1]
            expected_s = float(pulses.end_s[at_pulse] + rate * gap_s)
            leeway_s = self._latency_s + rate_error * gap_s
            found = self._nearest(following, at_pulse, expected_s, leeway_s, rate, rate_error)
            if found is not None:
                pairs.append((following, found))
                missed.append(float(pulses.start_s[found]) - expected_s)
            else:
                allowed -= 1
                if allowed < 0:
                    return None
        missed_s = float(np.sqrt(np.mean(np.square(missed)))) if missed else 0.0
        return _Match(pairs, missed_s)

    def _rate(self, pairs: list[tuple[int, int]]) -> tuple[float, float]:
        """Seconds of the instrument per second of the board, and the error of this rate. Both come
        from the windows that were matched last."""
        first, last = pairs[-_RECENT:][0], pairs[-1]
        span_s = float(self._windows_s[last[0], 1] - self._windows_s[first[0], 0])
        pulses = self._pulses
        error = self._latency_s / span_s + _RATE_WANDER
        if error >= MOST_RATE_ERROR:
            return 1.0, MOST_RATE_ERROR
        return float(pulses.end_s[last[1]] - pulses.start_s[first[1]]) / span_s, error

    def _nearest(
        self,
        window: int,
        after: int,
        expected_s: float,
        leeway_s: float,
        rate: float,
        rate_error: float,
    ) -> int | None:
        starts_s = self._pulses.start_s
        low = max(int(np.searchsorted(starts_s, expected_s - leeway_s)), after + 1)
        high = int(np.searchsorted(starts_s, expected_s + leeway_s, side="right"))
        fitting = [p for p in range(low, high) if self._fits(window, p, rate, rate_error)]
        return min(fitting, key=lambda p: abs(starts_s[p] - expected_s), default=None)

    def _fits(self, window: int, pulse: int, rate: float, rate_error: float) -> bool:
        window_s = float(self._windows_s[window, 1] - self._windows_s[window, 0])
        pulse_s = float(self._pulses.end_s[pulse] - self._pulses.start_s[pulse])
        leeway_s = self._latency_s + rate_error * window_s
        return abs(pulse_s - rate * window_s) <= leeway_s
