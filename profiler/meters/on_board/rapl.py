"""Energy counters of Intel and AMD processors in Linux powercap.

``energy_uj`` counts microjoules and restarts at zero after ``max_energy_range_uj``
(Documentation/power/powercap). Since CVE-2020-8694 only root may read it by default.
"""

from __future__ import annotations

import numpy as np

from devices.errors import MeasurementInvalid
from devices.meters import RaplMeter
from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import BoardSamples, PowerTrace, SamplerSpec
from profiler.meters.on_board.base import OnBoardMeter
from profiler.meters.on_board.sysfs import SysfsDevice, read_devices
from profiler.meters.readings import Response
from profiler.meters.trace import EnergyCounter
from profiler.transports.base import Transport

_PATTERNS = ("name", "energy_uj", "max_energy_range_uj")

# The counters change about once a millisecond (Intel, Software Developer's Manual, volume 3, "RAPL
# Interfaces"); twice that at most.
_UPDATE_S = 2e-3


def open_rapl(meter: RaplMeter, transport: Transport, source: EnergySource) -> OnBoardMeter:
    """Find the described zone. Raises :class:`~devices.errors.MeasurementInvalid` with the existing
    zones or the command that makes the counter readable."""
    board = transport.name
    zone = _find_zone(read_devices(transport, str(meter.root), _PATTERNS), meter, board)
    if zone.number("energy_uj") is None:
        raise MeasurementInvalid(
            f"{board}: {zone.path('energy_uj')} is readable by root only",
            remedy=f"allow it until the next boot with: sudo chmod a+r {zone.path('energy_uj')}",
        )
    range_uj = zone.number("max_energy_range_uj")
    if not range_uj:
        raise MeasurementInvalid(
            f"{board}: {zone.path('max_energy_range_uj')} does not give the counter's range"
        )
    range_j, rate_hz = range_uj * 1e-6, meter.rate_hz
    described = meter.integration_s is not None
    response = Response(0.0, held_s=meter.integration_s or _UPDATE_S, is_exact=described)

    def to_trace(samples: BoardSamples) -> PowerTrace:
        return EnergyCounter(
            times_ns=samples.times_ns,
            counter_j=samples.values[:, 0].astype(np.float64) * 1e-6,
            range_j=range_j,
            period_s=1.0 / rate_hz,
            response=response,
        )

    return OnBoardMeter(
        record=MeterRecord(
            kind="rapl",
            detail=f"{meter.domain}: processor only, not the whole board",
            rate_hz=rate_hz,
            sync="sampled on the board, by its own clock",
            remembered_s=response.oldest_s,
        ),
        sampler=SamplerSpec((f"file={zone.path('energy_uj')}",), rate_hz),
        to_trace=to_trace,
        energy_source=source,
    )


def _find_zone(zones: list[SysfsDevice], meter: RaplMeter, board: str) -> SysfsDevice:
    for zone in zones:
        if zone.files.get("name") == meter.domain and "energy_uj" in zone.files:
            return zone
    names = sorted({zone.files["name"] for zone in zones if "energy_uj" in zone.files})
    raise MeasurementInvalid(
        f"{board}: no powercap zone {meter.domain!r} below {meter.root}; zones found:"
        f" {', '.join(names) or 'none (a virtual machine, or no driver intel_rapl_msr)'}"
    )
