"""Decode the stream of a PPK2 into a capture."""

from __future__ import annotations

import numpy as np

from devices.meters import Ppk2Meter
from profiler.meters.capture import Capture, Flaw
from profiler.meters.ppk2.current import AmpereDecoder, Metadata
from profiler.meters.ppk2.losses import Arrivals, Timeline, timeline
from profiler.meters.ppk2.words import WORD_BYTES, find_runs, logic_of, words_of

RATE_HZ = Ppk2Meter.rate_hz

_DECODED_WORDS = 1 << 17
_UNSURE = 4


def decode(
    stream: bytes, arrivals: Arrivals, metadata: Metadata, supply_v: float
) -> Capture | None:
    """Decode ``stream``, as received between start and stop; None if it contains no sample."""
    runs = find_runs(stream)
    if not runs:
        return None
    line = timeline(runs, arrivals, 1 / RATE_HZ)
    power_w = np.full(len(line), np.nan, dtype=np.float32)
    flaws = np.full(len(line), np.uint8(Flaw.LOST))
    inputs = np.zeros(len(line), dtype=np.uint8)
    decoder = AmpereDecoder(metadata, supply_v)
    ended = 0
    for run in line.runs:
        if ended:
            inputs[ended : run.index] = inputs[ended - 1]
        for done in range(0, run.words, _DECODED_WORDS):
            count = min(_DECODED_WORDS, run.words - done)
            words = words_of(stream, run.first_byte + WORD_BYTES * done, count)
            decoded = decoder.decode(words)
            part = slice(run.index + done, run.index + done + count)
            power_w[part] = decoded.current_a * supply_v
            flaws[part] = decoded.settling * np.uint8(Flaw.RANGE_SWITCH)
            flaws[part] |= decoded.saturated * np.uint8(Flaw.SATURATED)
            inputs[part] = logic_of(words)
        ended = run.end_index
    for first, last in _untrusted(line):
        power_w[first:last], flaws[first:last] = np.nan, Flaw.LOST
    return Capture(
        start_s=line.start_s,
        period_s=1 / RATE_HZ,
        power_w=power_w,
        flaws=flaws,
        inputs=inputs,
        time_error_s=line.error_s,
    )


def _untrusted(line: Timeline) -> list[tuple[int, int]]:
    """Ranges of samples that arrived but cannot be used.

    Next to a gap, a word may have been assembled from the bytes of two and fit the counter by
    chance (one in 64).
    """
    gaps = list(zip(line.runs[:-1], line.runs[1:], strict=True))
    before = [(max(run.index, run.end_index - _UNSURE), run.end_index) for run, _ in gaps]
    after = [(run.index, min(run.index + _UNSURE, run.end_index)) for _, run in gaps]
    return [*line.doubtful, *before, *after]
