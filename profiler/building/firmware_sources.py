"""Sources of a microcontroller's firmware.

They comprise the C sources, the plans that it can replay, the flags and the linker script. A hash
over all of them identifies the firmware in its hello.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devices.description import DeviceDescription, Memory, SerialTransport
from devices.errors import BuildFailed
from devices.firmware import Firmware
from devices.plan import ExecutionPlan
from profiler.building.plan_memory import ALIGNMENT_BYTES, WATCHED_ACTIONS
from profiler.building.plan_source import PLANS, SMALL_ARENA_BYTES, plans_source
from profiler.building.sources import (
    EXECUTOR,
    HARNESS,
    KERNELS,
    ONBOARD,
    Files,
    read_sources,
    sources_hash,
)
from profiler.building.toolchain import HARNESS_FLAGS, KERNEL_FLAGS

FIRMWARE = ONBOARD / "firmware"

FIRMWARE_FLAGS = (
    *HARNESS_FLAGS,
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffunction-sections",
    "-fdata-sections",
)
LINK_FLAGS = ("-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections", "-Wl,--fatal-warnings")
PORTABLE = ("core", "plan", "text", "runner", "transfer", "replay")
"""Modules of the harness that firmware includes."""

REGISTRY = "registry.c"


@dataclass(frozen=True)
class FirmwareIdentity:
    """Identity that the hello of a board with matching firmware contains."""

    board: str
    firmware_sha256: str
    kernels_sha256: str


def firmware_boards() -> list[str]:
    """Names of the supported boards, in order."""
    return sorted(_board_pages())


def _board_pages() -> dict[str, Path]:
    """Paths below the firmware's directory, by board: a page of data in the folder of its chip."""
    pages = (FIRMWARE / "boards").glob("*/*.h")
    return {page.stem: page.relative_to(FIRMWARE) for page in pages}


class FirmwareSources:
    """All sources of an image, and their hash.

    Plans lie in flash, as constants; in RAM they need an arena and the executor's records. An image
    with plans has only the kernels that they use.
    """

    def __init__(self, description: DeviceDescription, plans: Sequence[ExecutionPlan] = ()) -> None:
        firmware, memory, transport = _microcontroller(description)
        self.name = description.name
        self.firmware = firmware
        self.memory = memory
        library = read_sources(KERNELS)
        self.kernels = library
        if plans:
            self.kernels = {**library, REGISTRY: _registry(library[REGISTRY], plans)}
        self.harness = {
            name: content
            for name, content in read_sources(HARNESS).items()
            if Path(name).stem in {*PORTABLE, "platform"}
        }
        self.executor = _executor_files(description, plans)
        self.plans_arena_bytes = max((plan.arena_bytes for plan in plans), default=None)
        self.files = _firmware_files(description)
        self.linker_script = _linker_script(firmware, memory)
        flags = description.toolchain.flags
        self.kernel_flags = (*KERNEL_FLAGS, *flags)
        self.firmware_flags = (*FIRMWARE_FLAGS, *flags)
        self.link_flags = (*flags, *LINK_FLAGS)
        defines = {
            "JW_BOARD": f'"{firmware.board}"',
            "JW_BOARD_DATA": f'"{_board_pages()[firmware.board].as_posix()}"',
            "JW_RAM_BYTES": str(memory.ram_bytes),
            "JW_FLASH_BYTES": str(memory.flash_bytes),
            "JW_BAUD": str(transport.baud),
            "JW_KERNELS_SHA256": f'"{sources_hash(library, self.kernel_flags)}"',
        }
        if memory.ram_bytes <= SMALL_ARENA_BYTES:
            defines["JW_SMALL_ARENA"] = "1"
        if description.emulator is not None:
            defines["JW_EMULATED"] = "1"
        self.defines = tuple(f"-D{name}={value}" for name, value in defines.items())
        everything = {**self.kernels, **self.harness, **self.executor, **self.files}
        flags_of_all = (*self.firmware_flags, *self.link_flags, *self.defines, self.linker_script)
        self.identity = FirmwareIdentity(
            board=firmware.board,
            firmware_sha256=sources_hash(everything, (*self.kernel_flags, *flags_of_all)),
            kernels_sha256=sources_hash(library, self.kernel_flags),
        )

    def write(self, directory: Path) -> None:
        for folder, files in (
            ("kernels", self.kernels),
            ("harness", self.harness),
            ("executor", self.executor),
            ("firmware", self.files),
        ):
            for name, content in files.items():
                path = directory / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        (directory / "firmware.ld").write_text(self.linker_script)


