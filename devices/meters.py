"""Instruments that a device description can name, and how their clocks are tied to the board's.

The harness reads a meter on the board. An instrument on this computer records by itself; its
samples are then placed on the board's clock in one of three ways (``sync``):

``gpio``    a line of the board, high while a window is open, is wired to an input of the instrument
``marker``  the board draws a known pattern of busy and idle power before and after every block
``steady``  only power from the middle of a window counts, so that this computer's clock suffices
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.quantities import Count, FilePath, Line, Name, Port, Positive, WholeNumber


class _Sensor(StrictModel):
    """A meter whose reading is the mean power over ``integration_s``.

    A replay needs this time for the energies of single operations.
    """

    integration_s: Positive | None = None


class _Instrument(StrictModel):
    """An instrument whose sample is the mean power over ``integration_s``, or low-pass filtered.

    The filter is of first order and halves the power of ``bandwidth_hz``. A replay needs one of the
    two for the energies of single operations.
    """

    integration_s: Positive | None = None
    bandwidth_hz: Positive | None = None

    @model_validator(mode="after")
    def _one_response(self) -> Self:
        if self.integration_s is not None and self.bandwidth_hz is not None:
            raise ValueError("a meter has at most one of integration_s and bandwidth_hz")
        return self


class HwmonMeter(_Sensor):
    """A sensor with a Linux hwmon driver, identified by driver and rail.

    Numbers of hwmon devices are not used, because the kernel assigns them in the order in which the
    devices appear. The channel has a power reading, or a voltage and a current, which are
    multiplied.
    """

    kind: Literal["hwmon"]
    driver: Name
    label: Line | None = None
    channel: Count | None = None
    rate_hz: Positive = 100.0
    root: FilePath = Path("/sys/class/hwmon")

    @model_validator(mode="after")
    def _one_address(self) -> HwmonMeter:
        if (self.label is None) == (self.channel is None):
            raise ValueError("the rail needs exactly one of label and channel")
        return self


class RaplMeter(_Sensor):
    """Energy counters of Intel and AMD processors, read through Linux powercap.

    ``domain`` is the name of the zone, such as ``package-0``. ``integration_s`` is the time between
    two changes of the counter.
    """

    kind: Literal["rapl"]
    domain: Name = "package-0"
    rate_hz: Positive = 100.0
    root: FilePath = Path("/sys/class/powercap")


class InaMeter(StrictModel):
    """A Texas Instruments current sensor on an I²C bus of the board, without a kernel driver.

    ``max_current_a`` selects the range of a chip with several (INA219), and must be within the
    chip's range.
    """

    kind: Literal["ina"]
    chip: Literal["ina219", "ina226", "ina3221"]
    bus: WholeNumber
    address: Annotated[int, Field(ge=0x08, le=0x77)]
    channel: Annotated[int, Field(ge=1, le=3)] = 1
    shunt_ohm: Positive
    max_current_a: Positive
    rate_hz: Positive = 100.0


class PmicMeter(_Sensor):
    """The power management chip of a Raspberry Pi 5, which reports volts and amperes of each rail.

    It does not measure loads on the 5 V pins and USB ports.
    """

    kind: Literal["pmic"]
    command: Name = "vcgencmd"
    rate_hz: Annotated[float, Field(gt=0, le=50)] = 20.0


class NvmlMeter(StrictModel):
    """An NVIDIA GPU of this computer, by index or UUID.

    Some generations only report power averaged over ``average_s`` (NVML API reference,
    nvmlDeviceGetPowerUsage).
    """

    average_s: ClassVar[float] = 1.0

    kind: Literal["nvml"]
    gpu: WholeNumber | Name = 0
    rate_hz: Positive = 50.0


class GpioSync(StrictModel):
    """Synchronisation by a wire from the board to the instrument.

    ``input`` is a logic input of the instrument, counted from 0. On a Linux board the harness
    drives ``line`` of ``chip``; firmware drives the pin that its board support names.
    """

    kind: Literal["gpio"]
    input: WholeNumber
    chip: FilePath | None = None
    line: WholeNumber | None = None

    @model_validator(mode="after")
    def _both(self) -> GpioSync:
        if (self.chip is None) != (self.line is None):
            raise ValueError("chip and line must be given together, or both left out")
        return self


class MarkerSync(StrictModel):
    """Synchronisation by a power pattern; each busy or idle part of it lasts ``bit_s``."""

    kind: Literal["marker"]
    bit_s: Positive = 0.02


class SteadySync(StrictModel):
    """Use of this computer's clock; ``guard_s`` at either end of a window is left out.

    ``guard_s`` must exceed the error of this computer's clock relative to the board's.
    """

    kind: Literal["steady"]
    guard_s: Positive = 0.1


Sync: TypeAlias = Annotated[GpioSync | MarkerSync | SteadySync, Field(discriminator="kind")]


class Ppk2Meter(_Instrument):
    """Nordic Power Profiler Kit II.

    In mode ``source`` it supplies the board with ``voltage_v``; in mode ``ampere`` it measures the
    current of another supply, whose voltage is ``voltage_v``.
    """

    rate_hz: ClassVar[float] = 100_000.0

    kind: Literal["ppk2"]
    port: Name
    mode: Literal["source", "ampere"]
    voltage_v: Annotated[float, Field(ge=0.8, le=5.0)]
    sync: Sync


class ScpiMeter(_Sensor):
    """A supply or multimeter by its VISA address (``TCPIP::…::SOCKET``, ``ASRL…``, ``USB…``).

    ``power_query``, or ``current_query`` with ``voltage_query`` or a fixed ``voltage_v``, is sent
    ``rate_hz`` times a second. The reading of the last query saturates at ``full_scale``.
    ``library`` is PyVISA's; the default is pyvisa-py.
    """

    kind: Literal["scpi"]
    resource: Name
    power_query: Name | None = None
    current_query: Name | None = None
    voltage_query: Name | None = None
    voltage_v: Positive | None = None
    setup: tuple[Name, ...] = ()
    full_scale: Positive | None = None
    rate_hz: Positive = 20.0
    library: Name = "@py"
    baud: Count | None = None
    sync: Sync = SteadySync(kind="steady")

    @model_validator(mode="after")
    def _power(self) -> ScpiMeter:
        if self.sync.kind == "gpio":
            raise ValueError(
                "a SCPI instrument has no logic input for gpio: use sync kind marker or steady"
            )
        if (self.power_query is None) == (self.current_query is None):
            raise ValueError("a SCPI meter needs exactly one of power_query and current_query")
        voltages = (self.voltage_query is not None) + (self.voltage_v is not None)
        if voltages != (self.current_query is not None):
            raise ValueError(
                "current_query needs exactly one of voltage_query and voltage_v; power_query needs"
                " neither"
            )
        return self


class JoulescopeMeter(_Instrument):
    """Joulescope JS110, JS220 or JS320 on USB; ``serial`` selects one of several."""

    kind: Literal["joulescope"]
    serial: Name | None = None
    rate_hz: Positive = 100_000.0
    sync: Sync


class OtiiMeter(_Instrument):
    """Qoitech Otii Arc or Ace through Otii's TCP server.

    ``logic_v`` is the voltage of the board's logic, the reference for the Otii's inputs.
    """

    kind: Literal["otii"]
    host: Name = "127.0.0.1"
    port: Port = 1905
    device: Name | None = None
    voltage_v: Positive
    max_current_a: Positive
    logic_v: Annotated[float, Field(ge=1.2, le=5.0)] = 3.3
    rate_hz: Positive = 4000.0
    sync: Sync


OnBoardMeter: TypeAlias = HwmonMeter | RaplMeter | InaMeter | PmicMeter
HostMeter: TypeAlias = Ppk2Meter | ScpiMeter | JoulescopeMeter | OtiiMeter | NvmlMeter
Meter: TypeAlias = Annotated[OnBoardMeter | HostMeter, Field(discriminator="kind")]


def feeds_board(meter: Meter | None) -> bool:
    """Whether the board has its power from the meter, so that it is off until that is opened."""
    match meter:
        case Ppk2Meter():
            return meter.mode == "source"
        case OtiiMeter():
            return True
    return False
