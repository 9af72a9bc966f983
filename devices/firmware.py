"""What a microcontroller's description says about its firmware, and a board's about the emulator
that stands in for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.quantities import Count, Name, Positive

Address: TypeAlias = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]


class OpenocdFlasher(StrictModel):
    """``config`` holds OpenOCD's ``-f`` files, such as ``board/stm32f4discovery.cfg``."""

    kind: Literal["openocd"]
    config: Annotated[tuple[Name, ...], Field(min_length=1)]


class PyocdFlasher(StrictModel):
    kind: Literal["pyocd"]
    target: Name
    probe: Name | None = None


class NrfjprogFlasher(StrictModel):
    kind: Literal["nrfjprog"]
    serial: Name | None = None


class BossacFlasher(StrictModel):
    """The SAM-BA boot loader of Arduino's boards, which is entered by opening the port at 1200
    baud. ``offset`` is where programs begin behind it."""

    kind: Literal["bossac"]
    port: Name
    offset: Address = 0x2000


class CopyFlasher(StrictModel):
    """A boot loader that shows up as a disk. ``uf2_family`` is the chip's, for format uf2."""

    kind: Literal["copy"]
    directory: Path
    format: Literal["bin", "hex", "uf2"]
    uf2_family: Address | None = None

    @model_validator(mode="after")
    def _family(self) -> CopyFlasher:
        if (self.format == "uf2") != (self.uf2_family is not None):
            raise ValueError("uf2_family belongs to format uf2")
        return self


Flasher: TypeAlias = Annotated[
    OpenocdFlasher | PyocdFlasher | NrfjprogFlasher | BossacFlasher | CopyFlasher,
    Field(discriminator="kind"),
]


class Firmware(StrictModel):
    """``board`` names the board support, a page of ``onboard/firmware/boards/CHIP``. The addresses
    are where flash begins for the program (``flash_bytes`` count from there) and where RAM begins.
    What the firmware needs for itself lies in that RAM too, ``stack_bytes`` at its end; or at
    ``data_address``, where the memory's ``reserved_bytes`` lie apart from the rest."""

    board: Name
    flash_address: Address
    ram_address: Address = 0x20000000
    data_address: Address | None = None
    stack_bytes: Count = 4096
    flasher: Flasher | None = None


class Throttle(StrictModel):
    """QEMU's limit on a drive, in requests of 512 bytes a second; without icount only."""

    read_iops: Count
    write_iops: Count


class EmulatedCard(StrictModel):
    """An SD card, empty at every start."""

    size_bytes: Count = 64 << 20
    throttle: Throttle | None = None


class EmulatedNand(StrictModel):
    """The kernel's nandsim: its own delays, in its units."""

    read_delay_us: Count = 25
    program_delay_us: Count = 200
    erase_delay_ms: Count = 2


class EmulatedSensor(StrictModel):
    """An INA226 on an emulated I²C bus, behind the kernel's own driver; a program in the guest
    makes it follow the processor's load between two powers."""

    idle_w: Positive = 2.5
    busy_w: Positive = 4.5


class Emulator(StrictModel):
    """QEMU stands in for the board. With ``icount_shift`` one instruction takes 2**shift ns of the
    board's time, whatever the host does; without it, the board's time is the host's."""

    program: Literal["qemu-system-arm", "qemu-system-aarch64"]
    machine: Name
    cpu: Name | None = None
    icount_shift: Annotated[int, Field(ge=0, le=10)] | None = None
    card: EmulatedCard | None = None
    nand: EmulatedNand | None = None
    sensor: EmulatedSensor | None = None

    @model_validator(mode="after")
    def _throttle_has_an_effect(self) -> Emulator:
        if self.icount_shift is not None and self.card is not None and self.card.throttle:
            raise ValueError("card.throttle has no effect with icount_shift: leave one of them out")
        return self