def _microcontroller(
    description: DeviceDescription,
) -> tuple[Firmware, Memory, SerialTransport]:
    """Firmware, memory and transport of a board's description. Raises
    :class:`~devices.errors.BuildFailed` for other boards."""
    firmware, memory, transport = description.firmware, description.memory, description.transport
    if firmware is None or memory is None or not isinstance(transport, SerialTransport):
        raise BuildFailed(f"{description.name} is not a board with firmware of this project")
    return firmware, memory, transport


def _executor_files(description: DeviceDescription, plans: Sequence[ExecutionPlan]) -> Files:
    files = dict(read_sources(EXECUTOR))
    if plans:
        del files["plans_none.c"]
        source = plans_source(plans, description.storage, watched_actions=WATCHED_ACTIONS)
        files[PLANS] = source.encode()
    return files


def _registry(whole: bytes, plans: Sequence[ExecutionPlan]) -> bytes:
    """The table of kernels without the rows of kinds that no plan uses."""
    used = {op.spec.kind for plan in plans for op in plan.computes}

    def kept(row: re.Match[str]) -> str:
        return row[0] if row["kind"] in used else ""

    return _ROW.sub(kept, whole.decode()).encode()


_ROW = re.compile(r' *\{"(?P<kind>[\w.]+)",[^{}]*\},\n')


def _firmware_files(description: DeviceDescription) -> Files:
    """Files by path below the firmware's directory: those of all boards, of the board's chip, the
    board's page of data, and the driver of its storage."""
    firmware, _, _ = _microcontroller(description)
    page = _board_pages().get(firmware.board)
    if page is None:
        raise BuildFailed(
            f"{description.name}: the board {firmware.board!r} is not supported; supported boards:"
            f" {', '.join(firmware_boards())} (docs/porting-a-board.md says how to add one)"
        )
    sources = read_sources(FIRMWARE)
    chip = page.parent.name
    own = {f"chips/{chip}.c", f"chips/{chip}.h", page.as_posix()}
    files = {path: text for path, text in sources.items() if "/" not in path or path in own}
    if description.storage is None:
        return files
    assert description.storage.driver is not None  # the description ensures it
    driver = f"storage/{description.storage.driver.replace('-', '_')}.c"
    drivers = [Path(path) for path in sources if Path(path).parent.name == "storage"]
    if Path(driver) not in drivers:
        known = ", ".join(path.stem.replace("_", "-") for path in drivers)
        raise BuildFailed(
            f"{description.name}: the storage driver {description.storage.driver!r} does not"
            f" exist; existing drivers: {known}"
        )
    del files["storage_none.c"]
    support = (path for path in sources if path.startswith("storage/support/"))
    return files | {path: sources[path] for path in (driver, *support)}


def _linker_script(firmware: Firmware, memory: Memory) -> str:
    """Linker script. The firmware's data lie before the arena and the stack at the end of RAM,
    unless the reserved memory is a separate region."""
    apart = firmware.data_address is not None
    template = string.Template((FIRMWARE / "firmware.ld.in").read_text())
    return template.substitute(
        flash_address=f"{firmware.flash_address:#010x}",
        flash_bytes=memory.flash_bytes,
        ram_address=f"{firmware.ram_address:#010x}",
        ram_bytes=memory.usable_bytes if apart else memory.ram_bytes,
        data_memory=f"DATA (rwx) : ORIGIN = {firmware.data_address:#010x},"
        f" LENGTH = {memory.reserved_bytes}"
        if apart
        else "",
        data_alias="" if apart else 'REGION_ALIAS("DATA", RAM);',
        stack_bytes=firmware.stack_bytes,
        alignment=ALIGNMENT_BYTES,
    )
