"""Instructions that emulated boards execute, counted by the emulator: the reference for profiles.

Under icount every instruction takes the same time, so that the number of instructions in a window
gives its duration.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from devices.description import CrossToolchain, DeviceDescription, load_description
from devices.operation import OpSpec
from devices.profile import DeviceProfile
from profiler.building.sources import KERNELS
from profiler.building.toolchain import PROGRAM, BuiltHarness, HarnessBuilder, build
from profiler.lab.qemu import Guest, Microcontroller, make_guest
from profiler.lab.running import RunningBoard, start_own
from profiler.run.options import ProfileOptions
from profiler.run.run import profile_device
from profiler.run.trials import RunDirectory, Trial
from profiler.script.windows import IdleWindow, OpWindow
from profiler.transports.base import Transport
from profiler.transports.local import LocalTransport
from tests.support.paths import NATIVE
from tests.support.progress import ignore

LINUX = "emulated-a72"

COUNTER = NATIVE / "emulator_counter.c"

_BEGIN = ("jw_op_execute", "jw_step_execute")
_END = "jw_running_ns"
_RECORD = "jw_record_text"
"""Functions of the harness that mark a window.

A window calls one of ``_BEGIN`` to begin its work, and ``_END`` twice: just before the work and
when it is over. ``_RECORD`` then writes its record.
"""

# Addresses of the harness on the emulated Linux board. No other code lies there, and a program
# without shared libraries has all of its code there.
_OWN = range(0x10000000, 0x20000000)
_FIXED = ("-static", "-no-pie", f"-Wl,-Ttext-segment={_OWN.start:#x}")

_IDLE = {IdleWindow(when).label for when in ("before", "after")}

_BUILD_LIMIT_S = 900.0
_PUT_LIMIT_S = 60.0


@dataclass(frozen=True)
class CountedWindow:
    """One recorded window, and the instructions executed while its operation was looped.

    ``own`` counts those of the harness, and is the same in every try. ``all`` also counts those of
    the operating system and other programs, where they exist, for each of the window's tries, of
    which the record is the least disturbed one. Both include one clock read at the end.
    """

    trial: Trial
    all: tuple[int, ...]
    own: int


@dataclass(frozen=True)
class Profiled:
    """A profile with its trials.

    ``trials`` are in the order of measurement; ``windows`` are those of operations.
    """

    profile: DeviceProfile
    trials: tuple[Trial, ...]
    windows: tuple[CountedWindow, ...]
    ns_per_instruction: int

    def measured_s(self, spec: OpSpec) -> float:
        """Profiled median time of one warm execution."""
        return self.profile.by_spec[spec].warm.time_s.median

    def counted_s(self, spec: OpSpec) -> float:
        """Time of one execution according to its instruction count."""
        counts = [
            window.own / window.trial.executions
            for window in self.windows
            if window.trial.window == OpWindow(spec, "warm").label
        ]
        return statistics.median(counts) * self.ns_per_instruction * 1e-9

    def deviation(self, spec: OpSpec) -> float:
        """Relative deviation of the measured time from the counted one."""
        return self.measured_s(spec) / self.counted_s(spec) - 1.0


@dataclass
class CountedBoard:
    """An emulated board that counts its instructions."""

    running: RunningBoard
    ns_per_instruction: int
    _directory: Path
    _log: Path
    _harness: Harness | None
    _profiles: int = 0

    def profile(
        self, specs: Sequence[OpSpec], options: ProfileOptions, harness: Harness | None = None
    ) -> Profiled:
        """Profile as ``cli.py profile`` does, without the board's start and the build.

        With another ``harness`` nothing is counted.
        """
        self._profiles += 1
        directory = self._directory / f"run-{self._profiles}"
        used = harness or self._harness
        with (
            patch("profiler.lab.start", lambda *_: nullcontext(self.running)),
            nullcontext() if used is None else used.in_use(),
        ):
            profile = profile_device(self.running.description, specs, None, options, directory)
        harness_runs = RunDirectory(directory).harness_runs()
        trials = tuple(trial for harness_run in harness_runs for trial in harness_run.trials)
        windows = () if harness is not None else self._counted(trials)
        return Profiled(profile, trials, windows, self.ns_per_instruction)

    def _counted(self, trials: Sequence[Trial]) -> tuple[CountedWindow, ...]:
        """Counts for these trials: the last windows of operations in the log are theirs."""
        looped = [trial for trial in trials if trial.window not in _IDLE]
        counts = list(_counts(self._log.read_text().splitlines()))[-len(looped) :]
        return tuple(
            CountedWindow(trial, tuple(all_ for all_, _ in tries[-trial.tries :]), tries[-1][1])
            for trial, tries in zip(looped, counts, strict=True)
        )


@dataclass(frozen=True)
class Harness:
    """A compiled program for the emulated Linux board, kept on this computer."""

    program: Path
    built: BuiltHarness

    def put_on(self, transport: Transport) -> BuiltHarness:
        """Copy the program to a board."""
        transport.put(self.program, PROGRAM, timeout_s=_PUT_LIMIT_S, executable=True)
        return replace(self.built, path=f"{transport.directory}/{PROGRAM}")

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make profiles use this program instead of compiling one."""

        def put(builder: HarnessBuilder, *_: object, **__: object) -> BuiltHarness:
            return self.put_on(builder.transport)

        with patch.object(HarnessBuilder, "build", put):
            yield


