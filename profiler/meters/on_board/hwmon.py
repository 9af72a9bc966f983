"""Power sensors of Linux hwmon, found by driver and rail, never by hwmon number.

The kernel's interface (Documentation/hwmon/sysfs-interface): ``powerN_input`` in µW, ``inN_input``
in mV, ``currN_input`` in mA, ``inN_label`` the rail's name. INA226 and related chips offer the
power of one channel; INA3221 offers voltage and current of three, which are multiplied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from devices.errors import MeasurementInvalid
from devices.meters import HwmonMeter
from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import BoardSamples, PowerTrace, SamplerSpec
from profiler.meters.on_board.base import OnBoardMeter
from profiler.meters.on_board.sysfs import SysfsDevice, read_devices
from profiler.meters.readings import Response
from profiler.meters.trace import SampledPower
from profiler.transports.base import Transport

# Largest shunt voltage that the chip can measure, as its kernel driver configures it. Data
# sheets: INA219 (SBOS448), INA226 (SBOS547), INA230 (SBOS601), INA231 (SBOS644), INA3221 (SBOS576).
_FULL_SCALE_V = {
    "ina219": 0.320,
    "ina220": 0.320,
    "ina226": 0.08192,
    "ina230": 0.08192,
    "ina231": 0.08192,
    "ina3221": 0.1638,
}
# A reading above this share of the range counts as saturated.
_SATURATED_SHARE = 0.998

# Chips of one channel: the interval of their driver, in whole milliseconds, is the time over which
# they average. That of others is the time for all channels, one after the other; a channel averages
# over that time at most.
_AVERAGES_OVER_INTERVAL = frozenset({"ina219", "ina220", "ina226", "ina230", "ina231"})
_INTERVAL_ROUNDING_S = 0.51e-3

_PATTERNS = (
    "name",
    "*_label",
    "power*_input",
    "in*_input",
    "curr*_input",
    "shunt*_resistor",
    "update_interval",
)


@dataclass(frozen=True)
class _Rail:
    """One channel of one sensor. ``files`` are sampled: power in µW if available, else voltage in
    mV; then current in mA if available."""

    files: tuple[str, ...]
    has_power: bool
    current_limit_ma: float | None

    def trace(self, samples: BoardSamples, rate_hz: float, response: Response | None) -> PowerTrace:
        first = samples.values[:, 0].astype(np.float64)
        if len(self.files) > 1:
            current_ma = samples.values[:, 1].astype(np.float64)
        else:
            current_ma = np.zeros_like(first)
        power_w = first * 1e-6 if self.has_power else first * current_ma * 1e-6
        limit_ma = np.inf if self.current_limit_ma is None else self.current_limit_ma
        return SampledPower(
            times_ns=samples.times_ns,
            power_w=power_w,
            saturated=np.abs(current_ma) >= limit_ma,
            period_s=1.0 / rate_hz,
            response=response,
        )


def open_hwmon(meter: HwmonMeter, transport: Transport, source: EnergySource) -> OnBoardMeter:
    """Find the described sensor. Raises :class:`~devices.errors.MeasurementInvalid` with the
    existing sensors."""
    board = transport.name
    devices = read_devices(transport, str(meter.root), _PATTERNS)
    device = _find_device(devices, meter, board)
    response = _response(device, meter, board)
    channel = _find_channel(device, meter, board)
    rail = _rail(device, channel, board)
    rate_hz = meter.rate_hz
    wanted = f"{meter.driver} {meter.label or f'channel {channel}'}"
    what = "power" if rail.has_power else "voltage × current"
    return OnBoardMeter(
        record=MeterRecord(
            kind="hwmon",
            detail=f"{wanted}, {what}",
            rate_hz=rate_hz,
            sync="sampled on the board, by its own clock",
            remembered_s=None if response is None else response.oldest_s,
        ),
        sampler=SamplerSpec(tuple(f"file={file}" for file in rail.files), rate_hz),
        to_trace=lambda samples: rail.trace(samples, rate_hz, response),
        energy_source=source,
    )


def _find_device(devices: list[SysfsDevice], meter: HwmonMeter, board: str) -> SysfsDevice:
    of_driver = [device for device in devices if device.files.get("name") == meter.driver]
    if not of_driver:
        found = ", ".join(sorted({device.files.get("name", "?") for device in devices})) or "none"
        raise MeasurementInvalid(
            f"{board}: no hwmon sensor with driver {meter.driver!r} below {meter.root};"
            f" drivers found: {found}. Load the driver, or correct meter.driver in the description"
        )
    if meter.label is not None:
        labelled = [device for device in of_driver if meter.label in _labels(device).values()]
        if not labelled:
            labels = sorted({label for device in of_driver for label in _labels(device).values()})
            raise MeasurementInvalid(
                f"{board}: no rail of {meter.driver} has the label {meter.label!r};"
                f" labels found: {', '.join(labels) or 'none (name the rail by channel)'}"
            )
        of_driver = labelled
    if len(of_driver) > 1:
        where = ", ".join(device.directory for device in of_driver)
        raise MeasurementInvalid(
            f"{board}: {len(of_driver)} sensors have the driver {meter.driver} ({where}):"
            " name the rail by a label that only one of them has"
        )
    return of_driver[0]


def _response(device: SysfsDevice, meter: HwmonMeter, board: str) -> Response | None:
    """What a reading is a mean of, as described and as the driver reports; None if neither says.

    Raises :class:`~devices.errors.MeasurementInvalid` if they contradict each other.
    """
    interval_ms = device.number("update_interval")
    described_s, is_single = meter.integration_s, meter.driver in _AVERAGES_OVER_INTERVAL
    if not interval_ms:
        return None if described_s is None else Response.held(described_s)
    interval_s = interval_ms * 1e-3
    if described_s is None:
        return replace(Response.held(interval_s), is_exact=is_single)
    if not is_single:
        return Response(described_s, held_s=max(described_s, interval_s))
    if abs(interval_s - described_s) > _INTERVAL_ROUNDING_S:
        raise MeasurementInvalid(
            f"{board}: {meter.driver} averages over {interval_ms:g} ms, and its description says"
            f" {described_s * 1e3:g} ms",
            remedy=f"correct meter.integration_s, or write {described_s * 1e3:.0f} to"
            f" {device.path('update_interval')} as root",
        )
    return Response.held(described_s)


def _labels(device: SysfsDevice) -> dict[str, str]:
    """Labels of measurable rails by file name, without those of shunts."""
    return {
        name: text
        for name, text in device.files.items()
        if name.endswith("_label") and _channel_is_measurable(device, _channel_of(name))
    }


def _channel_of(file_name: str) -> int:
    digits = re.search(r"\d+", file_name)
    return int(digits.group()) if digits else 0


def _channel_is_measurable(device: SysfsDevice, channel: int) -> bool:
    files = device.files
    return f"power{channel}_input" in files or (
        f"in{channel}_input" in files and f"curr{channel}_input" in files
    )


def _find_channel(device: SysfsDevice, meter: HwmonMeter, board: str) -> int:
    if meter.channel is None:
        return next(
            _channel_of(name) for name, text in _labels(device).items() if text == meter.label
        )
    if not _channel_is_measurable(device, meter.channel):
        channels = sorted(
            {
                channel
                for channel in map(_channel_of, device.files)
                if _channel_is_measurable(device, channel)
            }
        )
        raise MeasurementInvalid(
            f"{board}: {meter.driver} has neither power nor voltage and current on channel"
            f" {meter.channel}; channels found: {', '.join(map(str, channels)) or 'none'}"
        )
    return meter.channel


def _rail(device: SysfsDevice, channel: int, board: str) -> _Rail:
    power, voltage, current = (f"{what}{channel}_input" for what in ("power", "in", "curr"))
    has_power = power in device.files
    names = [power if has_power else voltage]
    if current in device.files:
        names.append(current)
    for name in names:
        if device.number(name) is None:
            raise MeasurementInvalid(
                f"{board}: {device.path(name)} cannot be read",
                remedy="allow it for this user, or check the sensor's wiring",
            )
    return _Rail(
        files=tuple(device.path(name) for name in names),
        has_power=has_power,
        current_limit_ma=_current_limit_ma(device, channel) if len(names) > 1 else None,
    )


def _current_limit_ma(device: SysfsDevice, channel: int) -> float | None:
    """End of the sensor's range: full scale over the shunt, which sysfs gives in µΩ."""
    full_scale_v = _FULL_SCALE_V.get(device.files["name"])
    shunt_uohm = device.number(f"shunt{channel}_resistor") or device.number("shunt_resistor")
    if full_scale_v is None or not shunt_uohm:
        return None
    return _SATURATED_SHARE * full_scale_v / (shunt_uohm * 1e-6) * 1e3
