"""Build the harness from the sources of kernels, executor and harness, and record its provenance.

A native toolchain compiles on the board itself, a cross toolchain on this computer; the steps are
the same on either machine. Objects are kept there for the next build of the same sources.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from devices.description import CrossToolchain, NativeToolchain
from devices.errors import BoardCommandFailed, BuildFailed, BuildInterrupted, SessionGone
from devices.profile import Build, MatmulComparison
from profiler.building.blas import (
    CBLAS_SOURCE,
    COMPARISON,
    IN_TREE_SOURCE,
    PROBE,
    Blas,
    known_blas,
    read_comparison,
    renamed,
)
from profiler.building.objects import keep_objects, objects_key, restore_objects
from profiler.building.plan_source import PLANS
from profiler.building.programs import how_to_install
from profiler.building.sources import EXECUTOR, HARNESS, KERNELS, Files, read_sources, sources_hash
from profiler.transports.base import CommandResult, Transport
from profiler.transports.deadline import Deadline
from profiler.transports.local import LocalTransport

KERNEL_FLAGS = ("-std=c99", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")
"""Flags on every board, before its own flags. The kernels state which products and sums are fused,
so that different compilers round alike."""

HARNESS_FLAGS = ("-std=gnu11",)
EXECUTOR_FLAGS = (*HARNESS_FLAGS, "-O2")
"""Flags of the executor. The board's own flags follow and may override the optimisation level."""

