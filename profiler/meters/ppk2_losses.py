"""Samples of a PPK2 that were lost in multiples of 64, which its counter cannot show.

They show in time. A sample arrives some latency after it was taken; the latency varies, but its
least value over a second or two does not. When 64 samples are lost, everything behind them seems
0.64 ms later than it can have been, for good::

    late by   ·  ·    · ·    ·   ·  | ·    ·  ·
              ▁▁·▁▁·▁▁▁·▁▁·▁▁▁·▁▁▁▁▁|▔▔·▔▔▔▔▔·▔▔▔·▔   least of two seconds
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiler.meters.ppk2_words import COUNTER_STEPS, WORD_BYTES, Run

JUDGED_S = 0.5
"""Of arrivals that are needed in front of a loss, and behind it, to see it."""

_WINDOW_S = 2.0
_BIN_S = 0.02
# In samples. Two crystals that are 100 ppm apart come to 20 in two seconds.
_LEAST_STEP = 40


@dataclass(frozen=True)
class Arrivals:
    """After each piece that was read: bytes of the stream so far (int64 [pieces]), and when that
    was (float64 [pieces], ``time.monotonic()``)."""

    bytes_so_far: NDArray[np.int64]
    times_s: NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """``runs`` with all that is missing between them counted; ``doubtful`` ranges of samples among
    which some are missing, nobody knows where. ``start_s``: when the first sample was taken, on
    ``time.monotonic()``, which can be wrong by ``error_s``."""

    runs: list[Run]
    doubtful: list[tuple[int, int]]
    start_s: float
    error_s: float

    def __len__(self) -> int:
        return self.runs[-1].end_index


# A sample's way through the instrument's buffers and USB, whose frames are 1 ms apart.
_LATENCY_S = 2e-3


def timeline(runs: list[Run], arrivals: Arrivals, period_s: float) -> Timeline:
    """``runs`` as the counter has them, at least one."""
    samples, times_s, pieces_bytes = _samples_by_arrival(runs, arrivals)
    late = times_s / period_s - samples
    late -= late.min()
    doubtful: list[tuple[int, int]] = []
    after = 0.0
    while (step := _first_step(times_s, late, after)) is not None:
        after, low, size = step
        missing = COUNTER_STEPS * max(1, round(size / COUNTER_STEPS))
        first, last = int(samples[low]), int(samples[low + 1])
        runs = _insert(runs, int(pieces_bytes[low]), int(pieces_bytes[low + 1]), missing)
        doubtful.append((first, last + missing))
        samples[low + 1 :] += missing
        late[low + 1 :] -= missing
    start_s, error_s = _start(times_s, samples, period_s)
    return Timeline(runs, doubtful, start_s, error_s)


def _samples_by_arrival(
    runs: list[Run], arrivals: Arrivals
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Samples taken before each piece had arrived, lost ones counted, and when that was; only
    pieces that end in a run."""
    first = np.array([run.first_byte for run in runs])
    end = np.array([run.end_byte for run in runs])
    index = np.array([run.index for run in runs])
    bytes_so_far = arrivals.bytes_so_far
    run = np.searchsorted(first, bytes_so_far, side="left") - 1
    inside = (run >= 0) & (bytes_so_far - end[run] < WORD_BYTES)
    inside &= bytes_so_far - first[run] >= WORD_BYTES
    kept = np.flatnonzero(inside)
    run, ended = run[kept], bytes_so_far[kept]
    samples = index[run] + (ended - first[run]) // WORD_BYTES
    return samples.astype(np.int64), arrivals.times_s[kept], ended


def _first_step(
    times_s: NDArray[np.float64], late: NDArray[np.float64], after_s: float
) -> tuple[float, int, float] | None:
    """The first instant behind ``after_s`` from which on nothing is as early as it was; the last
    arrival that was; and by how many samples later all are."""
    if len(times_s) < 2 or times_s[-1] - times_s[0] < 2 * JUDGED_S:
        return None
    bins = ((times_s - times_s[0]) / _BIN_S).astype(np.int64)
    least = np.full(int(bins[-1]) + 1, np.inf)
    np.minimum.at(least, bins, late)
    reach = round(_WINDOW_S / _BIN_S)
    padded = np.concatenate([np.full(reach, np.inf), least, np.full(reach, np.inf)])
    least_ahead = np.lib.stride_tricks.sliding_window_view(padded, reach).min(axis=1)
    # For the boundary in front of bin b: the least of the bins before it, and of those from it on.
    before, behind = least_ahead[: len(least)], least_ahead[reach : reach + len(least)]
    with np.errstate(invalid="ignore"):
        size = behind - before
    judged = round(JUDGED_S / _BIN_S)
    first = max(judged, int((after_s - times_s[0]) / _BIN_S) + 1)
    steps = np.flatnonzero(size[first : len(least) - judged] >= _LEAST_STEP)
    if len(steps) == 0:
        return None
    boundary = first + int(steps[0])
    earlier = np.flatnonzero((bins < boundary) & (late < before[boundary] + _LEAST_STEP / 2))
    return float(times_s[0] + boundary * _BIN_S), int(earlier[-1]), float(size[boundary])


def _insert(runs: list[Run], low_byte: int, high_byte: int, missing: int) -> list[Run]:
    """So many samples more at the first gap between two bytes of the stream; where there is none,
    at the first of these bytes."""
    gap = next((n for n, run in enumerate(runs) if low_byte < run.first_byte <= high_byte), None)
    if gap is None:
        gap = 1 + next(n for n, run in enumerate(runs) if low_byte <= run.end_byte)
        cut = runs[gap - 1]
        words = (low_byte - cut.first_byte) // WORD_BYTES
        head = replace(cut, words=words)
        rest = Run(head.end_byte, cut.words - words, head.end_index)
        runs = [*runs[: gap - 1], head, rest, *runs[gap:]]
    return [*runs[:gap], *(replace(run, index=run.index + missing) for run in runs[gap:])]


def _start(
    times_s: NDArray[np.float64], samples: NDArray[np.int64], period_s: float
) -> tuple[float, float]:
    """From what arrived soonest, second by second: crystals that differ make it wander."""
    zero_s = times_s - period_s * (samples - 1)
    seconds = (times_s - times_s[0]).astype(np.int64)
    least_s = np.full(int(seconds[-1]) + 1, np.inf)
    np.minimum.at(least_s, seconds, zero_s)
    # The last second is not a whole one, and its least is not as little.
    least_s = least_s[: max(1, len(least_s) - 1)]
    least_s = least_s[np.isfinite(least_s)]
    return float(least_s.min()), float(np.ptp(least_s)) + _LATENCY_S
