"""Stand-in for Jetperch's driver object.

It has the methods of ``pyjoulescope_driver.Driver`` that the meter calls, and messages with the
keys and types of the real binding. It measures nothing: signals are functions of the sample id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MESSAGE_SAMPLES = 96
"""Samples in a message at 10 kHz; a message comes about every 10 ms at any rate."""
IDS_PER_S = {"js110": 2_000_000, "js220": 2_000_000, "js320": 16_000_000}

Signal = Callable[[NDArray[np.int64]], NDArray[Any]]


def constant(value: float) -> Signal:
    return lambda ids: np.full(len(ids), value, dtype=np.float32)


@dataclass
class DriverStandIn:
    """Stand-in for the driver with its devices. ``signals`` are by stream. ``to_lose`` counts the
    next messages of a stream that are dropped. ``first_id`` is the device's counter at the first
    start of a stream."""

    paths: list[str] = field(default_factory=lambda: ["u/js220/000415"])
    signals: dict[str, Signal] = field(default_factory=dict)
    to_lose: dict[str, int] = field(default_factory=dict)
    first_id: int = 123_456_000
    opens: bool = True
    published: dict[str, Any] = field(default_factory=dict)
    opened: dict[str, str] = field(default_factory=dict)
    is_finalized: bool = False
    subscribers: dict[str, Callable[[str, dict[str, Any]], None]] = field(default_factory=dict)
    unplugged: threading.Event = field(default_factory=threading.Event)
    _streaming: dict[str, threading.Event] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)
    _threads: list[threading.Thread] = field(default_factory=list)

    # --- the driver's methods

    def device_paths(self, _timeout: float | None = None) -> list[str]:
        return sorted(self.paths)

    def open(self, path: str, mode: str | None = None, _timeout: float | None = None) -> None:
        if not self.opens:
            raise RuntimeError("jsdrv_open failed 21 IN_USE | The requested resource is in use.")
        self.opened[path] = mode or "defaults"

    def close(self, path: str, _timeout: float | None = None) -> None:
        del self.opened[path]

    def publish(self, topic: str, value: object, _timeout: float | None = None) -> None:
        if self.unplugged.is_set():
            raise TimeoutError(f"jsdrv_publish timed out | {topic}")
        path, model, name = self._parse(topic)
        self.published[name] = value
        if name.endswith("/ctrl"):
            self._switch(path, model, name.removesuffix("/ctrl"), bool(value))

    def subscribe(
        self, topic: str, flags: str, callback: Any, _timeout: float | None = None
    ) -> None:
        assert flags == "pub"
        self.subscribers[topic] = callback

    def unsubscribe(self, topic: str, callback: Any, _timeout: float | None = None) -> None:
        assert self.subscribers.pop(topic) is callback

    def finalize(self, _timeout: float | None = None) -> None:
        for ended in self._streaming.values():
            ended.set()
        for thread in self._threads:
            thread.join()
        self.is_finalized = True

    # --- the device

    def _parse(self, topic: str) -> tuple[str, str, str]:
        backend, model, serial, name = topic.split("/", 3)
        path = f"{backend}/{model}/{serial}"
        assert path in self.opened
        return path, model, name

    def _switch(self, path: str, model: str, stream: str, is_on: bool) -> None:
        if stream in self._streaming:
            self._streaming.pop(stream).set()
        if is_on:
            ended = self._streaming[stream] = threading.Event()
            thread = threading.Thread(target=self._stream, args=(path, model, stream, ended))
            self._threads.append(thread)
            thread.start()

    def _stream(self, path: str, model: str, stream: str, ended: threading.Event) -> None:
        ids_per_s = IDS_PER_S[model]
        is_input = stream.startswith("s/gpi/")
        step = 1 if is_input and model != "js320" else ids_per_s // int(self.published["h/fs"])
        if is_input and model == "js320":
            step = 16
        samples = MESSAGE_SAMPLES * ids_per_s // (10_000 * step)
        topic = f"{path}/{stream}/!data"
        passed_s = time.monotonic() - self._began_s
        start_id = self.first_id + 8 * step * round(passed_s * ids_per_s / (8 * step))
        while True:
            end_id = start_id + samples * step
            due_s = self._began_s + (end_id - self.first_id) / ids_per_s
            if ended.wait(max(0.0, due_s - time.monotonic())) or self.unplugged.is_set():
                return
            ids = np.arange(start_id, end_id, step, dtype=np.int64)
            data = self.signals.get(stream, constant(0.0))(ids)
            callback = self.subscribers.get(topic)
            if self.to_lose.get(stream):
                self.to_lose[stream] -= 1
            elif callback is not None:
                callback(topic, self._message(start_id, ids_per_s, step, data, is_input))
            start_id = end_id

    def _message(
        self, start_id: int, ids_per_s: int, step: int, data: NDArray[Any], is_input: bool
    ) -> dict[str, Any]:
        packed = np.packbits(data.astype(bool), bitorder="little")
        return {
            "sample_id": start_id,
            "utc": 0,
            "field_id": 5 if is_input else 3,
            "index": 0,
            "sample_rate": ids_per_s,
            "decimate_factor": step,
            "time_map": {"offset_time": 0, "offset_counter": 0, "counter_rate": float(ids_per_s)},
            "data": packed if is_input else data.astype(np.float32),
        }
