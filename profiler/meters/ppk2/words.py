"""The stream of a Nordic PPK2: 100,000 little-endian words of 32 bits a second.

    bits   31 … 24        23 … 18          17    16 … 14   13 … 0
           logic inputs   sample counter   –     range     ADC, in units of four

(Layout as in Nordic's Power Profiler app.) The counter rises by one with every sample, which shows
lost samples. It also shows lost single bytes: words read from the wrong byte do not count upwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORD_BYTES = 4
COUNTER_STEPS = 64
RANGES = 5

_LOCK_WORDS = 32
"""Words in a row that must count upwards to be recognised as the stream."""
_LOOK_WORDS = 256
_FIRST_BLOCK_WORDS = 1 << 12
_LARGEST_BLOCK_WORDS = 1 << 20


@dataclass(frozen=True)
class Run:
    """Words without a gap: ``words`` from ``first_byte`` of the stream on. ``index`` is the number
    of the first sample, with lost ones counted."""

    first_byte: int
    words: int
    index: int

    @property
    def end_byte(self) -> int:
        return self.first_byte + WORD_BYTES * self.words

    @property
    def end_index(self) -> int:
        return self.index + self.words


def logic_of(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return (words >> np.uint32(24)).astype(np.uint8)


def counter_of(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return ((words >> np.uint32(18)) & np.uint32(0x3F)).astype(np.uint8)


def range_of(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return ((words >> np.uint32(14)) & np.uint32(0x7)).astype(np.uint8)


def adc_of(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return words & np.uint32(0x3FFF)


def words_of(stream: bytes | bytearray, first_byte: int, count: int) -> NDArray[np.uint32]:
    available = (len(stream) - first_byte) // WORD_BYTES
    return np.frombuffer(stream, "<u4", max(0, min(count, available)), first_byte)


def find_runs(stream: bytes | bytearray) -> list[Run]:
    """Every run of words that count upwards; samples between two runs are lost.

    The counter gives their number only modulo 64; the smallest possible number is assumed.
    """
    runs: list[Run] = []
    at = 0
    while (start := _lock(stream, at)) is not None:
        words = _run_words(stream, start)
        index = runs[-1].end_index + _missing(stream, runs[-1], start) if runs else 0
        runs.append(Run(start, words, index))
        at = runs[-1].end_byte
    return runs


def _counts_upwards(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """bool [words - 1]: whether the following word is the next sample."""
    counters, ranges = counter_of(words), range_of(words)
    steps: NDArray[np.bool_] = ((counters[1:] - counters[:-1]) & 0x3F) == 1
    in_range = ranges < RANGES
    return steps & in_range[1:] & in_range[:-1]


def _lock(stream: bytes | bytearray, at: int) -> int | None:
    """First byte, from ``at`` on, of a run that is long enough. If words can be read from more than
    one byte, the longest run is right."""
    while len(stream) - at >= WORD_BYTES * (_LOCK_WORDS + 1):
        found: list[tuple[int, int]] = []
        for byte in range(at, at + WORD_BYTES):
            good = _counts_upwards(words_of(stream, byte, _LOOK_WORDS))
            stops = np.concatenate([[-1], np.flatnonzero(~good), [len(good)]])
            lengths = np.diff(stops) - 1
            first = int(np.argmax(lengths >= _LOCK_WORDS))
            if lengths[first] >= _LOCK_WORDS:
                found.append((-int(lengths[first]), byte + WORD_BYTES * (int(stops[first]) + 1)))
        if found:
            # Two true runs are at least the shortest run apart.
            earliest = min(start for _, start in found)
            return min(f for f in found if f[1] < earliest + WORD_BYTES * _LOCK_WORDS)[1]
        at += WORD_BYTES * (_LOOK_WORDS - _LOCK_WORDS)
    return None


def _run_words(stream: bytes | bytearray, start: int) -> int:
    """Length in words of the run that begins at ``start``."""
    done, block = 0, _FIRST_BLOCK_WORDS
    while True:
        words = words_of(stream, start + WORD_BYTES * done, block + 1)
        bad = np.flatnonzero(~_counts_upwards(words))
        if len(bad):
            return done + int(bad[0]) + 1
        if len(words) <= block:
            return done + len(words)
        done += block
        block = min(4 * block, _LARGEST_BLOCK_WORDS)


def _missing(stream: bytes | bytearray, before: Run, start: int) -> int:
    """Samples between a run and the run that begins at ``start``."""
    last = int(counter_of(words_of(stream, before.end_byte - WORD_BYTES, 1))[0])
    following = int(counter_of(words_of(stream, start, 1))[0])
    missing = (following - last - 1) % COUNTER_STEPS
    skipped_words = (start - before.end_byte) // WORD_BYTES
    laps = -(min(0, missing - skipped_words) // COUNTER_STEPS)
    return missing + laps * COUNTER_STEPS
