"""Process of :mod:`profiler.meters.stand_ins.ppk2`.

Its input is a line with the scenario, then any number of ``status`` lines; the process ends with
its input. Its output is the port, then a line of JSON for every ``status``.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import tty
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from devices.meters import Ppk2Meter

_RATE_HZ = Ppk2Meter.rate_hz
_PERIOD_S = 0.001
# Nordic's nominal shunts; the calibration is invented, and neutral only in GS of the lower ranges.
_R_OHM = np.array([1031.64, 101.65, 10.15, 0.94, 0.043])
_GS = np.array([0.0, 0.0, 0.0, 0.0, 0.02])
_GI = np.array([1.01, 0.99, 1.002, 0.998, 0.985])
_O = np.array([160.0, 120.0, 80.0, 40.0, 20.0])
_S = np.array([1e-8, 2e-8, 3e-8, 1e-7, 2e-6])
_I = np.array([-2e-8, 1e-8, -4e-8, 1e-7, 1e-6])
_UG = np.array([1.0, 1.0, 1.0, 1.0, 1.0])
_RANGE_ENDS_A = np.array([50e-6, 500e-6, 5e-3, 60e-3])
_VOLTS_PER_STEP = 1.8 / 163840
_MOST_BUFFERED = 1 << 18
_ARGUMENTS = {0x0C: 1, 0x0D: 2, 0x11: 1}
_FIRST_COUNTER = 17


def _codes(current_a: NDArray[np.float64], ranges: NDArray[np.int64], volts: float) -> Any:
    """ADC readings of these currents: the inverse of the calibration formula."""
    linear = current_a / _UG[ranges] - (_S[ranges] * volts + _I[ranges])
    gs, gi = _GS[ranges], _GI[ranges]
    root = np.sqrt(gi * gi + 4 * gs * linear)
    x = np.where(gs > 0, (root - gi) / np.where(gs > 0, 2 * gs, 1.0), linear / gi)
    codes = (x * _R_OHM[ranges] / _VOLTS_PER_STEP + _O[ranges]) / 4
    return np.clip(np.round(codes), 0, 0x3FFF).astype(np.uint32)


class _Device:
    def __init__(self, scenario: dict[str, Any]) -> None:
        steps = scenario["steps"]
        rate_hz = _RATE_HZ * (1 + scenario["clock_error"])
        self.rate_hz: Final = rate_hz
        ends = np.cumsum([step["length_s"] for step in steps]) * _RATE_HZ
        self.step_ends: Final = np.round(ends).astype(np.int64)
        self.currents: Final = np.array([step["current_a"] for step in steps])
        self.inputs: Final = np.array([step["inputs"] for step in steps], dtype=np.uint32)
        self.losses: Final = sorted(scenario["losses"], key=lambda loss: int(loss["sample"]))
        self.settling: Final = int(scenario["settling"])
        self.mute: Final = bool(scenario["mute"])
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.master, False)
        self.port: Final = os.ttyname(self.slave)
        self.commands: list[str] = []
        self.received = b""
        self.buffer = bytearray()
        self.powered, self.mode, self.millivolts = False, 0, 3000
        self.streaming, self.started_s, self.sent = False, 0.0, 0
        self.overflowed = 0
        if scenario["still_streaming"]:
            self._start()

    def status(self) -> str:
        return json.dumps(
            {
                "samples": self.sent,
                "overflowed": self.overflowed,
                "started_s": self.started_s,
                "streaming": self.streaming,
                "powered": self.powered,
                "mode": self.mode,
                "millivolts": self.millivolts,
                "commands": self.commands,
            }
        )

    def hear(self) -> None:
        try:
            self.received += os.read(self.master, 4096)
        except BlockingIOError:
            return
        while self.received:
            command = self.received[0]
            length = 1 + _ARGUMENTS.get(command, 0)
            if len(self.received) < length:
                return
            arguments, self.received = self.received[1:length], self.received[length:]
            self.commands.append(bytes([command, *arguments]).hex())
            self._obey(command, arguments)

    def _obey(self, command: int, arguments: bytes) -> None:
        if command == 0x19 and not self.mute:
            self.buffer += self._metadata()
        elif command == 0x0C:
            self.powered = bool(arguments[0])
        elif command == 0x0D:
            self.millivolts = 800 + (arguments[0] - 3) * 256 + arguments[1] - 32
        elif command == 0x11:
            self.mode = arguments[0]
        elif command == 0x06:
            self._start()
        elif command == 0x07:
            self.streaming = False

    def _start(self) -> None:
        self.streaming, self.started_s, self.sent = True, time.monotonic(), 0
        self.overflowed = 0

    def _metadata(self) -> bytes:
        values = {"R": _R_OHM, "GS": _GS, "GI": _GI, "O": _O, "S": _S, "I": _I, "UG": _UG}
        lines = ["Calibrated: 0"]
        lines += [f"{k}{r}: {float(v[r])!r}" for k, v in values.items() for r in range(5)]
        lines += [f"VDD: {self.millivolts}", "HW: 9173", f"mode: {self.mode}", "IA: 56", "END"]
        return ("\n".join(lines) + "\n").encode()

    def stream(self) -> None:
        """Queue all samples that are due."""
        late_s = time.monotonic() - self.started_s - self.sent / self.rate_hz
        due = self.sent + int(late_s * self.rate_hz)
        if due <= self.sent:
            return
        pieces = self._words(np.arange(self.sent, due))
        if len(self.buffer) + len(pieces) > _MOST_BUFFERED:
            self.overflowed += due - self.sent
        else:
            self.buffer += pieces
        self.sent = due

    def _words(self, number: NDArray[np.int64]) -> bytes:
        place = number % self.step_ends[-1]
        step = np.searchsorted(self.step_ends, place, side="right")
        current_a = self.currents[step] * float(self.powered)
        ranges = np.searchsorted(_RANGE_ENDS_A, current_a)
        codes = _codes(current_a, ranges, self.millivolts / 1000)
        if self.settling:
            before_s = (place - self.settling) % self.step_ends[-1]
            before = np.searchsorted(self.step_ends, before_s, side="right")
            earlier = np.searchsorted(_RANGE_ENDS_A, self.currents[before])
            codes = np.where(earlier != ranges, np.minimum(2 * codes + 50, 0x3FFE), codes)
        counters = ((number + _FIRST_COUNTER) % 64).astype(np.uint32)
        words = codes | ranges.astype(np.uint32) << 14 | counters << 18 | self.inputs[step] << 24
        return self._without_losses(words.astype("<u4").tobytes(), 4 * int(number[0]))

    def _without_losses(self, piece: bytes, first_byte: int) -> bytes:
        kept, at = bytearray(), 0
        for loss in self.losses:
            start = 4 * loss["sample"] + loss["offset"] - first_byte
            end = start + loss["bytes"]
            if end > at and start < len(piece):
                kept += piece[at : max(start, at)]
                at = min(end, len(piece))
        return bytes(kept + piece[at:])

    def send(self) -> None:
        with suppress(BlockingIOError):
            while self.buffer:
                del self.buffer[: os.write(self.master, self.buffer)]


def main() -> None:
    device = _Device(json.loads(sys.stdin.readline()))
    print(device.port, flush=True)  # noqa: T201 - tells the port to the parent process
    while True:
        readable, _, _ = select.select([device.master, sys.stdin.fileno()], [], [], _PERIOD_S)
        device.hear()
        if sys.stdin.fileno() in readable:
            if not sys.stdin.readline():
                return
            print(device.status(), flush=True)  # noqa: T201
        if device.streaming:
            device.stream()
        device.send()


if __name__ == "__main__":
    main()
