"""Nominal power × time: an estimate for boards without a meter."""

from __future__ import annotations

from dataclasses import dataclass

from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import (
    BlockRecord,
    MarkerPattern,
    PowerTrace,
    Reading,
    SamplerSpec,
    Void,
)


@dataclass(frozen=True)
class ConstantPower:
    """Implements :class:`~profiler.meters.base.PowerTrace` with a constant power."""

    power_w: float
    response: None = None

    def steady_energy_j(self, start_ns: int, end_ns: int) -> Reading:
        return self.energy_j(start_ns, end_ns)

    def energy_j(self, start_ns: int, end_ns: int) -> Reading:
        return self.power_w * (end_ns - start_ns) / 1e9

    def readings(self) -> Void:
        return Void("a nominal power has no readings")


_KIND = "nominal"


def is_instrument(record: MeterRecord) -> bool:
    """Whether an instrument measured the board's power."""
    return record.kind != _KIND


@dataclass(frozen=True)
class NominalMeter:
    """Implements :class:`~profiler.meters.base.Meter` with a description's ``nominal_power_w``."""

    power_w: float
    energy_source: EnergySource
    sampler: SamplerSpec | None = None
    marker: MarkerPattern | None = None

    @property
    def record(self) -> MeterRecord:
        return MeterRecord(
            kind=_KIND, detail=f"{self.power_w:g} W × time, nothing measured", sync="none"
        )

    def begin(self) -> None:
        pass

    def finish(self, _block: BlockRecord, /) -> PowerTrace:
        return ConstantPower(self.power_w)

    def close(self) -> None:
        pass
