"""From the kernels', the harness's and the firmware's sources to the program of a microcontroller,
compiled on this computer and kept for the next time."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import string
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from devices.description import DeviceDescription, Memory, SerialTransport
from devices.firmware import Firmware
from devices.profile import Build
from profiler.errors import BuildFailed
from profiler.programs import package_of, program_path
from profiler.toolchain import (
    HARNESS,
    HARNESS_FLAGS,
    KERNEL_FLAGS,
    KERNELS,
    Files,
    first_errors,
    read_sources,
    sources_hash,
)

FIRMWARE = Path(__file__).parent / "firmware"

FIRMWARE_FLAGS = (
    *HARNESS_FLAGS,
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffunction-sections",
    "-fdata-sections",
)
LINK_FLAGS = ("-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections", "-Wl,--fatal-warnings")
LIBRARIES = ("-lm",)

PORTABLE = ("core", "plan", "text", "runner", "medium")
"""What firmware takes of the harness."""

ALIGNMENT_BYTES = 64
"""Of the arena: JW_ALIGNMENT of the harness."""

_JOBS = 2
_COMPILER_LIMIT_S = 300.0

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class FirmwareIdentity:
    """What a board must say in its hello for its firmware to be of these sources and for this
    description."""

    board: str
    firmware_sha256: str
    kernels_sha256: str


@dataclass(frozen=True)
class FirmwareImage:
    """A program, in the formats that flashing tools take."""

    elf: Path
    bin: Path
    hex: Path
    identity: FirmwareIdentity
    record: Build

    @property
    def firmware_sha256(self) -> str:
        return self.identity.firmware_sha256


def firmware_boards() -> list[str]:
    """The boards that there is support for."""
    return sorted(path.stem for path in (FIRMWARE / "boards").glob("*.c"))


def firmware_identity(description: DeviceDescription) -> FirmwareIdentity:
    """Without building. Raises :class:`~profiler.errors.BuildFailed` as the build does where there
    is no support for a board."""
    return _Plan(description).identity


def build_firmware(
    description: DeviceDescription, progress: Progress | None = None
) -> FirmwareImage:
    """The program of a board, compiled unless that was done before with the same sources, flags and
    compiler.

    Raises :class:`~profiler.errors.BuildFailed`: no compiler, no support for the board, or a
    program that does not fit into its flash or RAM.
    """
    plan = _Plan(description)
    compiler = _Compiler(description)
    version = compiler.version()
    key = hashlib.sha256(f"{plan.identity.firmware_sha256}\0{version}".encode()).hexdigest()
    place = _cache() / key[:32]
    record = Build(
        kernels_sha256=plan.identity.kernels_sha256,
        compiler=version,
        flags=plan.kernel_flags,
        matmul="in-tree",
        threads=1,
    )
    if not place.is_dir():
        try:
            _build(plan, compiler, place, progress or (lambda _step: None))
        except OSError as error:
            raise BuildFailed(f"{description.name}: the firmware cannot be kept: {error}") from None
    _require_arena(plan, compiler.symbols(place / "firmware.elf"))
    files = {suffix: place / f"firmware.{suffix}" for suffix in ("elf", "bin", "hex")}
    return FirmwareImage(files["elf"], files["bin"], files["hex"], plan.identity, record)


def _cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "joulewright" / "firmware"


class _Plan:
    """All that goes into an image, and its hash."""

    def __init__(self, description: DeviceDescription) -> None:
        firmware, memory, transport = _microcontroller(description)
        self.name = description.name
        self.firmware = firmware
        self.memory = memory
        self.kernels = read_sources(KERNELS)
        self.harness = {
            name: content
            for name, content in read_sources(HARNESS).items()
            if Path(name).stem in {*PORTABLE, "platform"}
        }
        self.files = _firmware_files(description)
        self.linker_script = _linker_script(firmware, memory)
        flags = description.toolchain.flags
        self.kernel_flags = (*KERNEL_FLAGS, *flags)
        self.firmware_flags = (*FIRMWARE_FLAGS, *flags)
        self.link_flags = (*flags, *LINK_FLAGS)
        defines = {
            "JW_BOARD": f'"{firmware.board}"',
            "JW_RAM_BYTES": str(memory.ram_bytes),
            "JW_FLASH_BYTES": str(memory.flash_bytes),
            "JW_BAUD": str(transport.baud),
            "JW_KERNELS_SHA256": f'"{sources_hash(self.kernels, self.kernel_flags)}"',
        }
        self.defines = tuple(f"-D{name}={value}" for name, value in defines.items())
        everything = {**self.kernels, **self.harness, **self.files}
        flags_of_all = (*self.firmware_flags, *self.link_flags, *self.defines, self.linker_script)
        self.identity = FirmwareIdentity(
            board=firmware.board,
            firmware_sha256=sources_hash(everything, (*self.kernel_flags, *flags_of_all)),
            kernels_sha256=sources_hash(self.kernels, self.kernel_flags),
        )

    def write(self, directory: Path) -> None:
        for folder, files in (
            ("kernels", self.kernels),
            ("harness", self.harness),
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
    """The parts that the description of every serial board has."""
    firmware, memory, transport = description.firmware, description.memory, description.transport
    if firmware is None or memory is None or not isinstance(transport, SerialTransport):
        raise BuildFailed(f"{description.name} is no board with firmware of this project")
    return firmware, memory, transport


def _firmware_files(description: DeviceDescription) -> Files:
    """By path below the firmware's directory: what all boards share, the board, and the driver of
    its storage."""
    firmware, _, _ = _microcontroller(description)
    if firmware.board not in firmware_boards():
        raise BuildFailed(
            f"{description.name}: there is no support for the board {firmware.board!r}; there is"
            f" for: {', '.join(firmware_boards())} (docs/porting-a-board.md says how to add one)"
        )
    files = dict(read_sources(FIRMWARE))
    for name, content in read_sources(FIRMWARE / "chips").items():
        files[f"chips/{name}"] = content
    files[f"boards/{firmware.board}.c"] = (FIRMWARE / "boards" / f"{firmware.board}.c").read_bytes()
    if description.storage is None:
        return files
    assert description.storage.driver is not None  # the description has seen to it
    driver = f"{description.storage.driver.replace('-', '_')}.c"
    drivers = read_sources(FIRMWARE / "storage")
    if driver not in drivers:
        known = ", ".join(Path(name).stem.replace("_", "-") for name in drivers)
        raise BuildFailed(
            f"{description.name}: there is no storage driver {description.storage.driver!r};"
            f" there is: {known}"
        )
    del files["storage_none.c"]
    files[f"storage/{driver}"] = drivers[driver]
    for name, content in read_sources(FIRMWARE / "storage" / "support").items():
        files[f"storage/support/{name}"] = content
    return files


def _linker_script(firmware: Firmware, memory: Memory) -> str:
    """Firmware's own data lies in front of the arena, and the stack at RAM's end, unless the
    reserved memory is a place of its own."""
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


class _Compiler:
    """GCC for Arm, and the tools beside it, on this computer."""

    def __init__(self, description: DeviceDescription) -> None:
        self.board = description.name
        self.program = description.toolchain.compiler
        if not self.program.endswith("gcc") or " " in self.program:
            raise BuildFailed(
                f"{self.board}: firmware is compiled with a GCC and its tools; found"
                f" toolchain.compiler {self.program!r}; allowed: such as arm-none-eabi-gcc"
            )
        if program_path(self.program) is None:
            raise BuildFailed(
                f"{self.board}: there is no {self.program} on this computer; install it with:"
                f" sudo apt install {package_of(self.program)}"
            )

    def version(self) -> str:
        said = self._run([self.program, "--version"], "say its version")
        return said.splitlines()[0]

    def compile(self, *arguments: str, directory: Path, what: str) -> None:
        self._run([self.program, *arguments], what, directory)

    def symbols(self, program: Path) -> dict[str, int]:
        """Addresses by name."""
        said = self._run([self.program.removesuffix("gcc") + "nm", str(program)], "list symbols")
        rows = (row.split() for row in said.splitlines())
        return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}

    def copy(self, target: str, source: Path, made: Path) -> None:
        objcopy = self.program.removesuffix("gcc") + "objcopy"
        self._run([objcopy, "-O", target, str(source), str(made)], f"write {made.name}")

    def _run(self, command: list[str], what: str, directory: Path | None = None) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},  # its messages are read
                timeout=_COMPILER_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"{self.board}: {command[0]} cannot {what}: {error}") from None
        if done.returncode:
            raise BuildFailed(self._explained(command[0], what, done.stderr))
        return done.stdout

    def _explained(self, program: str, what: str, said: str) -> str:
        full = re.search(r"region `(\w+)' overflowed by (\d+) bytes", said)
        if full:
            return (
                f"{self.board}: the firmware is {full[2]} bytes larger than the board's"
                f" {'flash' if full[1] == 'FLASH' else 'RAM'}; look at memory and firmware in its"
                " description, or compile for size: -Os in toolchain.flags in place of -O3"
            )
        hint = ""
        if re.search(r"nano\.specs|(math|string|stdint|inttypes)\.h: No such file", said):
            hint = f"; the C library is missing: sudo apt install {package_of('arm-none-eabi-gcc')}"
        if "undefined reference to `board_" in said:
            hint = "; the board's support lacks what docs/porting-a-board.md says about it"
        return f"{self.board}: {program} cannot {what}: {first_errors(said)}{hint}"


def _build(plan: _Plan, compiler: _Compiler, place: Path, tell: Progress) -> None:
    """In a directory beside its place, which it takes when everything is there."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        work, made = Path(scratch) / "work", Path(scratch) / "made"
        work.mkdir()
        made.mkdir()
        plan.write(work)
        objects = _compile_all(plan, compiler, work, tell)
        tell("linking the firmware")
        elf = made / "firmware.elf"
        script = ("-T", "firmware.ld")
        compiler.compile(
            *plan.link_flags, *script, *objects, "-o", str(elf), *LIBRARIES,
            directory=work, what="link the firmware",
        )  # fmt: skip
        compiler.copy("binary", elf, made / "firmware.bin")
        compiler.copy("ihex", elf, made / "firmware.hex")
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():  # another process has built the same meanwhile
                raise
            shutil.rmtree(made)


