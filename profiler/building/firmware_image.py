"""Build the firmware of a microcontroller on this computer, and keep it in a cache."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from devices.claims.scratch import ScratchDirectory
from devices.description import DeviceDescription
from devices.documents.disk import rename_synced
from devices.documents.readable import file_failure
from devices.errors import BuildFailed, BuildInterrupted
from devices.plan import ExecutionPlan
from devices.profile import Build
from devices.user_cache import user_cache
from profiler.building.firmware_objects import FirmwareObjects
from profiler.building.firmware_sources import FirmwareIdentity, FirmwareSources
from profiler.building.plan_source import PLANS
from profiler.building.programs import how_to_install, package_of, program_path
from profiler.building.toolchain import build_failure, first_errors

__all__ = ["FirmwareIdentity", "FirmwareImage", "build_firmware", "firmware_identity"]

LIBRARIES = ("-lm",)

_KERNELS = "kernels/"
_OF_ONE_FIRMWARE = ("firmware/hello.c", f"executor/{PLANS}")
"""Sources that are not the same for other plans: the first states the firmware's hash."""

_JOBS = 2
_UNFINISHED = ".part-"
_COMPILER_LIMIT_S = 300.0

Progress: TypeAlias = Callable[[str], None]


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


def firmware_identity(
    description: DeviceDescription, plans: Sequence[ExecutionPlan] = ()
) -> FirmwareIdentity:
    """Identity of the firmware, without building it. Raises :class:`~devices.errors.BuildFailed` if
    the board is not supported."""
    return FirmwareSources(description, plans).identity


def build_firmware(
    description: DeviceDescription,
    progress: Progress | None = None,
    plans: Sequence[ExecutionPlan] = (),
) -> FirmwareImage:
    """Build the firmware of a board, or take it from the cache.

    The cache is used for the same sources, plans, flags and compiler.

    Args:
        description: A board with firmware.
        progress: Called with each step of the build.
        plans: Execution plans that the firmware can replay.

    Returns:
        The image, in all formats.

    Raises:
        BuildFailed: There is no compiler, the board is not supported, or the program does not fit
            into its flash or RAM.
    """
    sources = FirmwareSources(description, plans)
    compiler = _Compiler(description)
    version = compiler.version()
    key = hashlib.sha256(f"{sources.identity.firmware_sha256}\0{version}".encode()).hexdigest()
    place = _cache() / key[:32]
    record = Build(
        kernels_sha256=sources.identity.kernels_sha256,
        compiler=version,
        flags=sources.kernel_flags,
        matmul="in-tree",
        threads=1,
    )
    if not _is_complete(place):
        try:
            _build(sources, compiler, version, place, progress or (lambda _step: None))
        except OSError as error:
            raise BuildFailed(
                f"{description.name}: the firmware cannot be written to the cache:"
                f" {file_failure(error)}"
            ) from None
    elf, binary, hexadecimal = _programs(place)
    _require_arena(sources, compiler.symbols(elf))
    return FirmwareImage(elf, binary, hexadecimal, sources.identity, record)


def compiler_macros(description: DeviceDescription) -> dict[str, str]:
    """Macros that the board's compiler defines with the description's flags, by name.

    Args:
        description: A board with firmware.

    Raises:
        BuildFailed: The compiler does not exist.
    """
    return _Compiler(description).macros(description.toolchain.flags)


def _cache() -> Path:
    return user_cache() / "firmware"


def _programs(directory: Path) -> tuple[Path, Path, Path]:
    """The program in each format: ELF, binary, Intel HEX."""
    return directory / "firmware.elf", directory / "firmware.bin", directory / "firmware.hex"


def _is_complete(place: Path) -> bool:
    """Whether a build is in the cache. A power cut may have emptied files that were not synced."""
    return all(path.is_file() and path.stat().st_size > 0 for path in _programs(place))


