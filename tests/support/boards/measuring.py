"""Boards for tests of measuring: this computer with a harness compiled once, and stand-ins.

The stand-ins imitate cut connections, reboots, sensors and meters.
"""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pytest

from devices.claims.owner import Owner
from devices.description import DeviceDescription
from devices.errors import BoardCommandFailed
from devices.meters import Ppk2Meter
from devices.operation import OpSpec
from devices.plan import Action, Compute, ExecutionPlan
from profiler.building.toolchain import BuiltHarness, HarnessBuilder, build
from profiler.meters.base import BlockRecord, PowerTrace
from profiler.transports.base import CommandResult, DetachedCommand, DetachedStatus
from profiler.transports.local import LocalTransport
from tests.support.compiling import compile_once
from tests.support.paths import ROOT
from tests.support.short_searches import with_short_searches

HARNESS = ROOT / "onboard" / "harness"
EXECUTOR = ROOT / "onboard" / "executor"
KERNELS = ROOT / "onboard" / "kernels"

SMALL = OpSpec.of("relu.forward", elements=64)
LARGE = OpSpec.of("relu.forward", elements=1 << 18)
UPDATE = OpSpec.of("sgd.update", elements=256)


PROCESSOR = {
    "model": "of this computer",
    "cores": os.cpu_count(),
    "clock_hz": 2.5e9,
    "architecture": platform.machine(),
    "data_cache_bytes": 1 << 20,
}
"""A small cache is stated: cold windows need copies of twice its size, up to 1 GB on a server."""


def describe(**changes: Any) -> DeviceDescription:
    """Description of this computer, with flags that compile quickly."""
    return DeviceDescription.model_validate(
        {
            "schema": "device/1",
            "name": "bench",
            "model": "a computer under test",
            "transport": {"kind": "local"},
            "toolchain": {
                "kind": "native",
                "compiler": "cc",
                "flags": ["-O1"],
                "matmul": "in-tree",
            },
            "processor": PROCESSOR,
        }
        | changes
    )


def unopened_ppk2(mode: Literal["source", "ampere"] = "source") -> Ppk2Meter:
    """An instrument that feeds the board, or in mode "ampere" does not. It has no port."""
    return Ppk2Meter.model_validate(
        {
            "kind": "ppk2",
            "port": "/dev/no-such-ppk2",
            "mode": mode,
            "voltage_v": 3.3,
            "sync": {"kind": "steady"},
        }
    )


def tiny_step() -> ExecutionPlan:
    """Plan of one linear layer with its loss, gradients and update."""
    shape = {"rows": 8, "in_features": 32, "out_features": 16, "bias": 0}
    x, w, y, t, dy, dw = 0, 1024, 3072, 3584, 4096, 4608

    def op(kind: str, reads: Sequence[int], writes: Sequence[int], **rest: Any) -> Action:
        scalars = rest.pop("scalars", {})
        spec = OpSpec.of(kind, **rest)
        return Action(Compute(kind, spec, tuple(reads), tuple(writes), None, scalars))

    return ExecutionPlan(
        name="tiny, batch 8",
        arena_bytes=dw + 2048,
        inputs={},
        kept=(),
        actions=(
            op("linear.forward", [x, w], [y], **shape),
            op(
                "mean_squared_error.input_gradient",
                [y, t],
                [dy],
                elements=128,
                scalars={"share": 1.0},
            ),
            op("linear.parameter_gradient", [x, dy], [dw], **shape),
            op(
                "sgd.update",
                [w, dw],
                [w],
                elements=512,
                scalars={"learning_rate": 0.1, "weight_decay": 0.0},
            ),
        ),
    )


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuiltHarness]:
    """The harness with the real kernels, compiled once for all tests: its path and its build."""
    program = tmp_path_factory.mktemp("harness") / "joulewright-harness"
    description = describe()
    assert description.toolchain.kind == "native"
    with LocalTransport() as transport:
        built = build(transport, description.toolchain, timeout_s=900)
        transport.get(program.name, program, timeout_s=60)
    program.chmod(0o700)
    return program, built


@pytest.fixture
def prebuilt(compiled: tuple[Path, BuiltHarness], monkeypatch: pytest.MonkeyPatch) -> BuiltHarness:
    """Make profiles use the compiled harness instead of compiling one."""
    program, built = compiled

    def put(builder: HarnessBuilder, *_: object, **__: object) -> BuiltHarness:
        transport = builder.transport
        transport.put(program, program.name, timeout_s=60, executable=True)
        return BuiltHarness(
            f"{transport.directory}/{program.name}", built.record, built.environment
        )

    monkeypatch.setattr(HarnessBuilder, "build", put)
    return built