def _require_arena(plan: _Plan, addresses: dict[str, int]) -> None:
    """What the description leaves for training must be there."""
    memory = plan.memory
    arena_bytes = addresses["jw_arena_end"] - addresses["jw_arena_begin"]
    if arena_bytes < memory.usable_bytes:
        taken_bytes = memory.ram_bytes - arena_bytes
        raise BuildFailed(
            f"{plan.name}: the firmware takes {taken_bytes} bytes of RAM for its data and its"
            f" stack of {plan.firmware.stack_bytes}, but memory.reserved_bytes is only"
            f" {memory.reserved_bytes}; write {taken_bytes} there, or more"
        )


def _compile_all(plan: _Plan, compiler: _Compiler, work: Path, tell: Progress) -> list[str]:
    include = ("-I", "firmware", "-I", "harness", "-I", "kernels")
    hashed = f'-DJW_FIRMWARE_SHA256="{plan.identity.firmware_sha256}"'
    own = (*plan.firmware_flags, *plan.defines, hashed, *include)
    sources = [
        *((f"kernels/{name}", (*plan.kernel_flags, *include)) for name in plan.kernels),
        *((f"harness/{name}", own) for name in plan.harness),
        *((f"firmware/{name}", own) for name in plan.files),
    ]
    sources = [(path, flags) for path, flags in sources if path.endswith(".c")]

    def compile_one(source: tuple[str, tuple[str, ...]]) -> str:
        path, flags = source
        compiler.compile(
            *flags, "-c", path, "-o", f"{path}.o", directory=work, what=f"compile {path}"
        )
        return f"{path}.o"

    objects = []
    with ThreadPoolExecutor(_JOBS) as pool:
        try:
            for count, made in enumerate(pool.map(compile_one, sources), 1):
                tell(f"compiling the firmware ({count} of {len(sources)})")
                objects.append(made)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return objects