class _Compiler:
    """GCC for Arm and its binutils, on this computer."""

    def __init__(self, description: DeviceDescription) -> None:
        self.board = description.name
        self.program = description.toolchain.compiler
        if not self.program.endswith("gcc") or " " in self.program:
            raise BuildFailed(
                f"{self.board}: firmware needs GCC and its tools; found"
                f" toolchain.compiler {self.program!r}; allowed: such as arm-none-eabi-gcc"
            )
        if program_path(self.program) is None:
            raise BuildFailed(
                f"{self.board}: {self.program} is not installed on this computer",
                remedy=how_to_install([self.program]),
            )

    def version(self) -> str:
        output = self._run([self.program, "--version"], "print its version")
        return output.splitlines()[0]

    def compile(self, *arguments: str, directory: Path, what: str) -> None:
        self._run([self.program, *arguments], what, directory)

    def macros(self, flags: Sequence[str]) -> dict[str, str]:
        command = [self.program, *flags, "-dM", "-E", "-x", "c", "/dev/null"]
        output = self._run(command, "print its macros")
        rows = (row.split(" ", 2) for row in output.splitlines())
        return {row[1]: row[2] for row in rows if len(row) == 3}

    def symbols(self, program: Path) -> dict[str, int]:
        """Addresses by name."""
        output = self._run([self.program.removesuffix("gcc") + "nm", str(program)], "list symbols")
        rows = (row.split() for row in output.splitlines())
        return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}

    def copy(self, target: str, source: Path, made: Path) -> None:
        objcopy = self.program.removesuffix("gcc") + "objcopy"
        self._run([objcopy, "-O", target, str(source), str(made)], f"write {made.name}")

    def _run(self, command: list[str], what: str, directory: Path | None = None) -> str:
        environment = {**os.environ, "LC_ALL": "C"}  # its messages are parsed
        if directory is not None:
            environment["TMPDIR"] = str(directory)  # a killed one leaves files
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                env=environment,
                timeout=_COMPILER_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            is_late = isinstance(error, subprocess.TimeoutExpired)
            kind = BuildInterrupted if is_late else BuildFailed
            raise kind(f"{self.board}: {command[0]} cannot {what}: {error}") from None
        if done.returncode:
            explained = self._explained(command[0], what, done.stderr)
            raise build_failure(done.returncode, done.stderr)(explained)
        return done.stdout

    def _explained(self, program: str, what: str, output: str) -> str:
        full = re.search(r"region `(\w+)' overflowed by (\d+) bytes", output)
        if full:
            return (
                f"{self.board}: the firmware is {full[2]} bytes larger than the board's"
                f" {'flash' if full[1] == 'FLASH' else 'RAM'}; check memory and firmware in its"
                " description, or compile for size: -Os in toolchain.flags instead of -O3"
            )
        hint = ""
        if re.search(r"nano\.specs|(math|string|stdint|inttypes)\.h: No such file", output):
            hint = f"; the C library is missing: sudo apt install {package_of('arm-none-eabi-gcc')}"
        if "undefined reference to `board_" in output:
            hint = "; the board's support lacks a function, see docs/porting-a-board.md"
        return f"{self.board}: {program} cannot {what}: {first_errors(output)}{hint}"


def _build(
    sources: FirmwareSources, compiler: _Compiler, version: str, place: Path, tell: Progress
) -> None:
    """Build in a directory beside ``place``, which is renamed to ``place`` when complete."""
    with ScratchDirectory(place.parent, _UNFINISHED) as scratch:
        work, made = scratch.path / "work", scratch.path / "made"
        work.mkdir()
        made.mkdir()
        sources.write(work)
        objects = _compile_all(sources, compiler, version, work, tell)
        tell("linking the firmware")
        elf, binary, hexadecimal = _programs(made)
        script = ("-T", "firmware.ld")
        compiler.compile(
            *sources.link_flags, *script, *objects, "-o", str(elf), *LIBRARIES,
            directory=work, what="link the firmware",
        )  # fmt: skip
        compiler.copy("binary", elf, binary)
        compiler.copy("ihex", elf, hexadecimal)
        if not _is_complete(place):
            with suppress(FileNotFoundError):  # there may be what a power cut has left
                place.rename(scratch.path / "damaged")
        try:
            rename_synced(made, place)
        except OSError:
            if not _is_complete(place):  # else another process has built the same meanwhile
                raise


