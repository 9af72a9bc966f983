"""Joulescope JS110, JS220 and JS320 on USB, through Jetperch's package pyjoulescope_driver.

The driver publishes and subscribes by topic; those of a device are ``u/{model}/{serial}/…``. Its
streams ``s/p``, ``s/i``, ``s/v`` (power, current, voltage) and ``s/gpi/{n}`` (logic inputs) are
switched by ``…/ctrl`` and published as ``…/!data``; ``h/fs`` is the rate of the first three.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from typing import Any, Final

from devices.errors import BoardUnreachable, MeasurementInvalid
from devices.meters import GpioSync, JoulescopeMeter
from devices.program import installing
from profiler.meters.capture import Capture
from profiler.meters.joulescope.streams import (
    Stream,
    all_values,
    filter_lag_s,
    level_changes,
    limited_to,
    to_capture,
)

_MODELS = ("js110", "js220", "js320")
_INPUTS = {"js110": (0, 1), "js220": (0, 1, 2, 3, 7), "js320": (0, 1, 2, 3, 7)}
_FASTEST_HZ = {"js110": 2_000_000, "js220": 1_000_000, "js320": 1_000_000}
_RATES_HZ = (2_000_000, *(n * 10**k for k in range(5, -1, -1) for n in (10, 5, 2)), 1)
# Ends of the current and voltage ranges. A reading above _SATURATED_SHARE of either is saturated.
_FULL_SCALE_A = 10.0
_FULL_SCALE_V = 15.0
_SATURATED_SHARE = 0.998
_WAIT_S = 3.0
# The driver's filters need some samples before their first output.
_FILTER_SAMPLES = 100


class JoulescopeInstrument:
    """One device. Its current path stays closed throughout, so that the board stays powered; its
    ranges are set to automatic and stay so."""

    kind = "joulescope"

    def __init__(self, driver: Any, path: str, meter: JoulescopeMeter) -> None:
        _, self._model, serial = path.split("/")
        self.rate_hz: Final = meter.rate_hz
        which = f"{self._model.upper()} {serial}"
        self._name = f"Joulescope {which}"
        self.detail: Final = (
            f"{which}, automatic ranges up to {_FULL_SCALE_A:g} A and {_FULL_SCALE_V:g} V"
        )
        self._driver = driver
        self._path = path
        self._is_open = self._is_recording = False
        self._power = Stream(all_values)
        self._limits = [
            Stream(limited_to(_SATURATED_SHARE * limit)) for limit in (_FULL_SCALE_A, _FULL_SCALE_V)
        ]
        wired = [meter.sync.input] if isinstance(meter.sync, GpioSync) else []
        self._inputs = {number: Stream(level_changes) for number in wired}
        # Power last, so that the others cover its first sample.
        self._streams = {
            **{f"s/gpi/{number}": stream for number, stream in self._inputs.items()},
            "s/i": self._limits[0],
            "s/v": self._limits[1],
            "s/p": self._power,
        }
        self._callbacks = {topic: stream.on_message for topic, stream in self._streams.items()}

    def open(self, meter: JoulescopeMeter) -> None:
        self._check(meter)
        try:
            # "restore" keeps the device's state; "defaults" would open the current path.
            self._driver.open(self._path, "restore")
            self._is_open = True
            self._publish("h/fs", round(meter.rate_hz))
            if self._model == "js110":
                self._publish("s/i/range/select", "auto")
                self._publish("s/v/range/select", "15 V")
            else:
                self._publish("s/i/range/mode", "auto")
                self._publish("s/v/range/mode", "auto")
        except (RuntimeError, TimeoutError) as error:
            raise BoardUnreachable(
                f"{self._name}: cannot be opened ({error})",
                remedy="end other programs that use it, such as the Joulescope UI, and install the"
                " driver's udev rules",
            ) from error

    def _check(self, meter: JoulescopeMeter) -> None:
        rates_hz = [rate for rate in _RATES_HZ if rate <= _FASTEST_HZ[self._model]]
        if meter.rate_hz not in rates_hz:
            raise MeasurementInvalid(
                f"{self._name}: it does not sample at {meter.rate_hz:g} Hz; allowed for"
                f" meter.rate_hz: {', '.join(map(str, rates_hz))}"
            )
        for number in self._inputs:
            if number not in _INPUTS[self._model]:
                raise MeasurementInvalid(
                    f"{self._name}: it has no logic input {number}; allowed for meter.sync.input:"
                    f" {', '.join(map(str, _INPUTS[self._model]))}"
                )

    def start(self) -> None:
        self._halt()
        for stream in self._streams.values():
            stream.clear()
        try:
            self._is_recording = True
            for topic, callback in self._callbacks.items():
                self._driver.subscribe(f"{self._path}/{topic}/!data", "pub", callback)
                self._publish(f"{topic}/ctrl", 1)
        except (RuntimeError, TimeoutError) as error:
            raise self._gone(error) from error
        self._await_samples(0)

    def stop(self) -> Capture:
        is_delayed = self._model == "js220"  # its driver filters power but not the inputs
        lag_s = filter_lag_s(_FASTEST_HZ["js220"], self.rate_hz) if is_delayed else 0.0
        # One sample id for all streams: the sample that has the power of this instant.
        self._await_samples(self._power.id_at(time.monotonic() + lag_s))
        self._halt()
        if any(stream.is_broken for stream in self._streams.values()):
            raise MeasurementInvalid(
                f"{self._name}: its sample counter went back during a block",
                remedy="connect it to a USB port of its own, then start again: finished trials"
                " are kept",
            )
        return to_capture(self._power, self._limits, self._inputs, lag_s)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError):  # it may be gone
            self._halt()
        with contextlib.suppress(RuntimeError, TimeoutError):
            if self._is_open:
                self._is_open = False
                self._driver.close(self._path)
        driver, self._driver = self._driver, None
        if driver is not None:
            with contextlib.suppress(RuntimeError, TimeoutError):
                driver.finalize()

    def _halt(self) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        with contextlib.suppress(RuntimeError, TimeoutError):  # received samples are kept
            for topic, callback in self._callbacks.items():
                self._publish(f"{topic}/ctrl", 0)
                self._driver.unsubscribe(f"{self._path}/{topic}/!data", callback)

    def _await_samples(self, sample_id: int) -> None:
        timeout_s = _WAIT_S + _FILTER_SAMPLES / self.rate_hz
        for topic, stream in self._streams.items():
            if not stream.wait_for(sample_id, timeout_s):
                raise self._gone(f"nothing came on {topic} for {timeout_s:g} s")

    def _publish(self, topic: str, value: object) -> None:
        self._driver.publish(f"{self._path}/{topic}", value)

    def _gone(self, reason: object) -> BoardUnreachable:
        return BoardUnreachable(
            f"{self._name}: it has stopped sending ({reason})",
            remedy="check the USB cable, then start again: finished trials are kept",
        )


def open_joulescope(meter: JoulescopeMeter) -> JoulescopeInstrument:
    """Open the described Joulescope.

    Raises :class:`~devices.errors.BoardUnreachable` when there is no such device or it does not
    open, and :class:`~devices.errors.MeasurementInvalid` for unsupported settings.
    """
    try:
        package = importlib.import_module("pyjoulescope_driver")
    except ImportError as error:
        raise MeasurementInvalid(
            f"meter joulescope needs Jetperch's driver: {installing('pyjoulescope_driver')}"
        ) from error
    try:
        driver = package.Driver()
    except (RuntimeError, TimeoutError) as error:
        raise BoardUnreachable(
            f"the Joulescope driver does not start ({error})",
            remedy="check that this user may use USB",
        ) from error
    instrument = None
    try:
        instrument = JoulescopeInstrument(driver, _choose(driver, meter.serial), meter)
        instrument.open(meter)
    except BaseException:
        if instrument is not None:
            instrument.close()
        else:
            driver.finalize()
        raise
    return instrument


def _choose(driver: Any, serial: str | None) -> str:
    """Path of the one device that fits."""
    paths = [path for path in driver.device_paths() if path.split("/")[1] in _MODELS]
    fitting = [
        path
        for path in paths
        if serial is None or path.split("/")[2].lstrip("0") == serial.lstrip("0")
    ]
    if len(fitting) == 1:
        return str(fitting[0])
    found = ", ".join(" ".join(path.split("/")[1:]) for path in paths) or "none"
    if serial is not None:
        what = f"no Joulescope with serial number {serial} is on USB"
    elif paths:
        what = "several Joulescopes are on USB"
    else:
        what = "no Joulescope is on USB"
    raise BoardUnreachable(
        f"{what}; found: {found}. Connect it (and end other programs that use it), or name it in"
        " meter.serial of the description"
    )
