"""DeviceDescription (``device/1``): connection, toolchain, power and storage of a board.

A description holds no secrets: keys are given by path, passwords come from an agent or the
environment. Figures are in SI units, named in the key.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from devices.documents.document import DocumentError, StrictModel, read_yaml
from devices.documents.explain import choices
from devices.firmware import Emulator, Firmware
from devices.meters import GpioSync, Meter
from devices.quantities import Count, FilePath, Line, Name, Port, Positive, Size


def _bare_host(host: str) -> str:
    named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f]*:[0-9A-Fa-f.:]*:[\w.:%]*", host)
    if named is None:
        raise ValueError(
            f"found {host!r}; allowed: a name or an address; put the user under 'user' and the port"
            " under 'port'"
        )
    return host


def _command(words: str) -> str:
    try:
        program = "".join(shlex.split(words)[:1])
    except ValueError as error:
        raise ValueError(f"found {words!r}: {str(error).lower()}") from None
    if not program.strip():
        raise ValueError(f"found {words!r}; allowed: the name of a program")
    return words


CommandWords: TypeAlias = Annotated[Name, AfterValidator(_command)]
"""A program with its first arguments, quoted as in a shell."""
HostName: TypeAlias = Annotated[Name, AfterValidator(_bare_host)]
UserName: TypeAlias = Annotated[Name, Field(pattern=r"^[^\s\"]+$")]

# Names of files contain it, with what tells them apart; they may have 255 bytes.
_LONGEST_NAME = 100

CATALOG = Path(__file__).parent / "catalog"


class LocalTransport(StrictModel):
    """The board is this computer."""

    kind: Literal["local"]


class JumpHost(StrictModel):
    """A host that SSH connects through; the SSH config supplies keys that are absent here."""

    host: HostName
    user: UserName | None = None
    port: Port | None = None


class SshTransport(StrictModel):
    """Connection to a board by SSH.

    ``host`` is a name, an address or a ``Host`` of the SSH config (``~/.ssh/config``). The SSH
    config supplies keys that are absent here; the defaults are those of ``ssh``: this computer's
    user name, port 22, the agent and the default keys, ``~/.ssh/known_hosts``.
    ``known_hosts`` and ``key`` are paths on this computer, and also apply to ``jump``. Retries of a
    lost connection, and of a first one where the meter feeds the board, end after ``deadline_s``.
    An emulator supplies port and keys of its board.
    """

    kind: Literal["ssh"]
    host: HostName
    user: UserName | None = None
    port: Port | None = None
    key: FilePath | None = None
    known_hosts: FilePath | None = None
    jump: JumpHost | None = None
    connect_timeout_s: Positive = 10.0
    keep_alive_s: Positive = 5.0
    deadline_s: Positive = 60.0


class SerialTransport(StrictModel):
    """Connection to a microcontroller by a serial port.

    ``port`` is a device node (one below ``/dev/serial/by-id`` keeps its name), a pseudo-terminal or
    ``socket://host:port``; it is absent if an emulator provides it. Retries of a lost connection,
    and of a first one where the meter feeds the board, end after ``deadline_s``.
    """

    kind: Literal["serial"]
    port: Name | None = None
    baud: Count = 115_200
    deadline_s: Positive = 60.0


class NativeToolchain(StrictModel):
    """Compiler on the board itself.

    ``matmul`` selects the code for matrix products: a BLAS, the kernels' own code, or (``auto``)
    the one that a profile finds to be faster on the board. A schedule runs with its profile's
    choice.
    """

    kind: Literal["native"]
    compiler: CommandWords = "cc"
    flags: tuple[Line, ...] = ("-O3", "-march=native")
    matmul: Literal["auto", "cblas", "in-tree"] = "auto"


class CrossToolchain(StrictModel):
    """Compiler on this computer, for the board.

    ``compiler`` is a command, which may have several words, such as ``aarch64-linux-gnu-gcc`` or
    ``python -m ziglang cc``.
    """

    kind: Literal["cross"]
    compiler: CommandWords
    flags: tuple[Line, ...] = ()
    matmul: Literal["cblas", "in-tree"] = "in-tree"


Transport: TypeAlias = Annotated[
    LocalTransport | SshTransport | SerialTransport, Field(discriminator="kind")
]
Toolchain: TypeAlias = Annotated[NativeToolchain | CrossToolchain, Field(discriminator="kind")]


class Memory(StrictModel):
    """Sizes of a board's memory.

    ``reserved_bytes`` is used by the system, or lies apart from the rest; the remainder is one
    piece, available for training. ``flash_bytes`` is for a microcontroller's program.
    """

    ram_bytes: Count
    flash_bytes: Count | None = None
    reserved_bytes: Size = 0

    @model_validator(mode="after")
    def _something_left(self) -> Memory:
        if self.reserved_bytes >= self.ram_bytes:
            raise ValueError(
                f"reserved_bytes {self.reserved_bytes} leaves nothing of ram_bytes"
                f" {self.ram_bytes}; make it smaller"
            )
        return self

    @property
    def usable_bytes(self) -> int:
        """Bytes available for training."""
        return self.ram_bytes - self.reserved_bytes


class Storage(StrictModel):
    """Medium that tensors are paged to.

    Exactly one key states how it is accessed: ``path`` is a directory on the board (``~`` is its
    user's home); ``driver`` names the firmware's driver on a microcontroller; ``mtd_partition`` is
    a raw flash partition of a Linux board, by its name in ``/proc/mtd``.

    ``page_bytes`` is the unit in which costs are counted. ``erase_block_bytes`` is present if flash
    must be erased before it is written. On a medium without a file system, only ``scratch_bytes``
    from ``scratch_offset_bytes`` on are written. ``endurance_cycles`` counts program-erase cycles
    per block. ``dma``: a controller moves the bytes, so that a transfer can run while the processor
    computes.
    """

    medium: Literal[
        "sd", "emmc", "nvme", "ssd", "usb", "nor-flash", "nand", "qspi-flash", "psram", "disk"
    ]
    path: Line | None = None
    driver: Line | None = None
    mtd_partition: Name | None = None
    dma: bool = False
    page_bytes: Count = 4096
    erase_block_bytes: Count | None = None
    capacity_bytes: Count | None = None
    scratch_offset_bytes: Size = 0
    scratch_bytes: Count | None = None
    endurance_cycles: Count | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Storage:
        ways = [self.path, self.driver, self.mtd_partition]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("storage needs exactly one of path, driver and mtd_partition")
        if self.mtd_partition is not None and self.erase_block_bytes is None:
            raise ValueError("raw flash needs erase_block_bytes")
        if (self.scratch_bytes is None) != (self.path is not None):
            raise ValueError(
                "scratch_bytes is the part that may be overwritten: driver and mtd_partition need"
                " it, path excludes it"
            )
        return self


class Processor(StrictModel):
    """Processor of a board.

    ``clock_hz`` is the highest clock at which all cores may run. ``data_cache_bytes`` is the
    largest data cache, 0 for none; if absent, it is read from the board.
    """

    model: Name
    cores: Count
    clock_hz: Positive
    architecture: Literal["x86_64", "aarch64", "armv7", "armv6-m", "armv7-m", "armv7e-m", "armv8-m"]
    data_cache_bytes: Size | None = None


class Cooldown(StrictModel):
    """Wait before each block until the board has cooled to ``below_c`` °C, at most ``limit_s``."""

    below_c: Positive
    limit_s: Positive = 300.0


class Conditions(StrictModel):
    """Conditions that are fixed while a Linux board is measured, and restored afterwards.

    Setting governor and frequency requires root, or ``sudo`` without a password.
    """

    governor: Name | None = None
    frequency_hz: Positive | None = None
    cooldown: Cooldown | None = None


@dataclass(frozen=True)
class _Reference:
    """Word by which a description was loaded. It is no part of it: equal ones may differ in it."""

    word: str | None = field(default=None, compare=False)


class DeviceDescription(StrictModel):
    """Description of one board.

    If ``processor`` or ``memory`` is absent, its values are read from the board.
    ``nominal_power_w`` replaces a missing meter: joules are then nominal power × time, and are
    marked as estimated wherever they are shown. All results of a board with an ``emulator`` are
    marked as emulated.
    """

    schema_: Annotated[Literal["device/1"], Field(alias="schema")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=_LONGEST_NAME)]
    model: Name
    processor: Processor | None = None
    transport: Transport
    toolchain: Toolchain
    firmware: Firmware | None = None
    emulator: Emulator | None = None
    meter: Meter | None = None
    memory: Memory | None = None
    storage: Storage | None = None
    conditions: Conditions | None = None
    nominal_power_w: Positive | None = None
    _reference: _Reference = PrivateAttr(default=_Reference())

    @model_validator(mode="after")
    def _belongs_together(self) -> DeviceDescription:
        sync = getattr(self.meter, "sync", None)
        gpio = sync if isinstance(sync, GpioSync) else None
        if isinstance(self.transport, SerialTransport):
            self._require_microcontroller(self.transport, gpio)
        else:
            self._require_linux(gpio)
        return self

    @property
    def reference(self) -> str:
        """Word for ``--device`` that names this board in a command: the file or the name that it
        was loaded by, or else its name."""
        return self._reference.word or self.name

    def referred_to_by(self, word: str) -> DeviceDescription:
        """The same description with another :attr:`reference`."""
        description = self.model_copy()
        description._reference = _Reference(word)
        return description

    @property
    def packs(self) -> bool:
        """Whether a replay may page a tensor without its zeros.

        They are left out in the tensor's own memory. With DMA, an op might read it meanwhile.
        """
        storage = self.storage
        return storage is not None and not storage.dma and storage.mtd_partition is None

    def with_matmul(self, matmul: str | None) -> DeviceDescription:
        """Replace ``auto`` by the ``matmul`` of a build; keep a choice made in the description."""
        toolchain = self.toolchain
        if toolchain.kind != "native" or toolchain.matmul != "auto" or matmul is None:
            return self
        decided = toolchain.model_copy(update={"matmul": matmul})
        return self.model_copy(update={"toolchain": decided})

    def _require_linux(self, gpio: GpioSync | None) -> None:
        if self.firmware is not None:
            raise ValueError("firmware is for boards on a serial transport; remove it")
        if self.storage is not None and self.storage.driver is not None:
            raise ValueError("storage: a Linux board needs path or mtd_partition, not driver")
        if gpio is not None and gpio.line is None:
            raise ValueError("meter.sync: a Linux board needs the chip and line that it drives")
        emulator = self.emulator
        if emulator is not None and isinstance(self.transport, LocalTransport):
            raise ValueError("emulator: an emulated board needs transport ssh or serial")
        card = None if emulator is None else emulator.card
        if card is not None and card.spi_port is not None:
            raise ValueError("emulator: card.spi_port is for boards on a serial transport")

    def _require_microcontroller(self, transport: SerialTransport, gpio: GpioSync | None) -> None:
        if transport.port is None and self.emulator is None:
            raise ValueError("transport: a serial board needs its port")
        if self.firmware is None or self.processor is None or self.memory is None:
            raise ValueError("a serial board needs firmware, processor and memory")
        if self.memory.flash_bytes is None:
            raise ValueError("memory: a serial board needs flash_bytes")
        if self.toolchain.kind != "cross":
            raise ValueError("toolchain: a serial board needs one of kind cross")
        if self.storage is not None and self.storage.driver is None:
            raise ValueError("storage: a serial board needs driver, not path or mtd_partition")
        if gpio is not None and gpio.line is not None:
            raise ValueError("meter.sync: the firmware knows its line; leave out chip and line")
        held = self.conditions
        if held is not None and (held.governor is not None or held.frequency_hz is not None):
            raise ValueError("conditions: governor and frequency_hz are for Linux boards only")
        emulator = self.emulator
        if emulator is not None and (emulator.nand is not None or emulator.sensor is not None):
            raise ValueError("emulator: nand and sensor are for Linux boards only")


def catalog_names() -> list[str]:
    """Names of the boards that come with the project, sorted."""
    return sorted(path.stem for path in CATALOG.glob("*.yaml"))


def load_description(name_or_path: str) -> DeviceDescription:
    """Load a board of the catalogue by name, or any description by path.

    Args:
        name_or_path: Name in the catalogue; a path ends with ``.yaml`` or ``.yml``, or has a slash.

    Returns:
        The validated description.

    Raises:
        DocumentError: There is no such name (the message has the nearest one), or the file is not
            a valid description.
    """
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        return read_yaml(path, DeviceDescription).referred_to_by(name_or_path)
    known = catalog_names()
    if name_or_path not in known:
        raise DocumentError(
            f"no device {name_or_path!r} in the catalogue; {choices(name_or_path, known)}"
        )
    return read_yaml(CATALOG / f"{name_or_path}.yaml", DeviceDescription)
