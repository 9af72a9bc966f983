"""Parts of a description: the firmware of a microcontroller, and the emulator of a board."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from devices.documents.document import StrictModel
from devices.quantities import Count, FilePath, Name, Positive

Address: TypeAlias = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]


class OpenocdFlasher(StrictModel):
    """OpenOCD; ``config`` holds its ``-f`` files, such as ``board/stm32f4discovery.cfg``."""

    kind: Literal["openocd"]
    config: Annotated[tuple[Name, ...], Field(min_length=1)]


class PyocdFlasher(StrictModel):
    """pyOCD; ``target`` is its name of the chip, ``probe`` the unique ID of a debug probe."""

    kind: Literal["pyocd"]
    target: Name
    probe: Name | None = None


class NrfjprogFlasher(StrictModel):
    """Nordic's nrfjprog; ``serial`` is the serial number of a debug probe."""

    kind: Literal["nrfjprog"]
    serial: Name | None = None


class BossacFlasher(StrictModel):
    """SAM-BA boot loader of Arduino boards, entered by opening the port at 1200 baud.

    ``offset`` is the address of the program, after the boot loader.
    """

    kind: Literal["bossac"]
    port: Name
    offset: Address = 0x2000


class CopyFlasher(StrictModel):
    """Boot loader that appears as a disk; ``uf2_family`` identifies the chip, for format uf2."""

    kind: Literal["copy"]
    directory: FilePath
    format: Literal["bin", "hex", "uf2"]
    uf2_family: Address | None = None

    @model_validator(mode="after")
    def _family(self) -> CopyFlasher:
        if (self.format == "uf2") != (self.uf2_family is not None):
            raise ValueError("uf2_family is required with format uf2, and excluded otherwise")
        return self


Flasher: TypeAlias = Annotated[
    OpenocdFlasher | PyocdFlasher | NrfjprogFlasher | BossacFlasher | CopyFlasher,
    Field(discriminator="kind"),
]


class Firmware(StrictModel):
    """Firmware of a microcontroller, and its place in memory.

    ``board`` names the board support, a file of ``onboard/firmware/boards/CHIP``.
    ``flash_address`` is the start of the flash for the program (``flash_bytes`` count from there),
    ``ram_address`` the start of RAM. The firmware's own data lies in that RAM too, with
    ``stack_bytes`` at its end; or from ``data_address`` on, if the memory's ``reserved_bytes`` lie
    apart from the rest.
    """

    board: Name
    flash_address: Address
    ram_address: Address = 0x20000000
    data_address: Address | None = None
    stack_bytes: Count = 4096
    flasher: Flasher | None = None


class Throttle(StrictModel):
    """QEMU's limit on a drive, in 512-byte requests per second; has no effect with icount."""

    read_iops: Count
    write_iops: Count


class EmulatedCard(StrictModel):
    """Emulated SD card, empty at every start.

    ``spi_port`` is the address of the SPI port (PL022) that it is wired to, on a machine that has
    no slot for it.
    """

    size_bytes: Count = 64 << 20
    throttle: Throttle | None = None
    spi_port: Address | None = None


class EmulatedNand(StrictModel):
    """NAND flash emulated by the kernel's nandsim, with nandsim's delays and units."""

    read_delay_us: Count = 25
    program_delay_us: Count = 200
    erase_delay_ms: Count = 2


class EmulatedSensor(StrictModel):
    """INA226 on an emulated I²C bus, read by the kernel's own driver.

    A program in the guest sets its reading between two powers, by the processor's load.
    """

    idle_w: Positive = 2.5
    busy_w: Positive = 4.5


class Emulator(StrictModel):
    """QEMU in place of the board.

    With ``icount_shift``, one instruction takes 2**shift ns of the board's time, however fast the
    host is; without it, the board's time is the host's.
    """

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
