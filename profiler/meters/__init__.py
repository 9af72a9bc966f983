"""Meters: where the joules come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from profiler.meters.base import Meter
    from profiler.transports.base import Transport


def open_meter(description: DeviceDescription, transport: Transport) -> Meter | None:
    """The meter of a board, found on it; nominal power in place of one that is not described; None
    if there is neither. Raises :class:`~profiler.errors.MeasurementInvalid` when a described meter
    is not there."""
    meter = description.meter
    if meter is None:
        if description.nominal_power_w is None:
            return None
        from profiler.meters.nominal import NominalMeter

        return NominalMeter(description.nominal_power_w)
    if meter.kind == "hwmon":
        from profiler.meters.hwmon import open_hwmon

        return open_hwmon(meter, transport)
    from profiler.meters.rapl import open_rapl

    return open_rapl(meter, transport)
