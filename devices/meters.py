"""The instruments that a device description can name, and how their clock is tied to the board's.

A meter on the board is read by the harness. One on this computer records by itself; its samples are
then placed on the board's clock in one of three ways (``sync``):

``gpio``    a line of the board, high while a window is open, is wired to an input of the instrument
``marker``  the board draws a known pattern of busy and idle in front of and behind every block
``steady``  the power in the middle of a window, long enough for this computer's clock
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.quantities import Count, Name, Port, Positive, WholeNumber


class HwmonMeter(StrictModel):
    """A sensor behind the Linux hwmon interface, named by driver and label, never by number: the
    kernel numbers hwmon devices in the order in which they appear. The channel either has a power
    reading or a voltage and a current whose product is taken."""

    kind: Literal["hwmon"]
    driver: Name
    label: str | None = None
    channel: Count | None = None
    rate_hz: Positive = 100.0
    root: Path = Path("/sys/class/hwmon")

    @model_validator(mode="after")
    def _one_address(self) -> HwmonMeter:
        if (self.label is None) == (self.channel is None):
            raise ValueError("name the rail by label or by channel, one of them")
        return self


class RaplMeter(StrictModel):
    """Intel and AMD energy counters behind the Linux powercap interface; ``domain`` is the zone's
    name, such as ``package-0``."""

    kind: Literal["rapl"]
    domain: Name = "package-0"
    rate_hz: Positive = 100.0
    root: Path = Path("/sys/class/powercap")


class InaMeter(StrictModel):
    """A Texas Instruments current sensor on an I²C bus of the board, without a kernel driver.
    ``max_current_a`` sets the range where the chip has several (INA219); it must be within it."""

    kind: Literal["ina"]
    chip: Literal["ina219", "ina226", "ina3221"]
    bus: WholeNumber
    address: Annotated[int, Field(ge=0x08, le=0x77)]
    channel: Annotated[int, Field(ge=1, le=3)] = 1
    shunt_ohm: Positive
    max_current_a: Positive
    rate_hz: Positive = 100.0


class PmicMeter(StrictModel):
    """The power management chip of a Raspberry Pi 5, which tells volts and amperes rail by rail.
    Loads on the 5 V pins and USB ports are not among them."""

    kind: Literal["pmic"]
    command: Name = "vcgencmd"
    rate_hz: Annotated[float, Field(gt=0, le=50)] = 20.0


class NvmlMeter(StrictModel):
    """An NVIDIA GPU of this computer, by index or UUID. Some generations tell power averaged over
    ``average_s`` only (NVML API reference, nvmlDeviceGetPowerUsage)."""

    average_s: ClassVar[float] = 1.0

    kind: Literal["nvml"]
    gpu: WholeNumber | Name = 0
    rate_hz: Positive = 50.0


class GpioSync(StrictModel):
    """``input`` counts the instrument's logic inputs from 0. On a Linux board the harness drives
    ``line`` of ``chip``; firmware drives the pin that its board support names."""

    kind: Literal["gpio"]
    input: WholeNumber
    chip: Path | None = None
    line: WholeNumber | None = None

    @model_validator(mode="after")
    def _both(self) -> GpioSync:
        if (self.chip is None) != (self.line is None):
            raise ValueError("chip and line belong together")
        return self


class MarkerSync(StrictModel):
    """``bit_s`` is how long each busy or idle stretch of the pattern lasts."""

    kind: Literal["marker"]
    bit_s: Positive = 0.02


class SteadySync(StrictModel):
    """``guard_s`` is left out at either end of a window: more than this computer can be wrong about
    when it was."""

    kind: Literal["steady"]
    guard_s: Positive = 0.1


Sync: TypeAlias = Annotated[GpioSync | MarkerSync | SteadySync, Field(discriminator="kind")]


class Ppk2Meter(StrictModel):
    """Nordic Power Profiler Kit II. ``source``: it feeds the board with ``voltage_v``; ``ampere``:
    it measures the current of another supply, whose voltage ``voltage_v`` then is."""

    rate_hz: ClassVar[float] = 100_000.0

    kind: Literal["ppk2"]
    port: Name
    mode: Literal["source", "ampere"]
    voltage_v: Annotated[float, Field(ge=0.8, le=5.0)]
    sync: Sync


class ScpiMeter(StrictModel):
    """A supply or multimeter by its VISA address (``TCPIP::…::SOCKET``, ``ASRL…``, ``USB…``).

    ``power_query``, or ``voltage_query`` (else ``voltage_v``) and ``current_query``, are asked
    ``rate_hz`` times a second. ``full_scale`` is where the reading of the last query saturates.
    ``library`` is PyVISA's: pyvisa-py unless named.
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
            raise ValueError("a SCPI instrument has no logic input: sync by marker or steady")
        if (self.power_query is None) == (self.current_query is None):
            raise ValueError("name power_query or current_query, one of them")
        voltages = (self.voltage_query is not None) + (self.voltage_v is not None)
        if voltages != (self.current_query is not None):
            raise ValueError("a current_query needs voltage_query or voltage_v, one of them")
        return self


class JoulescopeMeter(StrictModel):
    """Joulescope JS110, JS220 or JS320 on USB; ``serial`` where there are several."""

    kind: Literal["joulescope"]
    serial: Name | None = None
    rate_hz: Positive = 100_000.0
    sync: Sync


class OtiiMeter(StrictModel):
    """Qoitech Otii Arc or Ace through Otii's TCP server. ``logic_v`` is the voltage of the board's
    logic, with which the Otii's inputs compare."""

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