def _require_arena(sources: FirmwareSources, addresses: dict[str, int]) -> None:
    """Check that the RAM that the description reserves suffices; with plans, that their arena
    fits."""
    memory, needed_bytes = sources.memory, sources.plans_arena_bytes
    arena_bytes = addresses["jw_arena_end"] - addresses["jw_arena_begin"]
    if needed_bytes is not None:
        if arena_bytes < needed_bytes:
            raise BuildFailed(
                f"{sources.name}: the plan has an arena of {needed_bytes} bytes, but the firmware"
                f" that replays it leaves {arena_bytes}",
                remedy=f"schedule it for a RAM budget of at most {arena_bytes} bytes; a plan of"
                " more steps needs more memory besides its arena",
            )
    elif arena_bytes < memory.usable_bytes:
        taken_bytes = memory.ram_bytes - arena_bytes
        raise BuildFailed(
            f"{sources.name}: the firmware takes {taken_bytes} bytes of RAM for its data and its"
            f" stack of {sources.firmware.stack_bytes}, but memory.reserved_bytes is only"
            f" {memory.reserved_bytes}",
            remedy=f"set it to at least {taken_bytes}",
        )


class _File(NamedTuple):
    """A source or header, by its path in the build, with the flags of all firmware that has it."""

    path: str
    content: bytes
    flags: tuple[str, ...]


def _files(sources: FirmwareSources) -> list[_File]:
    include = ("-I", "firmware", "-I", "harness", "-I", "executor", "-I", "kernels")
    own = (*sources.firmware_flags, *sources.defines, *include)
    folders = {
        "kernels": (sources.kernels, (*sources.kernel_flags, *include)),
        "harness": (sources.harness, own),
        "executor": (sources.executor, own),
        "firmware": (sources.files, own),
    }
    return [
        _File(f"{folder}/{name}", content, flags)
        for folder, (files, flags) in folders.items()
        for name, content in files.items()
    ]


def _compile_all(
    sources: FirmwareSources, compiler: _Compiler, version: str, work: Path, tell: Progress
) -> list[str]:
    files = _files(sources)
    units = [file for file in files if file.path.endswith(".c")]
    headers = {file.path: file.content for file in files if file.path.endswith(".h")}
    # Kernels include no others, so that boards share them.
    headers_of_kernels = {path: own for path, own in headers.items() if path.startswith(_KERNELS)}
    kept_kernels = FirmwareObjects((compiler.program, version), headers_of_kernels)
    kept_others = FirmwareObjects((compiler.program, version), headers)
    stated = (
        f'-DJW_FIRMWARE_SHA256="{sources.identity.firmware_sha256}"',
        f'-DJW_COMPILER="{version}"',
    )

    def compile_one(unit: _File) -> str:
        made = work / f"{unit.path}.o"
        is_own = unit.path in _OF_ONE_FIRMWARE
        kept = kept_kernels if unit.path.startswith(_KERNELS) else kept_others
        key = None if is_own else kept.key(*unit)
        if key is None or not kept.take(key, made):
            words = (*unit.flags, *(stated if is_own else ()), "-c", unit.path)
            what = f"compile {unit.path}"
            compiler.compile(*words, "-o", f"{unit.path}.o", directory=work, what=what)
            if key is not None:
                kept.keep(key, made)
        return f"{unit.path}.o"

    objects = []
    with ThreadPoolExecutor(_JOBS) as pool:
        try:
            for count, made in enumerate(pool.map(compile_one, units), 1):
                tell(f"compiling the firmware ({count} of {len(units)})")
                objects.append(made)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    kept_others.shrink()
    return objects