@pytest.fixture(scope="module")
def short_searches() -> Iterator[None]:
    """Search briefly for the schedules in which profiles watch steps, until the module ends."""
    with with_short_searches():
        yield


@pytest.fixture(scope="module")
def without_pictures() -> Iterator[None]:
    """Let ``run`` draw nothing until the module ends: drawing takes seconds a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plots.replay.pictures.draw_replay", lambda *_: ())
        yield


def run_harness(program: Path, directory: Path, plan: str, *options: str) -> tuple[int, str, str]:
    """Run a plan; return the exit code, the records and the text on standard error."""
    (directory / "plan").write_text(plan)
    done = subprocess.run(
        [program, "run", "plan", "results", "samples", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=600,
    )
    results = directory / "results"
    return done.returncode, results.read_text() if results.exists() else "", done.stderr


def compile_with_kernel(directory: Path, body: str) -> Path:
    """Compile the harness with one kernel, relu.forward, whose C is ``body``."""
    source = directory / "kernel.c"
    source.write_text(
        '#define _GNU_SOURCE\n#include "joulewright.h"\n#include <stdio.h>\n#include <string.h>\n'
        f"#include <time.h>\nstatic void run(const jw_call *call) {{ {body} }}\n"
        'const jw_kernel jw_kernels[] = {{"relu.forward", 1, 0, run, NULL}};\n'
        "const size_t jw_kernel_count = 1;\n"
        "const jw_kernel *jw_find_kernel(const char *kind) {\n"
        "    return strcmp(kind, jw_kernels[0].kind) ? NULL : jw_kernels;\n}\n"
        'const char *const jw_matmul_name = "in-tree";\n'
    )
    program = directory / "watching-harness"
    rest = directory / "harness.o"
    command = (
        *("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"),
        *(f"-I{path}" for path in (HARNESS, EXECUTOR, KERNELS)),
    )
    sources = map(str, (*sorted(EXECUTOR.glob("*.c")), *sorted(HARNESS.rglob("*.c"))))
    compile_once((*command, "-r", "-nostdlib", *sources), rest)
    linked = (str(source), str(rest), "-o", str(program), "-lm", "-lpthread")
    subprocess.run((*command, *linked), check=True)
    return program


# --- boards that fail -------------------------------------------------------------------------


@dataclass
class Mishaps:
    """Faults of a board.

    ``poll`` is called at each poll with the number, from 0, of the plan that runs.
    """

    poll: Callable[[int], None] = lambda _plan: None
    boot_id: str | None = None
    started: int = 0
    polled: int = 0


class FragileTransport:
    """A transport to this computer that suffers the given mishaps."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._inner = LocalTransport()
        self._mishaps = mishaps

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def directory(self) -> str:
        return self._inner.directory

    def connect(self) -> None:
        self._inner.connect()

    def claim(self, owner: Owner) -> None:
        self._inner.claim(owner)

    def put(self, local: Path, remote: str, *, timeout_s: float, executable: bool = False) -> None:
        self._inner.put(local, remote, timeout_s=timeout_s, executable=executable)

    def get(self, remote: str, local: Path, *, timeout_s: float) -> None:
        self._inner.get(remote, local, timeout_s=timeout_s)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        result = self._inner.run(argv, timeout_s=timeout_s, environment=environment, check=check)
        if self._mishaps.boot_id is not None and argv[-1].endswith("boot_id"):
            return CommandResult(result.command, 0, self._mishaps.boot_id + "\n", "")
        return result

    def start(
        self, argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> DetachedCommand:
        inner = self._inner.start(argv, timeout_s=timeout_s, environment=environment)
        command = _FragileCommand(inner, self._mishaps, self._mishaps.started)
        self._mishaps.started += 1
        return command

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass
class _FragileCommand:
    inner: DetachedCommand
    mishaps: Mishaps
    plan: int

    def poll(self, *, timeout_s: float) -> DetachedStatus:
        self.mishaps.polled += 1
        try:
            self.mishaps.poll(self.plan)
        except BoardCommandFailed:  # a board that has restarted runs nothing any more
            self.inner.stop(timeout_s=timeout_s)
            raise
        return self.inner.poll(timeout_s=timeout_s)

    def output(self, *, timeout_s: float) -> tuple[str, str]:
        return self.inner.output(timeout_s=timeout_s)

    def stop(self, *, timeout_s: float) -> None:
        self.inner.stop(timeout_s=timeout_s)


@pytest.fixture
def mishaps(monkeypatch: pytest.MonkeyPatch) -> Mishaps:
    """Mishaps of every board that the test profiles."""
    happening = Mishaps()
    monkeypatch.setattr(
        "profiler.opening.boards.open_transport", lambda _description: FragileTransport(happening)
    )
    return happening


# --- stand-ins for sensors and meters -----------------------------------------------------------


def write_tree(root: Path, files: Mapping[str, str | int]) -> Path:
    """Write files with a final newline below ``root``."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def ina226_tree(root: Path, *, number: int = 3) -> Path:
    """sysfs files as the kernel's ina2xx driver presents an INA226 with a shunt of 10 mΩ.

    hwmon0 is an unrelated temperature sensor.
    """
    return write_tree(
        root,
        {
            "hwmon0/name": "cpu_thermal",
            "hwmon0/temp1_input": 41312,
            f"hwmon{number}/name": "ina226",
            f"hwmon{number}/in0_input": 5,
            f"hwmon{number}/in1_input": 5012,
            f"hwmon{number}/curr1_input": "0500",
            f"hwmon{number}/power1_input": "2500000",
            f"hwmon{number}/shunt_resistor": 10000,
            f"hwmon{number}/update_interval": 35,
        },
    )


def ina3221_tree(root: Path) -> Path:
    """sysfs files as the kernel's ina3221 driver presents the sensor on a Jetson module.

    Three rails with labels and shunts of 5 mΩ, their shunt voltages as in4 to in6, and in7, their
    sum.
    """
    rails = {
        1: ("VDD_IN", 19072, "0416"),
        2: ("VDD_CPU_GPU_CV", 19064, "0032"),
        3: ("VDD_SOC", 19056, "0080"),
    }
    files: dict[str, str | int] = {
        "hwmon1/name": "ina3221",
        "hwmon1/in7_label": "sum of shunt voltages",
    }
    for channel, (label, millivolts, milliamperes) in rails.items():
        files |= {
            f"hwmon1/in{channel}_label": label,
            f"hwmon1/in{channel}_input": millivolts,
            f"hwmon1/in{channel}_enable": 1,
            f"hwmon1/curr{channel}_input": milliamperes,
            f"hwmon1/in{channel + 3}_input": 2,
            f"hwmon1/shunt{channel}_resistor": 5000,
        }
    return write_tree(root, files)


@dataclass(frozen=True)
class Step:
    """A value that a file got at some time between two of the monotonic clock."""

    before_ns: int
    after_ns: int
    value: float


@dataclass
class Signal:
    """Steps through values of a sysfs file while entered, and records the time of each step."""

    file: Path
    values: Sequence[str]
    hold_s: float
    steps: list[Step] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._write_next()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def integral(self, start_ns: int, end_ns: int) -> float:
        """Value × seconds from ``start_ns`` to ``end_ns`` on the monotonic clock."""
        edges = [(max(step.after_ns, start_ns), step.value) for step in self.steps]
        ends = [t for t, _ in edges[1:]] + [end_ns]
        return sum(
            value * max(0, min(end, end_ns) - t) / 1e9
            for (t, value), end in zip(edges, ends, strict=True)
        )

    def possible(self, start_ns: int, end_ns: int) -> set[float]:
        """Values that the file may have had at some time from ``start_ns`` to ``end_ns``."""
        ends_ns = [step.after_ns for step in self.steps[1:]] + [end_ns]
        return {
            step.value
            for step, gone_ns in zip(self.steps, ends_ns, strict=True)
            if step.before_ns <= end_ns and gone_ns >= start_ns
        }

    def _run(self) -> None:
        while not self._stop.wait(self.hold_s):
            self._write_next()

    def _write_next(self) -> None:
        value = self.values[len(self.steps) % len(self.values)]
        before_ns = time.monotonic_ns()
        handle = os.open(self.file, os.O_WRONLY)
        try:
            os.pwrite(handle, f"{value}\n".encode(), 0)
        finally:
            os.close(handle)
        self.steps.append(Step(before_ns, time.monotonic_ns(), float(value)))


@dataclass
class StandInMeter:
    """A meter on this computer that returns ``traces`` block by block, the last one repeatedly."""

    record: Any
    traces: list[PowerTrace]
    energy_source: Any = "measured"
    sampler: None = None
    marker: None = None
    begun: int = 0
    closed: bool = False

    def begin(self) -> None:
        self.begun += 1

    def finish(self, _block: BlockRecord, /) -> PowerTrace:
        return self.traces.pop(0) if len(self.traces) > 1 else self.traces[0]

    def close(self) -> None:
        self.closed = True
