"""Qoitech Otii Arc and Ace, through the TCP server of the Otii application.

An Otii feeds the board: ``mc`` and ``mv`` are current and voltage of its main output, ``i1`` and
``i2`` its two logic inputs, which are compared with the voltage of its expansion port.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from devices.errors import MeasurementInvalid
from devices.meters import GpioSync, OtiiMeter
from profiler.meters.capture import Capture, Flaw
from profiler.meters.otii.server import OtiiServer

if TYPE_CHECKING:
    from otii_tcp_client.arc import Arc
    from otii_tcp_client.project import Project
    from otii_tcp_client.recording import Recording

_FIND_TIMEOUT_S = 3
_INPUTS = ("i1", "i2")
# A reading above this share of the limit counts as saturated.
_SATURATED_SHARE = 0.998
_SAME_VOLTAGE_SHARE = 0.01
_RATE_TOLERANCE = 0.01
# Relative drift between the crystals of the instrument and of this computer.
_DRIFT = 50e-6


@dataclass(frozen=True)
class _Output:
    """Settings of the device's output."""

    is_on: bool
    voltage_v: float
    max_current_a: float
    logic_v: float


class OtiiInstrument:
    """One device. On closing, its output is switched off again if it was off. Recordings are
    deleted after they are read."""

    kind = "otii"

    def __init__(self, server: OtiiServer, meter: OtiiMeter) -> None:
        self.rate_hz: Final = meter.rate_hz
        self._server = server
        self._meter = meter
        self._inputs = _INPUTS if isinstance(meter.sync, GpioSync) else ()
        self._started: tuple[float, float] | None = None
        self._recording: Recording | None = None  # one that is being read
        self._found: _Output | None = None
        self._levels: tuple[bool, ...] = ()
        with server.answering("find its devices"):
            self._device = self._choose(server.otii.get_devices(_FIND_TIMEOUT_S))
            device = self._device
            device.add_to_project()
            self._project = self._open_project()
            version = device.get_version()
            self.detail: Final = (
                f"{device.type} {device.name} ({device.id}), firmware {version['fw_version']},"
                f" {meter.voltage_v:g} V, at most {meter.max_current_a:g} A"
            )

    def _choose(self, devices: list[Arc]) -> Arc:
        wanted = self._meter.device
        fitting = [device for device in devices if wanted in (None, device.name, device.id)]
        if len(fitting) == 1:
            return fitting[0]
        found = ", ".join(f"{device.name} ({device.id})" for device in devices) or "none"
        raise MeasurementInvalid(
            f"{self._server}: {len(fitting)} devices"
            + (f" are called {wanted!r}" if wanted else " are connected")
            + f"; found: {found}. Connect one, or name it in meter.device of the description"
        )

    def _open_project(self) -> Project:
        from otii_tcp_client.otii import OtiiException

        try:
            return self._server.otii.get_active_project()
        except OtiiException:  # no project is open
            return self._server.otii.create_project()

    def set_up(self) -> None:
        """Set the output as described and switch the channels on. Raises
        :class:`~devices.errors.MeasurementInvalid` instead of changing the voltage of a running
        board."""
        meter, device = self._meter, self._device
        with self._server.answering("set its output"):
            found = _Output(
                is_on=device.get_main(),
                voltage_v=device.get_main_voltage(),
                max_current_a=device.get_max_current(),
                logic_v=device.get_exp_voltage(),
            )
            off_v = abs(found.voltage_v - meter.voltage_v)
            if found.is_on and off_v > _SAME_VOLTAGE_SHARE * meter.voltage_v:
                raise MeasurementInvalid(
                    f"{self._server}: the output is on at {found.voltage_v:g} V, the description"
                    f" states {meter.voltage_v:g} V",
                    remedy="switch it off, or correct meter.voltage_v",
                )
            self._found = found
            device.set_max_current(meter.max_current_a)
            if self._inputs:
                device.set_exp_voltage(meter.logic_v)
                device.enable_exp_port(True)
            for channel in ("mc", "mv", *self._inputs):
                device.enable_channel(channel, True)
            if device.type == "Ace":  # the rates of an Arc are fixed
                for channel in ("mc", "mv"):
                    device.set_channel_samplerate(channel, round(meter.rate_hz))
            if not found.is_on:
                device.set_main_voltage(meter.voltage_v)
                device.set_main(True)

    def start(self) -> None:
        device = self._device
        with self._server.answering("record"):
            if self._started is not None:
                self._end()
            self._levels = tuple(bool(device.get_gpi(pin + 1)) for pin in range(len(self._inputs)))
            asked_s = time.monotonic()
            self._project.start_recording()
            self._started = asked_s, time.monotonic()

    def stop(self) -> Capture:
        assert self._started is not None, "nothing was started"
        asked_s, answered_s = self._started
        with self._server.answering("return its recording"):
            self._project.stop_recording()
            recording = self._recording = self._project.get_last_recording()
            if recording is None:
                raise MeasurementInvalid(f"{self._server}: it has recorded nothing")
            channels = {
                channel: self._server.data(recording, self._device, channel)
                for channel in ("mc", "mv", *self._inputs)
            }
            recording.delete()
            self._started = self._recording = None
            if not self._device.get_main():
                raise MeasurementInvalid(
                    f"{self._server}: the output has switched itself off; the board drew more than"
                    f" meter.max_current_a, {self._meter.max_current_a:g} A"
                )
        return self._capture(channels, (asked_s + answered_s) / 2, (answered_s - asked_s) / 2)

    def _capture(
        self, channels: dict[str, list[dict[str, Any]]], zero_s: float, error_s: float
    ) -> Capture:
        current_s, current_a = self._analog(channels["mc"], "mc")
        voltage_s, voltage_v = self._analog(channels["mv"], "mv")
        period_s = float(channels["mc"][0]["interval"])
        if abs(period_s * self.rate_hz - 1) > _RATE_TOLERANCE:
            raise MeasurementInvalid(
                f"{self._server}: it records {1 / period_s:g} samples a second, not"
                f" {self.rate_hz:g}",
                remedy="correct meter.rate_hz in the description",
            )
        power_w = current_a * np.interp(current_s, voltage_s, voltage_v)
        flaws = np.where(np.isnan(power_w), np.uint8(Flaw.LOST), np.uint8(0))
        limit_a = _SATURATED_SHARE * self._meter.max_current_a
        flaws |= np.where(np.abs(current_a) >= limit_a, np.uint8(Flaw.SATURATED), np.uint8(0))
        inputs = None
        if self._inputs:
            inputs = np.zeros(len(power_w), dtype=np.uint8)
            for bit, channel in enumerate(self._inputs):
                level = _levels(channels[channel], current_s, self._levels[bit])
                inputs |= level.astype(np.uint8) << np.uint8(bit)
        return Capture(
            start_s=zero_s + float(current_s[0]),
            period_s=period_s,
            power_w=power_w,
            flaws=flaws,
            inputs=inputs,
            time_error_s=error_s + _DRIFT * period_s * len(power_w),
        )

    def _analog(
        self, answers: list[dict[str, Any]], channel: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds since the recording began, and readings; NaN for missing ones."""
        values = [np.array(answer["values"], dtype=np.float64) for answer in answers]
        if not values:
            raise MeasurementInvalid(
                f"{self._server}: it has recorded nothing on channel {channel}"
            )
        readings = np.concatenate(values)
        times_s = answers[0]["timestamp"] + answers[0]["interval"] * np.arange(len(readings))
        return times_s, readings

    def _end(self) -> None:
        """Stop and delete the current recording."""
        self._project.stop_recording()
        self._delete_recording()
        self._started = self._recording = None

    def _delete_recording(self) -> None:
        """Delete the recording that was stopped. One that was found before is known by itself: it
        may be gone, and the project's last one the user's."""
        recording = self._recording or self._project.get_last_recording()
        if recording is not None:
            recording.delete()

    def close(self) -> None:
        if self._started is not None:
            self._server.tidy(self._project.stop_recording, self._delete_recording)
            self._started = self._recording = None
        if self._found is not None:
            self._restore(self._found)
            self._found = None
        self._server.close()

    def _restore(self, found: _Output) -> None:
        """Set the output as it was found. Its voltage is changed only once it is off."""
        device, tidy = self._device, self._server.tidy
        if not found.is_on:

            def switch_off() -> None:
                device.set_main(False)
                device.set_main_voltage(found.voltage_v)

            tidy(switch_off)
        tidy(partial(device.set_max_current, found.max_current_a))
        if self._inputs:
            tidy(partial(device.set_exp_voltage, found.logic_v))


def _levels(
    answers: list[dict[str, Any]], times_s: NDArray[np.float64], before: bool
) -> NDArray[np.bool_]:
    """Levels of a logic input at these times, from its changes and its level ``before`` them."""
    changes = [change for answer in answers for change in answer["values"]]
    changed_s = np.array([change["timestamp"] for change in changes], dtype=np.float64)
    levels = np.array([before, *(change["value"] for change in changes)], dtype=np.bool_)
    return levels[np.searchsorted(changed_s, times_s, side="right")]


def open_otii(meter: OtiiMeter) -> OtiiInstrument:
    """Open and set up the described device. Raises :class:`~devices.errors.BoardUnreachable` when
    the server does not answer, and :class:`~devices.errors.MeasurementInvalid` for a refused device
    or setting."""
    if isinstance(meter.sync, GpioSync) and meter.sync.input >= len(_INPUTS):
        raise MeasurementInvalid(
            f"meter.sync.input is {meter.sync.input}; an Otii has inputs 0 (GPI1) and 1 (GPI2)"
        )
    server = OtiiServer(meter)
    instrument = None
    try:
        server.open()
        instrument = OtiiInstrument(server, meter)
        instrument.set_up()
    except BaseException:
        (instrument or server).close()
        raise
    return instrument
