"""Nordic Power Profiler Kit II on its serial port, 100,000 samples a second.

    meter:
      kind: ppk2
      port: /dev/serial/by-id/usb-Nordic_Semiconductor_PPK2_…-if01
      mode: source            # it feeds the board; ampere: it measures another supply's current
      voltage_v: 3.3          # of its output, or of the other supply
      sync: {kind: gpio, input: 0}

Voltage is set, not measured: power is current times ``voltage_v``, and a drop of the voltage under
load is not seen.
"""

from __future__ import annotations

import errno
import threading
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from devices.claims.owner import users_of
from devices.errors import BoardInUse, BoardUnreachable, MeasurementInvalid
from devices.meters import Ppk2Meter
from profiler.meters.capture import Capture
from profiler.meters.ppk2.capture import RATE_HZ, decode
from profiler.meters.ppk2.current import Metadata, MetadataError
from profiler.meters.ppk2.losses import JUDGED_S, Arrivals

if TYPE_CHECKING:
    from serial import Serial

_START, _STOP = b"\x06", b"\x07"
_POWER_ON = b"\x0c\x01"
_SET_MODE = {"ampere": b"\x11\x01", "source": b"\x11\x02"}
_SET_VOLTAGE = 0x0D
_GET_METADATA = b"\x19"

_ATTEMPTS = 2
_ANSWER_S = 1.5
_QUIET_S = 0.1
_POLL_S = 0.002

MOST_CAPTURE_S = 1800.0
"""Longest capture; its words take 400 kB a second. Later words are dropped, and their windows are
void."""


def open_ppk2(described: Ppk2Meter) -> Ppk2:
    """Open the described PPK2 and set it up, so that it feeds the board.

    Args:
        described: The meter of the device description.

    Raises:
        BoardInUse: Another program uses it.
        BoardUnreachable: It is not connected or does not answer.
    """
    port = _open_port(described.port)
    try:
        metadata = _ask_metadata(port)
        port.write(_SET_MODE[described.mode])
        port.write(_voltage_command(described.voltage_v))
        port.write(_POWER_ON)
    except OSError as error:
        port.close()
        raise BoardUnreachable(
            f"PPK2 on {described.port}: {error}", remedy="unplug it and plug it in again"
        ) from error
    except BaseException:
        port.close()
        raise
    return Ppk2(port, described, metadata)


def _open_port(name: str) -> Serial:
    import serial

    try:
        return serial.Serial(name, timeout=_QUIET_S, write_timeout=_ANSWER_S, exclusive=True)
    except serial.SerialException as error:
        kind: type[BoardUnreachable] = BoardUnreachable
        if error.errno == errno.ENOENT:
            remedy = (
                "the port does not exist: plug the PPK2 in, or correct meter.port in the"
                " description"
            )
        elif error.errno in (errno.EACCES, errno.EPERM):
            remedy = "this user may not open it: sudo usermod -aG dialout $USER, and log in again"
        elif error.errno in (errno.EAGAIN, errno.EBUSY):
            kind = BoardInUse
            users = "; ".join(map(str, users_of(Path(name))))
            remedy = (
                f"another program uses it{f', {users}' if users else ''}: close the Power Profiler"
                " app or the other profiling run"
            )
        else:
            remedy = str(error)
        raise kind(f"PPK2 on {name}: {remedy}") from error


def _ask_metadata(port: Serial) -> Metadata:
    """Read the metadata. An earlier session may have left the PPK2 streaming, so the answer can be
    surrounded by words."""
    reason = "nothing was received"
    for _ in range(_ATTEMPTS):
        port.write(_STOP)
        _drain(port)
        port.write(_GET_METADATA)
        answer = bytearray()
        deadline_s = time.monotonic() + _ANSWER_S
        while b"END" not in answer and time.monotonic() < deadline_s:
            answer += port.read(max(1, port.in_waiting))
        try:
            return Metadata.parse(bytes(answer))
        except MetadataError as error:
            reason = str(error) if answer else reason
    raise BoardUnreachable(
        f"PPK2 on {port.name}: {reason}. A PPK2 may show up as two ports: try the other one; or"
        " switch it off and on"
    )


def _drain(port: Serial) -> None:
    """Read until nothing more arrives."""
    deadline_s = time.monotonic() + _ANSWER_S
    while port.read(max(1, port.in_waiting)) and time.monotonic() < deadline_s:
        pass