LIBRARIES = ("-lm", "-lpthread")
PROGRAM = "joulewright-harness"

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment of the program: schedules are for one thread, and OpenBLAS would start more."""

NO_PLANS = "plans_none.c"
"""Source of the executor that stands in for plans where there are none."""

_LIBRARIES = ("kernels", "executor", "harness")
"""Each includes headers of its own and of those before it."""

_SOURCE = "source"  # the directory of the sources, in the private directory of the machine
_SHOW_OPTIONS = ("-###", "-E", "-x", "c", "/dev/null")
"""Options with which a compiler prints all options that it would use, and compiles nothing."""

_SHOWN_ERRORS = 5
_SIGNALLED = 128  # a shell adds the number of the signal that ended a command
_INTERRUPTED = re.compile(
    r"signal terminated program|terminated with signal"  # GCC, of the programs that it starts
    r"|No space left on device|File too large|Disk quota exceeded|Cannot allocate memory"
)
_CANNOT_RUN = {126, 127}  # exit codes of a shell whose command is missing or not executable

Toolchain: TypeAlias = NativeToolchain | CrossToolchain
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class BuiltHarness:
    """A program on the board, to be run with ``environment``. ``matmul_comparison`` is the
    measurement that chose the matrix product, where the toolchain leaves that open."""

    path: str
    record: Build
    environment: Mapping[str, str]
    matmul_comparison: MatmulComparison | None = None


class HarnessBuilder:
    """Compiles the harness on the machine that has the compiler.

    It keeps the objects there until it is closed, so that programs with other plans only need
    linking.
    """

    def __init__(
        self,
        transport: Transport,
        toolchain: Toolchain,
        *,
        kernels: Path = KERNELS,
        executor: Path = EXECUTOR,
        harness: Path = HARNESS,
    ) -> None:
        self.transport = transport
        self._toolchain = toolchain
        self._sources = _Sources(*map(read_sources, (kernels, executor, harness)))
        self._here: LocalTransport | None = None
        self._compiled: _Compiled | None = None

    def build(
        self, plans: str | None = None, *, timeout_s: float, progress: Progress | None = None
    ) -> BuiltHarness:
        """Build the program in the board's private directory.

        ``plans`` is the C source of the plans that it can replay
        (:mod:`profiler.building.plan_source`); ``progress`` is called with each step. Raises
        :class:`~devices.errors.BuildFailed` (:class:`~devices.errors.BuildInterrupted` if the same
        build may succeed later), and what the transport raises.
        """
        deadline = Deadline(timeout_s)
        tell = progress or (lambda _step: None)
        machine = _Machine(self._compiling_transport(), self._toolchain, deadline, tell)
        if self._compiled is None:
            self._compiled = machine.compile(self._sources)
        machine.link(self._compiled, plans)
        if self._here is not None:
            with tempfile.TemporaryDirectory() as scratch:
                program = Path(scratch) / PROGRAM
                self._here.get(PROGRAM, program, timeout_s=deadline.remaining_s)
                tell("copying the program to the board")
                self.transport.put(
                    program, PROGRAM, timeout_s=deadline.remaining_s, executable=True
                )
        path = f"{self.transport.directory}/{PROGRAM}"
        compiled = self._compiled
        return BuiltHarness(path, compiled.record, ENVIRONMENT, compiled.matmul_comparison)

    def close(self) -> None:
        """Close the transport to this computer. Programs on the board stay until its transport is
        closed."""
        if self._here is not None:
            self._here.close()

    def _compiling_transport(self) -> Transport:
        if isinstance(self._toolchain, NativeToolchain):
            return self.transport
        if self._here is None:
            self._here = LocalTransport()
            self._here.connect()
        return self._here


def build(
    transport: Transport,
    toolchain: Toolchain,
    *,
    timeout_s: float,
    progress: Progress | None = None,
    kernels: Path = KERNELS,
    executor: Path = EXECUTOR,
    harness: Path = HARNESS,
) -> BuiltHarness:
    """Build a program without plans, as :meth:`HarnessBuilder.build`."""
    builder = HarnessBuilder(
        transport, toolchain, kernels=kernels, executor=executor, harness=harness
    )
    with closing(builder):
        return builder.build(timeout_s=timeout_s, progress=progress)


@dataclass(frozen=True)
class _Sources:
    kernels: Files
    executor: Files
    harness: Files

    def write_archive(self, path: Path) -> None:
        """Write an uncompressed tar, which boards without gzip can unpack too."""
        with tarfile.open(path, "w") as archive:
            for directory, files in (
                ("kernels", self.kernels),
                ("executor", self.executor),
                ("harness", self.harness),
            ):
                for name, content in files.items():
                    entry = tarfile.TarInfo(f"{_SOURCE}/{directory}/{name}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))


def _c_sources(files: Files) -> list[str]:
    return [name for name in files if name.endswith(".c")]


def _object(directory: str, name: str) -> str:
    """Path of the object of a source, in the private directory of the machine."""
    return f"{_SOURCE}/{directory}/{name}.o"


@dataclass(frozen=True)
class _Compiled:
    """Compiled objects on the machine, by path, and how to link them."""

    objects: tuple[str, ...]
    link: tuple[str, ...]
    record: Build
    matmul_comparison: MatmulComparison | None


@dataclass(frozen=True)
class _FoundBlas:
    """A BLAS that works. ``config`` is its reported configuration, empty for a cross compiler,
    whose programs do not run here."""

    blas: Blas
    config: str


@dataclass(frozen=True)
class _Machine:
    """The machine that has the compiler: the board, or this computer for a cross compiler."""

    transport: Transport
    toolchain: Toolchain
    deadline: Deadline
    tell: Progress

    def compile(self, sources: _Sources) -> _Compiled:
        version = self._compiler_version()
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "sources.tar"
            sources.write_archive(archive)
            probe = Path(scratch) / "probe.c"
            probe.write_text(PROBE)
            for path in (archive, probe, COMPARISON):
                self.transport.put(path, path.name, timeout_s=self._left_s())
        self.transport.run(["tar", "-xf", archive.name], timeout_s=self._left_s())
        found = self._find_blas(probe.name)
        comparison = None
        if found is not None and self.toolchain.matmul == "auto":
            comparison = self._compare(found)
            if comparison.faster == "in-tree":
                found = None
        flags = (*KERNEL_FLAGS, *self.toolchain.flags, *(found.blas.defines if found else ()))
        objects = self._objects(version, sources, flags)
        record = Build(
            kernels_sha256=sources_hash(sources.kernels, flags),
            compiler=version,
            flags=flags,
            matmul="cblas" if found else "in-tree",
            blas=(found.config or None) if found else None,
            threads=1,
        )
        link = (*(found.blas.link if found else ()), *LIBRARIES)
        return _Compiled(objects, link, record, comparison)

    def _objects(
        self, version: str, sources: _Sources, kernel_flags: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Objects of all sources: those that are kept on the machine, or newly compiled ones."""
        harness_flags = (*HARNESS_FLAGS, *self.toolchain.flags)
        libraries = (
            ("kernels", sources.kernels, kernel_flags),
            ("executor", sources.executor, self._executor_flags),
            ("harness", sources.harness, harness_flags),
        )
        # What -march=native stands for depends on the processor.
        resolved = self._compiler(*kernel_flags, *_SHOW_OPTIONS).stderr
        hashes = [sources_hash(files, flags) for _, files, flags in libraries]
        key = objects_key([version, resolved, *hashes])
        objects = tuple(
            _object(directory, name)
            for directory, files, _ in libraries
            for name in _c_sources(files)
        )
        if not restore_objects(self.transport, key, objects, timeout_s=self._left_s()):
            for directory, files, flags in libraries:
                self._compile_all(directory, files, flags)
            keep_objects(self.transport, key, objects, timeout_s=self._left_s())
        return objects

    def link(self, compiled: _Compiled, plans: str | None) -> None:
        objects = list(compiled.objects)
        if plans is not None:
            objects.remove(_object("executor", NO_PLANS))
            with tempfile.TemporaryDirectory() as scratch:
                written = Path(scratch) / PLANS
                written.write_text(plans, encoding="ascii")
                self.transport.put(written, f"{_SOURCE}/executor/{PLANS}", timeout_s=self._left_s())
            self.tell("compiling the plans")
            objects.append(self._compile("executor", PLANS, self._executor_flags))
        self.tell("linking")
        result = self._compiler(*self.toolchain.flags, *objects, "-o", PROGRAM, *compiled.link)
        self._require(result, "link the harness")

    @property
    def _executor_flags(self) -> tuple[str, ...]:
        return (*EXECUTOR_FLAGS, *self.toolchain.flags)

    def _compiler_version(self) -> str:
        result = self._compiler("--version")
        if result.exit_code in _CANNOT_RUN:
            where = "this computer" if self._is_cross else self.transport.name
            raise BuildFailed(
                f"{where}: {self.toolchain.compiler} is not installed",
                remedy=how_to_install(shlex.split(self.toolchain.compiler)[:1]),
            )
        self._require(result, "print its version")
        return (result.stdout.strip().splitlines() or ["unknown"])[0]

    @property
    def _is_cross(self) -> bool:
        return isinstance(self.toolchain, CrossToolchain)

    def _find_blas(self, probe: str) -> _FoundBlas | None:
        """The first BLAS that links and multiplies; None if the toolchain wants none."""
        if self.toolchain.matmul == "in-tree":
            return None
        self.tell("looking for a BLAS")
        reason = ""
        is_this_computer = isinstance(self.transport, LocalTransport) and not self._is_cross
        for blas in known_blas(is_this_computer=is_this_computer):
            result = self._compiler(
                *self.toolchain.flags, *blas.probe_defines, probe, "-o", "probe", *blas.link
            )
            if result.exit_code == 0 and self._is_cross:
                return _FoundBlas(blas, "")
            if result.exit_code == 0:
                result = self.transport.run(
                    ["./probe"], timeout_s=self._left_s(), environment=ENVIRONMENT, check=False
                )
            if result.exit_code == 0:
                return _FoundBlas(blas, result.stdout.strip())
            reason = first_errors(result.stderr)
        if self.toolchain.matmul == "cblas":
            raise BuildFailed(
                f"{self.transport.name}: the toolchain asks for cblas, but no OpenBLAS works"
                f" there ({reason})",
                remedy="install it with: sudo apt install libopenblas-dev",
            )
        return None

    def _compare(self, found: _FoundBlas) -> MatmulComparison:
        self.tell(f"comparing matrix products: in-tree and {found.config}")
        flags = (*KERNEL_FLAGS, *self.toolchain.flags)
        self._compile("kernels", IN_TREE_SOURCE, (*flags, *renamed("in_tree")))
        self._compile("kernels", CBLAS_SOURCE, (*flags, *found.blas.defines, *renamed("cblas")))
        sides = [_object("kernels", name) for name in (IN_TREE_SOURCE, CBLAS_SOURCE)]
        result = self._compiler(
            *flags,
            *("-I", f"{_SOURCE}/kernels", COMPARISON.name, *sides, "-o", COMPARISON.stem),
            *(*found.blas.link, *LIBRARIES),
        )
        self._require(result, "link the comparison of matrix products")
        ran = self.transport.run(
            [f"./{COMPARISON.stem}"], timeout_s=self._left_s(), environment=ENVIRONMENT
        )
        return read_comparison(ran.stdout, found.config)

    def _compile_all(self, directory: str, files: Files, flags: tuple[str, ...]) -> None:
        """Compile each source by itself, to show progress and to attribute errors to a file."""
        names = _c_sources(files)
        for count, name in enumerate(names, 1):
            self.tell(f"compiling {directory}/{name} ({count} of {len(names)})")
            self._compile(directory, name, flags)

    def _compile(self, directory: str, name: str, flags: tuple[str, ...]) -> str:
        """Compile a source and return the path of the object."""
        source = f"{_SOURCE}/{directory}/{name}"
        libraries = _LIBRARIES[: _LIBRARIES.index(directory) + 1]
        options = [word for library in libraries for word in ("-I", f"{_SOURCE}/{library}")]
        result = self._compiler(*flags, *options, "-c", source, "-o", _object(directory, name))
        self._require(result, f"compile {directory}/{name}")
        return _object(directory, name)

    def _compiler(self, *arguments: str) -> CommandResult:
        try:
            return self.transport.run(
                [*shlex.split(self.toolchain.compiler), *arguments],
                timeout_s=self._left_s(),
                # Its messages are parsed, and what a killed one leaves goes with the session.
                environment={"LC_ALL": "C", "TMPDIR": "."},
                check=False,
            )
        except SessionGone:
            raise
        except BoardCommandFailed as failure:  # no verdict of the compiler, which has an exit code
            raise BuildInterrupted(str(failure)) from failure

    def _require(self, result: CommandResult, what: str) -> None:
        if result.exit_code == 0:
            return
        hint = ""
        if re.search(r"\bstd\w+\.h.*(No such file|not found)", result.stderr):
            hint = "; the C library's headers are missing: sudo apt install libc6-dev"
        raise build_failure(result.exit_code, result.stderr)(
            f"{self.transport.name}: {self.toolchain.compiler} cannot {what}:"
            f" {first_errors(result.stderr)}{hint}"
        )

    def _left_s(self) -> float:
        if self.deadline.expired:
            raise BuildInterrupted(
                f"{self.transport.name}: the build did not finish within"
                f" {self.deadline.seconds:g} s"
            )
        return self.deadline.remaining_s


def build_failure(exit_code: int, output: str) -> type[BuildFailed]:
    """Kind of a compiler's failure, by its exit code (negative for a signal) and its messages."""
    is_killed = exit_code < 0 or exit_code > _SIGNALLED
    return BuildInterrupted if is_killed or _INTERRUPTED.search(output) else BuildFailed


def first_errors(output: str) -> str:
    """The first lines with errors in a compiler's output, or else its last lines."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if re.search(r"error|undefined|No space", line)]
    return "\n".join((errors or lines[-_SHOWN_ERRORS:])[:_SHOWN_ERRORS])
