"""Messages that a Joulescope's driver publishes, and the capture that they form.

Every message of a stream carries ``sample_id``, which counts ``sample_rate`` a second and is common
to all streams of a device, ``decimate_factor`` (ids between two of its samples) and ``data``:
float32, NaN where the device missed a sample, or for a logic input 8 levels a byte, the lowest bit
first (joulescope_driver, ``include/jsdrv.h``). A gap between messages shows in the ids.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profiler.meters.capture import Capture, Flaw

# Taps to the centre of the driver's filters that divide a rate by 2 and by 5 (src/downsample.c).
_CENTRE_TAPS = {2: 19, 5: 44}
# Delay from the last sample of a message to its arrival here: USB and two threads.
_LATENCY_S = 5e-3
# Relative drift between the crystals of the device and of this computer.
_DRIFT = 50e-6


def filter_lag_s(from_hz: float, to_hz: float) -> float:
    """Delay of samples by the driver's filters. They divide the rate by 2 as often as possible,
    then by 5."""
    lag_s, factor = 0.0, round(from_hz / to_hz)
    while factor > 1:
        by = 2 if factor % 2 == 0 else 5
        lag_s += _CENTRE_TAPS[by] / from_hz
        from_hz, factor = from_hz / by, factor // by
    return lag_s


@dataclass(frozen=True)
class _Part:
    """One message of a stream. ``end_id`` is the id after its last sample."""

    start_id: int
    end_id: int
    values: NDArray[Any]


class Stream:
    """Collects one stream of a device. ``keep`` maps a message's data to the values to keep.

    Messages arrive in a thread of the driver.
    """

    def __init__(self, keep: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self.parts: list[_Part] = []
        self.ids_per_s = 0
        self.ids_per_sample = 0
        self.zero_s = math.inf
        """Time of id 0 on this computer's clock: no message arrives before its last sample."""
        self.is_broken = False
        self._keep: Final = keep
        self._changed = threading.Condition()

    def on_message(self, _topic: str, message: Mapping[str, Any]) -> None:
        arrived_s = time.monotonic()
        data = message["data"]
        count = len(data) * (8 if data.dtype == np.uint8 else 1)
        start_id, step = int(message["sample_id"]), int(message["decimate_factor"])
        part = _Part(start_id, start_id + count * step, self._keep(data))
        with self._changed:
            self.ids_per_s, self.ids_per_sample = int(message["sample_rate"]), step
            self.zero_s = min(self.zero_s, arrived_s - part.end_id / self.ids_per_s)
            self.is_broken |= bool(self.parts) and start_id < self.parts[-1].end_id
            self.parts.append(part)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self.parts, self.zero_s, self.is_broken = [], math.inf, False

    def wait_for(self, sample_id: int, timeout_s: float) -> bool:
        """Wait for a message that reaches this id; False after the time-out."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self.parts) and self.parts[-1].end_id >= sample_id, timeout_s
            )

    def id_at(self, time_s: float) -> int:
        """The id at an instant of this computer's clock, reduced by the delay of a message."""
        return math.ceil((time_s - self.zero_s) * self.ids_per_s)


def all_values(data: NDArray[Any]) -> NDArray[Any]:
    """Keep everything."""
    return data


def limited_to(limit: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Keep the positions in the message of samples at or beyond a limit."""
    return lambda data: np.flatnonzero(np.abs(data) >= limit)


def level_changes(data: NDArray[Any]) -> NDArray[Any]:
    """Keep the positions at which a logic input's level changes; the first position too if it is
    high."""
    levels = np.unpackbits(data, bitorder="little")
    return np.flatnonzero(np.diff(levels, prepend=np.uint8(0)))


def to_capture(
    power: Stream, limits: list[Stream], inputs: Mapping[int, Stream], lag_s: float
) -> Capture:
    """Make a capture from streams. It ends with the stream that ends first; a sample for which
    any stream lacks a message is lost.

    Args:
        power: Power, kept by :func:`all_values`.
        limits: Streams that saturate, kept by :func:`limited_to`.
        inputs: Logic inputs by number, kept by :func:`level_changes`.
        lag_s: Delay of power relative to the inputs.
    """
    step, ids_per_s = power.ids_per_sample, power.ids_per_s
    first_id = power.parts[0].start_id
    end_id = min(stream.parts[-1].end_id for stream in (power, *limits, *inputs.values()))
    count = max(0, (end_id - first_id) // step)
    power_w = np.full(count, np.nan, dtype=np.float32)
    for part in power.parts:
        at = (part.start_id - first_id) // step
        power_w[at : at + len(part.values)] = part.values[: max(0, count - at)]
    flaws = np.where(np.isnan(power_w), np.uint8(Flaw.LOST), np.uint8(0))
    power_ids = first_id + step * np.arange(count, dtype=np.int64)
    for limit in limits:
        flaws[~_message_of(limit, power_ids)[1]] |= np.uint8(Flaw.LOST)
        for part in limit.parts:
            beyond = (part.start_id - first_id) // step + part.values
            flaws[beyond[(beyond >= 0) & (beyond < count)]] |= np.uint8(Flaw.SATURATED)
    ids = power_ids - round(lag_s * ids_per_s)
    bits = np.zeros(count, dtype=np.uint8)
    for number, stream in inputs.items():
        levels, are_known = _levels(stream, ids)
        bits |= levels.astype(np.uint8) << np.uint8(number)
        flaws[~are_known] |= np.uint8(Flaw.LOST)
    return Capture(
        start_s=power.zero_s + first_id / ids_per_s - lag_s,
        period_s=step / ids_per_s,
        power_w=power_w,
        flaws=flaws,
        inputs=bits if inputs else None,
        time_error_s=_LATENCY_S + _DRIFT * count * step / ids_per_s,
    )


def _levels(stream: Stream, ids: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Levels of a logic input at these ids, and whether a message contains them."""
    starts = np.array([part.start_id for part in stream.parts], dtype=np.int64)
    message, is_known = _message_of(stream, ids)
    # Every message begins low, before its changes.
    changed = np.concatenate(
        [part.start_id + stream.ids_per_sample * part.values for part in stream.parts]
    )
    until = np.searchsorted(changed, ids, side="right")
    before = np.searchsorted(changed, starts, side="left")[message]
    return (until - before) % 2 == 1, is_known


def _message_of(
    stream: Stream, ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The last message that begins at or before each id, and whether it contains the id."""
    starts = np.array([part.start_id for part in stream.parts], dtype=np.int64)
    ends = np.array([part.end_id for part in stream.parts], dtype=np.int64)
    message = np.searchsorted(starts, ids, side="right") - 1
    return message, (message >= 0) & (ids < ends[message])
