"""A meter whose sensor the board itself reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import BlockRecord, BoardSamples, MarkerPattern, PowerTrace, SamplerSpec


@dataclass(frozen=True)
class OnBoardMeter:
    """Meter that is read by the harness. Samples carry the board's own clock, so no synchronisation
    is needed."""

    record: MeterRecord
    sampler: SamplerSpec
    to_trace: Callable[[BoardSamples], PowerTrace]
    energy_source: EnergySource
    marker: MarkerPattern | None = None

    def begin(self) -> None:
        pass

    def finish(self, block: BlockRecord, /) -> PowerTrace:
        return self.to_trace(block.samples)

    def close(self) -> None:
        pass