def _voltage_command(voltage_v: float) -> bytes:
    """Command that sets the voltage, in millivolts above 800, which is encoded as (3, 32)."""
    steps = round(voltage_v * 1000) - 800 + 32
    return bytes([_SET_VOLTAGE, 3 + steps // 256, steps % 256])


class _Reader:
    """A thread that only reads what arrives, so that decoding never delays it."""

    def __init__(self, port: Serial) -> None:
        self.pieces: Final[list[bytes]] = []
        self.bytes_so_far: Final = array("q")
        self.times_s: Final = array("d")
        self.error: OSError | None = None
        self._port: Final = port
        self._deadline_s = float("inf")
        self._thread: Final = threading.Thread(target=self._read, name="ppk2 reader", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread after reading what is still on its way from the stopped instrument."""
        self._deadline_s = time.monotonic() + _ANSWER_S
        self._thread.join()

    def _read(self) -> None:
        so_far, most = 0, int(4 * RATE_HZ * MOST_CAPTURE_S)
        try:
            while time.monotonic() < self._deadline_s:
                piece, arrived_s = self._next()
                if not piece and self._deadline_s < float("inf"):
                    return
                if not piece:
                    continue
                if so_far < most:
                    so_far += len(piece)
                    self.pieces.append(piece)
                    self.bytes_so_far.append(so_far)
                    self.times_s.append(arrived_s)
                time.sleep(_POLL_S)
        except OSError as error:  # includes SerialException; raised again by the caller
            self.error = error

    def _next(self) -> tuple[bytes, float]:
        """Read all waiting bytes, and the time. If more bytes arrived meanwhile, they are read too,
        since the time would otherwise be too late for the first ones."""
        piece = self._port.read(max(1, self._port.in_waiting))
        arrived_s = time.monotonic()
        while waiting := self._port.in_waiting:
            piece += self._port.read(waiting)
            arrived_s = time.monotonic()
        return piece, arrived_s


class Ppk2:
    """Implements :class:`~profiler.meters.capture.Instrument`. Closing ends the stream but leaves
    the output on, since a board without power loses its memory."""

    kind: Final = "ppk2"
    rate_hz: Final = RATE_HZ

    def __init__(self, port: Serial, described: Ppk2Meter, metadata: Metadata) -> None:
        self._port: Final = port
        self._described: Final = described
        self._metadata: Final = metadata
        self._reader: _Reader | None = None

    @property
    def detail(self) -> str:
        voltage = f"{self._described.voltage_v:g} V"
        mode = "feeds" if self._described.mode == "source" else "ampere meter, supply taken as"
        hardware = self._metadata.hardware
        return f"PPK2{f' (hardware {hardware})' if hardware else ''}, {mode} {voltage}"

    def start(self) -> None:
        self._end_reading()
        try:
            self._port.write(_STOP)
            _drain(self._port)
            self._reader = _Reader(self._port)
            self._port.write(_START)
        except OSError as error:
            raise self._gone(error) from error
        time.sleep(JUDGED_S)

    def stop(self) -> Capture:
        if self._reader is None:
            raise MeasurementInvalid(f"PPK2 on {self._port.name}: stopped before it was started")
        time.sleep(JUDGED_S)
        reader = self._reader
        error = self._end_reading()
        if error is not None:
            raise self._gone(error) from error
        stream = b"".join(reader.pieces)
        arrivals = Arrivals(np.array(reader.bytes_so_far), np.array(reader.times_s))
        capture = decode(stream, arrivals, self._metadata, self._described.voltage_v)
        if capture is None:
            raise MeasurementInvalid(
                f"PPK2 on {self._port.name}: received {len(stream)} bytes in a block but no"
                " samples: switch it off and on"
            )
        return capture

    def close(self) -> None:
        self._end_reading()
        self._port.close()

    def _end_reading(self) -> OSError | None:
        """End the stream and return its error, if any."""
        if self._reader is None:
            return None
        reader, self._reader = self._reader, None
        try:
            self._port.write(_STOP)
        except OSError as error:
            reader.error = reader.error or error
        reader.end()
        return reader.error

    def _gone(self, error: OSError) -> BoardUnreachable:
        return BoardUnreachable(
            f"PPK2 on {self._port.name}: lost during a block ({error})",
            remedy="check its cable, then start again: finished trials are kept",
        )
