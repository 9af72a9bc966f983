"""Detect samples of a PPK2 that were lost in multiples of 64, which its counter cannot show.

They show in time. A sample arrives some latency after it was taken; the latency varies, but its
minimum over a second or two does not. When 64 samples are lost, all later samples seem to arrive
0.64 ms late, permanently::

    late by   ·  ·    · ·    ·   ·  | ·    ·  ·
              ▁▁·▁▁·▁▁▁·▁▁·▁▁▁·▁▁▁▁▁|▔▔·▔▔▔▔▔·▔▔▔·▔   least of two seconds
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiler.meters.ppk2.words import COUNTER_STEPS, WORD_BYTES, Run

JUDGED_S = 0.5
"""Time with arrivals that is needed before and after a loss to detect it."""

_WINDOW_S = 2.0
_BIN_S = 0.02
# Delay of a sample in the instrument's buffers and on USB, whose frames are 1 ms apart.
_LATENCY_S = 2e-3
# In samples. Two crystals that differ by 100 ppm drift 20 samples apart in two seconds.
_LEAST_STEP = 40
# This many arrivals as early as any after a loss cannot all be late ones from before it.
_SETTLED = 3


@dataclass(frozen=True)
class Arrivals:
    """After each piece that was read: bytes of the stream so far (int64 [pieces]), and the time
    (float64 [pieces], ``time.monotonic()``)."""

    bytes_so_far: NDArray[np.int64]
    times_s: NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Runs of samples, with all missing samples between them counted.

    ``doubtful`` lists ranges of samples in which some are missing at unknown places. ``start_s`` is
    the time of the first sample on ``time.monotonic()``, with an error of up to ``error_s``.
    """

    runs: list[Run]
    doubtful: list[tuple[int, int]]
    start_s: float
    error_s: float

    def __len__(self) -> int:
        return self.runs[-1].end_index


def timeline(runs: list[Run], arrivals: Arrivals, period_s: float) -> Timeline:
    """Find the losses in ``runs``, at least one, which count samples as the counter shows them."""
    samples, times_s, ended = _samples_by_arrival(runs, arrivals)
    late = times_s / period_s - samples
    late -= late.min()
    doubtful: list[tuple[int, int]] = []
    after = -1
    while (step := _first_step(times_s, late, after)) is not None:
        missing = COUNTER_STEPS * max(1, round(step.samples / COUNTER_STEPS))
        runs = _insert(runs, int(ended[step.low]), int(ended[step.high]), missing)
        doubtful.append((int(samples[step.low]), int(samples[step.high]) + missing))
        samples[step.high :] += missing
        late[step.high :] -= missing
        kept = np.r_[: step.low + 1, step.high : len(late)]
        times_s, late, samples, ended = times_s[kept], late[kept], samples[kept], ended[kept]
        after = step.bin
    start_s, error_s = _start(times_s, samples, period_s)
    return Timeline(runs, doubtful, start_s, error_s)


def _samples_by_arrival(
    runs: list[Run], arrivals: Arrivals
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """For each piece: samples taken before it arrived (lost ones included), its time, and its end
    in the stream. Pieces that complete no sample are left out."""
    first = np.array([run.first_byte for run in runs])
    words = np.array([run.words for run in runs])
    index = np.array([run.index for run in runs])
    # The last run whose first word had arrived.
    run = np.searchsorted(first + WORD_BYTES, arrivals.bytes_so_far, side="right") - 1
    kept = np.flatnonzero(run >= 0)
    run, ended = run[kept], arrivals.bytes_so_far[kept]
    samples = index[run] + np.minimum((ended - first[run]) // WORD_BYTES, words[run])
    more = np.flatnonzero(np.diff(samples, prepend=-1) > 0)
    return samples[more], arrivals.times_s[kept][more], ended[more]


@dataclass(frozen=True)
class _Step:
    """A permanent delay: all arrivals after a bin are later than before it, by ``samples``.

    Losses lie between the arrivals ``low``, the last one as early as before, and ``high``, by which
    several arrivals were as early as any later one.
    """

    bin: int
    samples: float
    low: int
    high: int


def _first_step(
    times_s: NDArray[np.float64], late: NDArray[np.float64], after: int
) -> _Step | None:
    """The first step after bin ``after``; None without one."""
    if len(times_s) < 2 or times_s[-1] - times_s[0] < 2 * JUDGED_S:
        return None
    # Bins without arrivals do not count: the reader may have been delayed for seconds.
    numbers, bins = np.unique(
        ((times_s - times_s[0]) / _BIN_S).astype(np.int64), return_inverse=True
    )
    least = np.full(len(numbers), np.inf)
    np.minimum.at(least, bins, late)
    reach = round(_WINDOW_S / _BIN_S)
    padded = np.concatenate([np.full(reach, np.inf), least, np.full(reach, np.inf)])
    least_ahead = np.lib.stride_tricks.sliding_window_view(padded, reach).min(axis=1)
    # At the start of each bin: the least of the bins before it, and of those from it on.
    before, after_it = least_ahead[: len(least)], least_ahead[reach : reach + len(least)]
    judged = round(JUDGED_S / _BIN_S) // 2
    first = max(judged, int(np.searchsorted(numbers, after, side="right")))
    last = len(least) - judged
    if first >= last:
        return None
    steps = np.flatnonzero(after_it[first:last] - before[first:last] >= _LEAST_STEP)
    if len(steps) == 0:
        return None
    boundary = first + int(steps[0])
    # Losses in quick succession, and a loss during a backlog, are treated as one.
    settled = min(boundary + judged, len(least) - 1)
    level = after_it[settled]
    low = _last(late < before[boundary] + _LEAST_STEP / 2, bins, boundary)
    lower = _last(late < level - _LEAST_STEP / 2, bins, settled)
    high = np.flatnonzero(late < level + _LEAST_STEP / 2)
    high = high[high > max(low, lower)]
    return _Step(
        bin=int(numbers[settled]),
        samples=float(level - before[boundary]),
        low=low,
        high=int(high[min(_SETTLED, len(high)) - 1]),
    )


def _last(chosen: NDArray[np.bool_], bins: NDArray[np.int64], boundary: int) -> int:
    """Last chosen arrival before a boundary, -1 without one."""
    return int(np.flatnonzero(np.append(True, chosen & (bins < boundary)))[-1]) - 1


def _insert(runs: list[Run], low_byte: int, high_byte: int, missing: int) -> list[Run]:
    """Insert missing samples at the first gap between two bytes of the stream. Without a gap,
    insert them at the first of these bytes."""
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
    """Time of the first sample, and its error. It is estimated from the earliest arrival of each
    second, which wanders because the crystals differ."""
    zero_s = times_s - period_s * (samples - 1)
    seconds = (times_s - times_s[0]).astype(np.int64)
    least_s = np.full(int(seconds[-1]) + 1, np.inf)
    np.minimum.at(least_s, seconds, zero_s)
    # The last second is incomplete, so that its minimum is too high.
    least_s = least_s[: max(1, len(least_s) - 1)]
    least_s = least_s[np.isfinite(least_s)]
    return float(least_s.min()), float(np.ptp(least_s)) + _LATENCY_S
