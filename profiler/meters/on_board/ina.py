"""Texas Instruments current sensors on an I²C bus of the board, without a kernel driver.

The harness writes the chip's configuration once and then reads two registers a sample, bus and
shunt voltage; power is their product over the shunt. Data sheets: INA219 (SBOS448), INA226
(SBOS547), INA3221 (SBOS576).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from devices.errors import MeasurementInvalid
from devices.meters import InaMeter
from devices.profile import EnergySource, MeterRecord
from profiler.meters.base import BoardSamples, PowerTrace, SamplerSpec
from profiler.meters.on_board.base import OnBoardMeter
from profiler.meters.readings import Response
from profiler.meters.trace import SampledPower

# A reading above this share of the range counts as saturated.
_SATURATED_SHARE = 0.998

_CONFIGURATION = 0x00


@dataclass(frozen=True)
class _Chip:
    """Registers and scales of a chip. ``*_v`` are volts per count of a register, read as a signed
    number of 16 bits. The bus register may carry flags in its ``bus_shift`` low bits, which are
    shifted out. ``integration_s``: time over which its configuration makes it average."""

    shunt_register: int
    shunt_v: float
    bus_register: int
    bus_v: float
    bus_shift: int
    full_scale_v: float
    configuration: int
    integration_s: float


def open_ina(meter: InaMeter, board: str, source: EnergySource) -> OnBoardMeter:
    """Configure the described chip. Raises :class:`~devices.errors.MeasurementInvalid` if the
    described current is beyond the chip's range."""
    chip = _chip(meter)
    most_a = chip.full_scale_v / meter.shunt_ohm
    if meter.max_current_a > most_a:
        raise MeasurementInvalid(
            f"{board}: {meter.chip} on a shunt of {meter.shunt_ohm:g} Ω measures up to"
            f" {most_a:.3g} A, not meter.max_current_a {meter.max_current_a:g}",
            remedy="use a smaller shunt",
        )
    response = Response.held(chip.integration_s)
    where = f"i2c=/dev/i2c-{meter.bus} address={meter.address}"

    def to_trace(samples: BoardSamples) -> PowerTrace:
        # Unsigned: the INA219 uses the sixteenth bit for magnitude.
        bus_v = ((samples.values[:, 0] & 0xFFFF) >> chip.bus_shift) * chip.bus_v
        shunt_v = samples.values[:, 1] * chip.shunt_v
        return SampledPower(
            times_ns=samples.times_ns,
            power_w=(bus_v * shunt_v / meter.shunt_ohm).astype(np.float64),
            saturated=np.abs(shunt_v) >= _SATURATED_SHARE * chip.full_scale_v,
            period_s=1.0 / meter.rate_hz,
            response=response,
        )

    return OnBoardMeter(
        record=MeterRecord(
            kind="ina",
            detail=(
                f"{meter.chip} at 0x{meter.address:02x} on i2c-{meter.bus}, channel"
                f" {meter.channel}, shunt {meter.shunt_ohm:g} Ω"
            ),
            rate_hz=meter.rate_hz,
            sync="sampled on the board, by its own clock",
            remembered_s=response.oldest_s,
        ),
        sampler=SamplerSpec(
            sources=(
                f"{where} register={chip.bus_register}",
                f"{where} register={chip.shunt_register}",
            ),
            rate_hz=meter.rate_hz,
            setup=(f"{where} register={_CONFIGURATION} value={chip.configuration}",),
        ),
        to_trace=to_trace,
        energy_source=source,
    )


_CONVERSION_S = 2 * 1.1e-3
"""Time in which an INA226 or INA3221 converts both voltages once, as it is configured here."""

_INA219_CONVERSION_S = 2 * 532e-6


def _chip(meter: InaMeter) -> _Chip:
    match meter.chip:
        case "ina219":
            return _ina219(meter)
        case "ina226":
            # Both voltages continuously, 1.1 ms each.
            averages, integration_s = _averages(meter.rate_hz, _CONVERSION_S, _AVERAGES)
            configuration = 0x4000 | averages << 9 | 4 << 6 | 4 << 3 | 7
            return _Chip(0x01, 2.5e-6, 0x02, 1.25e-3, 0, 0.08192, configuration, integration_s)
        case "ina3221":
            averages, integration_s = _averages(meter.rate_hz, _CONVERSION_S, _AVERAGES)
            enabled = 1 << (15 - meter.channel)
            configuration = enabled | averages << 9 | 4 << 6 | 4 << 3 | 7
            shunt = 2 * meter.channel - 1
            # Values are shifted left by three bits in these registers: 40 µV and 8 mV per step.
            return _Chip(shunt, 5e-6, shunt + 1, 1e-3, 0, 0.1638, configuration, integration_s)


_AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)


def _ina219(meter: InaMeter) -> _Chip:
    """The INA219 in the smallest range that holds the current. 32 V on the bus; 12 bits, averaged
    2^n times at 532 µs each."""
    shunt_v = meter.max_current_a * meter.shunt_ohm
    gain = next((gain for gain in range(4) if 0.04 * 2**gain >= shunt_v), 3)
    counts = tuple(2**n for n in range(8))
    averages, integration_s = _averages(meter.rate_hz, _INA219_CONVERSION_S, counts)
    conversion = 8 | averages
    configuration = 1 << 13 | gain << 11 | conversion << 7 | conversion << 3 | 7
    return _Chip(0x01, 10e-6, 0x02, 4e-3, 3, 0.04 * 2**gain, configuration, integration_s)


def _averages(rate_hz: float, conversion_s: float, choices: tuple[int, ...]) -> tuple[int, float]:
    """Index of the largest number of averages that still gives a new reading for every sample, and
    the time that they take."""
    fitting = [
        index for index, count in enumerate(choices) if count * conversion_s * rate_hz <= 1.0
    ]
    index = fitting[-1] if fitting else 0
    return index, choices[index] * conversion_s
