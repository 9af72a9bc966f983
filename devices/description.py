"""DeviceDescription (``device/1``): how a board is reached, built for, powered and stored to.

Secrets are never in it: keys by path, passwords by agent or environment. Figures are SI, in the
key's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from devices.document import DocumentError, StrictModel, read_yaml
from devices.explain import choices

Positive: TypeAlias = Annotated[float, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]


def _bare_host(host: str) -> str:
    named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f]*:[0-9A-Fa-f.:]*:[\w.:%]*", host)
    if named is None:
        raise ValueError(
            f"found {host!r}; allowed: a name or an address, without user and port, which have keys"
            " of their own"
        )
    return host


HostName: TypeAlias = Annotated[Name, AfterValidator(_bare_host)]

CATALOG = Path(__file__).parent / "catalog"


class LocalTransport(StrictModel):
    kind: Literal["local"]


class JumpHost(StrictModel):
    host: HostName
    user: Name
    port: Port = 22


class SshTransport(StrictModel):
    """``known_hosts`` and ``key`` are paths on this computer; without ``key`` the agent and the
    default keys are tried. ``deadline_s`` ends the retries of a lost connection."""

    kind: Literal["ssh"]
    host: HostName
    user: Name
    port: Port = 22
    key: Path | None = None
    known_hosts: Path = Path("~/.ssh/known_hosts")
    jump: JumpHost | None = None
    connect_timeout_s: Positive = 10.0
    keep_alive_s: Positive = 5.0
    deadline_s: Positive = 60.0


class SerialTransport(StrictModel):
    kind: Literal["serial"]
    port: Name
    baud: Count = 115_200


class NativeToolchain(StrictModel):
    """The board compiles for itself."""

    kind: Literal["native"]
    compiler: Name = "cc"
    flags: tuple[str, ...] = ("-O3", "-march=native")
    matmul: Literal["auto", "cblas", "in-tree"] = "auto"


class CrossToolchain(StrictModel):
    """This computer compiles; the board gets the program. ``compiler`` is a command with its
    leading words, such as ``aarch64-linux-gnu-gcc`` or ``python -m ziglang cc``."""

    kind: Literal["cross"]
    compiler: Name
    flags: tuple[str, ...] = ()
    matmul: Literal["cblas", "in-tree"] = "in-tree"


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


Transport: TypeAlias = Annotated[
    LocalTransport | SshTransport | SerialTransport, Field(discriminator="kind")
]
Toolchain: TypeAlias = Annotated[NativeToolchain | CrossToolchain, Field(discriminator="kind")]
Meter: TypeAlias = Annotated[HwmonMeter | RaplMeter, Field(discriminator="kind")]


class Memory(StrictModel):
    """``reserved_bytes`` is what the system keeps, or what lies apart from the rest; the remainder
    is one piece and there for training. ``flash_bytes`` holds a microcontroller's program."""

    ram_bytes: Count
    flash_bytes: Count | None = None
    reserved_bytes: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _something_left(self) -> Memory:
        if self.reserved_bytes >= self.ram_bytes:
            raise ValueError(
                f"reserved_bytes {self.reserved_bytes} leaves nothing of ram_bytes {self.ram_bytes}"
            )
        return self

    @property
    def usable_bytes(self) -> int:
        return self.ram_bytes - self.reserved_bytes


class Storage(StrictModel):
    """``path`` is a directory on the board (``~`` is its user's home), on the medium that pages go
    to; ``driver`` names the firmware's driver on a microcontroller. ``page_bytes`` is the unit in
    which costs are counted. ``endurance_cycles`` is program-erase cycles a block. ``dma``: a
    controller moves the bytes, so that a transfer can run while the processor computes."""

    medium: Literal["sd", "emmc", "nvme", "ssd", "usb", "nor-flash", "nand", "qspi-flash", "disk"]
    path: str | None = None
    driver: str | None = None
    dma: bool = False
    page_bytes: Count = 4096
    erase_block_bytes: Count | None = None
    capacity_bytes: Count | None = None
    endurance_cycles: Count | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> Storage:
        if (self.path is None) == (self.driver is None):
            raise ValueError("storage is reached by path or by driver, one of them")
        return self


class Processor(StrictModel):
    """``clock_hz`` is the highest that all cores may run at."""

    model: Name
    cores: Count
    clock_hz: Positive
    architecture: Literal["x86_64", "aarch64", "armv7", "armv6-m", "armv7e-m"]


class DeviceDescription(StrictModel):
    """One board. Where ``processor`` or ``memory`` is absent, what the board says about itself
    counts. ``nominal_power_w`` stands in for a missing meter: joules are then nominal power × time,
    and marked as estimated wherever they show."""

    schema_: Annotated[Literal["device/1"], Field(alias="schema")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    model: Name
    processor: Processor | None = None
    transport: Transport
    toolchain: Toolchain
    meter: Meter | None = None
    memory: Memory | None = None
    storage: Storage | None = None
    nominal_power_w: Positive | None = None


def catalog_names() -> list[str]:
    """The boards that come with the project."""
    return sorted(path.stem for path in CATALOG.glob("*.yaml"))


def load_description(name_or_path: str) -> DeviceDescription:
    """A board of the catalogue by name, or any description by path.

    Raises :class:`~devices.document.DocumentError`, with the near name for a typo.
    """
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        return read_yaml(path, DeviceDescription)
    known = catalog_names()
    if name_or_path not in known:
        raise DocumentError(
            f"no device {name_or_path!r} in the catalogue; {choices(name_or_path, known)}"
        )
    return read_yaml(CATALOG / f"{name_or_path}.yaml", DeviceDescription)
