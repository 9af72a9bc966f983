"""The harness with Linux drivers on the emulated board: I²C sensor, GPIO lines, a full card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from devices.description import SshTransport, load_description
from devices.meters import InaMeter
from profiler.meters.base import BlockRecord, Void
from profiler.meters.on_board.ina import open_ina
from profiler.script.records import Results, parse_results, parse_samples
from profiler.transports.base import CommandResult, Transport
from profiler.transports.ssh import SshTransport as Ssh
from tests.support.boards.emulated import SharedBoards
from tests.support.boards.ground_truth import Harness

pytestmark = pytest.mark.emulated

DESCRIPTION = load_description("emulated-a72")
LIMIT_S = 60.0
SENSOR = InaMeter(
    kind="ina", chip="ina226", bus=0, address=0x40, shunt_ohm=0.01, max_current_a=5.0, rate_hz=100.0
)
BUS = "i2c=/dev/i2c-0 address=64"
HEAD = "joulewright-plan 1\narena bytes=65536\n"
IDLE = "idle id=0 duration_ns=500000000\n"


@dataclass(frozen=True)
class Bench:
    transport: Transport
    harness: str

    def shell(self, script: str) -> str:
        return self.transport.run(["sh", "-c", script], timeout_s=LIMIT_S).stdout

    def run(self, directory: Path, plan: str) -> CommandResult:
        (directory / "plan").write_text(plan)
        self.transport.put(directory / "plan", "plan", timeout_s=LIMIT_S)
        command = [self.harness, "run", "plan", "results", "samples"]
        return self.transport.run(command, timeout_s=LIMIT_S, check=False)

    def results(self, directory: Path) -> Results:
        self.transport.get("results", directory / "results", timeout_s=LIMIT_S)
        return parse_results((directory / "results").read_text())


@pytest.fixture(scope="module")
def bench(shared_boards: SharedBoards, linux_harness: Harness) -> Iterator[Bench]:
    with shared_boards.lent(DESCRIPTION) as board:
        assert isinstance(board.description.transport, SshTransport)
        with Ssh(board.description.transport) as transport:
            yield Bench(transport, linux_harness.put_on(transport).path)


@pytest.fixture
def without_driver(bench: Bench) -> Iterator[None]:
    """Unbind the kernel's driver from the sensor for a test, and bind it again.

    The driver forgets its interval meanwhile, which would slow the sensor down for later tests.
    """
    driver = "/sys/bus/i2c/drivers/ina2xx"
    interval = "/sys/bus/i2c/devices/0-0040/hwmon/hwmon*/update_interval"
    usual_ms = bench.shell(f"cat {interval}").strip()
    bench.shell(f"echo 0-0040 >{driver}/unbind")
    try:
        yield
    finally:
        bench.shell(f"echo 0-0040 >{driver}/bind; echo {usual_ms} >$(ls {interval})")


def test_a_sensor_with_a_kernel_driver_is_refused(bench: Bench, tmp_path: Path) -> None:
    plan = f"{HEAD}sampler period_ns=10000000\nsample {BUS} register=2\n{IDLE}end\n"
    refused = bench.run(tmp_path, plan)
    assert refused.exit_code == 4
    assert "a kernel driver uses the sensor: describe it with kind hwmon" in refused.stderr


@pytest.mark.usefixtures("without_driver")
def test_a_sensor_without_a_driver_is_set_up_and_read(bench: Bench, tmp_path: Path) -> None:
    meter = open_ina(SENSOR, "board", "emulated")
    setup = "".join(f"register {setting}\n" for setting in meter.sampler.setup)
    sources = "".join(f"sample {source}\n" for source in meter.sampler.sources)
    done = bench.run(tmp_path, f"{HEAD}{setup}sampler period_ns=10000000\n{sources}{IDLE}end\n")
    assert (done.exit_code, done.stderr) == (0, "")
    (window,) = bench.results(tmp_path).windows
    bench.transport.get("samples", tmp_path / "samples", timeout_s=LIMIT_S)
    samples = parse_samples((tmp_path / "samples").read_text(), len(meter.sampler.sources))
    # The guest's program sets 5 V at the sensor, and a power between idle and busy.
    emulated = DESCRIPTION.emulator
    assert emulated is not None
    assert emulated.sensor is not None
    volts = samples.values[:, 0] * 1.25e-3
    assert volts == pytest.approx(5.0, abs=0.01)
    trace = meter.finish(BlockRecord(windows_ns=(), markers_ns=(), samples=samples))
    energy_j = trace.steady_energy_j(window.start_ns, window.end_ns)
    if not isinstance(energy_j, Void):  # samples may come late if this computer is busy
        power_w = energy_j / (window.end_ns - window.start_ns) * 1e9
        assert 0.98 * emulated.sensor.idle_w < power_w < emulated.sensor.busy_w


def test_a_missing_bus_and_a_missing_chip_are_named(bench: Bench, tmp_path: Path) -> None:
    for source, sentence in (
        ("i2c=/dev/i2c-7 address=64 register=2", "/dev/i2c-7: No such file"),
        ("i2c=/dev/i2c-0 address=65 register=2", "the sensor's register cannot be read"),
    ):
        refused = bench.run(
            tmp_path, f"{HEAD}sampler period_ns=10000000\nsample {source}\n{IDLE}end\n"
        )
        assert refused.exit_code == 4
        assert sentence in refused.stderr


def test_a_gpio_line_is_driven_through_the_kernel(bench: Bench, tmp_path: Path) -> None:
    done = bench.run(tmp_path, f"{HEAD}sync chip=/dev/gpiochip0 line=0\n{IDLE}end\n")
    assert (done.exit_code, done.stderr) == (0, "")
    assert len(bench.results(tmp_path).windows) == 1
    refused = bench.run(tmp_path, f"{HEAD}sync chip=/dev/gpiochip0 line=99\n{IDLE}end\n")
    assert refused.exit_code == 4
    assert "line 99 of /dev/gpiochip0 cannot be driven" in refused.stderr


def test_a_full_card_ends_the_plan_with_an_error_and_keeps_finished_windows(
    bench: Bench, tmp_path: Path
) -> None:
    bench.shell("dd if=/dev/zero of=/mnt/sd/full bs=1M 2>/dev/null; true")
    try:
        place = "scratch bytes=8388608 directory=/mnt/sd\n"
        transfer = "transfer id=1 method=write bytes=4096 most=1 min_ns=1 tail_ns=0\n"
        full = bench.run(tmp_path, f"{HEAD}{IDLE}{place}{transfer}end\n")
        assert full.exit_code == 5
        assert "/mnt/sd: No space left on device" in full.stderr
        assert [window.id for window in bench.results(tmp_path).windows] == [0]
        assert ".joulewright" not in bench.shell("ls -a /mnt/sd")
    finally:
        bench.shell("rm -f /mnt/sd/full")
