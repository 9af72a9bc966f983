"""Power management chip of a Raspberry Pi 5.

``vcgencmd pmic_read_adc`` reports current and voltage of every rail that the chip feeds (Raspberry
Pi documentation, "OS applications, vcgencmd"). Power drawn from the 5 V pins and by USB devices
does not pass through it. The firmware takes milliseconds for a reading, so that tens of readings a
second are possible at best.
"""

from __future__ import annotations

import numpy as np

from devices.meters import PmicMeter
from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import BoardSamples, PowerTrace, SamplerSpec
from profiler.meters.on_board.base import OnBoardMeter
from profiler.meters.readings import Response
from profiler.meters.trace import SampledPower


def open_pmic(meter: PmicMeter, source: EnergySource) -> OnBoardMeter:
    response = Response.held(meter.integration_s) if meter.integration_s else None

    def to_trace(samples: BoardSamples) -> PowerTrace:
        power_w = samples.values[:, 0] * 1e-6
        return SampledPower(
            times_ns=samples.times_ns,
            power_w=power_w.astype(np.float64),
            saturated=np.zeros(len(power_w), dtype=np.bool_),
            period_s=1.0 / meter.rate_hz,
            response=response,
        )

    return OnBoardMeter(
        record=MeterRecord(
            kind="pmic",
            detail="all rails of the power management chip; not the 5 V pins, not USB",
            rate_hz=meter.rate_hz,
            sync="sampled on the board, by its own clock",
            remembered_s=None if response is None else response.oldest_s,
        ),
        sampler=SamplerSpec((f"pmic={meter.command}",), meter.rate_hz),
        to_trace=to_trace,
        energy_source=source,
    )