def build_harness(directory: Path, kernels: Path = KERNELS) -> Harness:
    """Build as for the emulated Linux board, with all code at known addresses."""
    toolchain = load_description(LINUX).toolchain
    assert isinstance(toolchain, CrossToolchain)
    fixed = toolchain.model_copy(update={"flags": (*toolchain.flags, *_FIXED)})
    program = directory / PROGRAM
    with LocalTransport() as here:
        built = build(here, fixed, timeout_s=_BUILD_LIMIT_S, kernels=kernels)
        here.get(PROGRAM, program, timeout_s=_PUT_LIMIT_S)
    return Harness(program, built)


@contextmanager
def counted_board(
    name: str, directory: Path, harness: Harness | None = None
) -> Iterator[CountedBoard]:
    """Boot a board that counts instructions.

    The counter needs the addresses of the harness's functions, so that a Linux board's ``harness``
    is built beforehand unless it is given.
    """
    description = load_description(name)
    guest = make_guest(description, ignore)
    if isinstance(guest, Microcontroller):
        program = guest.firmware.elf
    else:
        harness = harness or build_harness(directory)
        program = harness.program
    log = directory / "counts"
    words = _plugin_words(_symbols(description, program), _compile_counter(directory), log)
    if harness is not None:
        words[-1] += f",from={_OWN.start:#x},to={_OWN.stop:#x}"
    command = Guest.command
    with patch.object(Guest, "command", lambda *given: [*command(*given), *words]):
        running = start_own(guest, ignore)
    with running:
        yield CountedBoard(running, ns_per_instruction(description), directory, log, harness)


def ns_per_instruction(description: DeviceDescription) -> int:
    """Nanoseconds per instruction under icount."""
    assert description.emulator is not None
    assert description.emulator.icount_shift is not None
    return 1 << description.emulator.icount_shift


def _compile_counter(directory: Path) -> Path:
    plugin = directory / "emulator-counter.so"
    words = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
    subprocess.run(["cc", *words, str(COUNTER), "-o", str(plugin)], check=True)
    return plugin


def _plugin_words(symbols: Mapping[str, int], plugin: Path, log: Path) -> list[str]:
    places = [f"at={name}:{symbols[name]:#x}" for name in (*_BEGIN, _END, _RECORD)]
    return ["-plugin", ",".join([f"file={plugin}", f"log={log}", *places])]


def _symbols(description: DeviceDescription, program: Path) -> dict[str, int]:
    """Addresses of the program's symbols by name."""
    nm = description.toolchain.compiler.removesuffix("gcc") + "nm"
    listed = subprocess.run([nm, str(program)], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listed.splitlines())
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


def _counts(lines: Sequence[str]) -> Iterator[list[tuple[int, int]]]:
    """Instruction counts (all, own) of the windows of an operation before each record."""
    begun: tuple[int, int] | None = None
    windows: list[tuple[int, int]] = []
    for line in lines:
        name, *numbers = line.split()
        now = int(numbers[0]), int(numbers[1])
        if name in _BEGIN:
            begun = now
        elif name == _END:
            if begun is not None:
                windows.append((now[0] - begun[0], now[1] - begun[1]))
            begun = None
        elif windows:
            yield windows
            windows = []
