"""The emulated Linux board over its own SSH server: transport, card, flash and power sensor.

The first time on a computer, its image is built from Debian's packages.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paramiko
import pytest
from numpy.typing import NDArray

from devices.description import CrossToolchain, DeviceDescription, SshTransport, load_description
from devices.errors import BoardCommandFailed, BoardUnreachable
from devices.firmware import EmulatedNand, EmulatedSensor
from devices.meters import HwmonMeter
from profiler.lab.image import SCRATCH_PARTITION, SENSOR_LOG
from profiler.meters.on_board.hwmon import open_hwmon
from profiler.transports.base import Transport
from profiler.transports.ssh import SshTransport as Ssh
from tests.support.boards.emulated import SharedBoards
from tests.support.boards.ground_truth import ns_per_instruction
from tests.support.paths import NATIVE

pytestmark = pytest.mark.emulated

PROBE = NATIVE / "board_probe.c"
DESCRIPTION = load_description("emulated-a72")
LIMIT_S = 60.0

PAGE_BYTES, BLOCK_BYTES = 2048, 131072
BUS_US = PAGE_BYTES * 0.05, PAGE_BYTES * 0.04
"""Time to move a page from and to the flash chip, at nandsim's default of 50 and 40 ns a byte."""


@pytest.fixture(scope="module")
def running(shared_boards: SharedBoards) -> Iterator[DeviceDescription]:
    with shared_boards.lent(DESCRIPTION) as board:
        yield board.description


@pytest.fixture(scope="module")
def reached(running: DeviceDescription) -> SshTransport:
    assert isinstance(running.transport, SshTransport)
    return running.transport


@pytest.fixture(scope="module")
def board(reached: SshTransport) -> Iterator[Transport]:
    with Ssh(reached) as transport:
        yield transport


@pytest.fixture(scope="module")
def probe(board: Transport, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program built with the description's own compiler and flags, linked to shared libraries."""
    toolchain = DESCRIPTION.toolchain
    assert isinstance(toolchain, CrossToolchain)
    program = tmp_path_factory.mktemp("probe") / "board-probe"
    command = [toolchain.compiler, *toolchain.flags, "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, str(PROBE), "-o", str(program), "-lm", "-lpthread"], check=True)
    board.put(program, "board-probe", timeout_s=LIMIT_S, executable=True)
    return f"{board.directory}/board-probe"


def shell(board: Transport, script: str) -> str:
    return board.run(["sh", "-c", script], timeout_s=LIMIT_S).stdout


# --- the transport --------------------------------------------------------------------------------


def test_a_file_survives_the_transfer_to_the_board_and_back(
    board: Transport, tmp_path: Path
) -> None:
    data = np.random.default_rng(1).bytes(300_000)
    (tmp_path / "sent").write_bytes(data)
    board.put(tmp_path / "sent", "file", timeout_s=LIMIT_S)
    assert shell(board, "sha256sum file").split()[0] == hashlib.sha256(data).hexdigest()
    board.get("file", tmp_path / "fetched", timeout_s=LIMIT_S)
    assert (tmp_path / "fetched").read_bytes() == data


def test_commands_run_with_environment_exit_code_and_both_streams(board: Transport) -> None:
    result = board.run(
        ["sh", "-c", "echo $WORD; echo no >&2; exit 3"],
        timeout_s=LIMIT_S,
        environment={"WORD": "a b"},
        check=False,
    )
    assert (result.exit_code, result.stdout) == (3, "a b\n")
    assert result.stderr.strip() == "no"


def test_a_command_past_its_time_limit_is_ended_with_its_children(board: Transport) -> None:
    with pytest.raises(BoardCommandFailed, match="did not finish within"):
        board.run(["sh", "-c", "sleep 1234 & sleep 1234"], timeout_s=0.5)
    assert "sleep 1234" not in shell(board, "ps | grep -v grep | grep 'sleep 1234' || true")


def test_detached_commands_are_followed_and_stopped(board: Transport) -> None:
    done = board.start(["sh", "-c", "echo done; exit 4"], timeout_s=LIMIT_S)
    endless = board.start(["sleep", "4321"], timeout_s=LIMIT_S)
    while (exit_code := done.poll(timeout_s=LIMIT_S).exit_code) is None:
        pass
    assert exit_code == 4
    assert done.output(timeout_s=LIMIT_S) == ("done\n", "")
    assert endless.poll(timeout_s=LIMIT_S).exit_code is None
    endless.stop(timeout_s=LIMIT_S)
    assert endless.poll(timeout_s=LIMIT_S).exit_code is not None
    assert shell(board, "ps | grep -v grep | grep 'sleep 4321' || true") == ""


def test_a_session_leaves_nothing_on_the_board(reached: SshTransport, board: Transport) -> None:
    with Ssh(reached) as other:
        directory = other.directory
        other.start(["sleep", "9999"], timeout_s=LIMIT_S)
        assert shell(board, f"test -d {directory} && echo there") == "there\n"
    assert shell(board, f"test -d {directory} || echo gone") == "gone\n"
    assert shell(board, "ps | grep -v grep | grep 'sleep 9999' || true") == ""


def test_a_changed_host_key_or_user_key_is_refused(reached: SshTransport, tmp_path: Path) -> None:
    """The host key is checked, and so is the user's."""
    other = paramiko.RSAKey.generate(2048)
    elsewhere = paramiko.HostKeys(str(reached.known_hosts))
    (name,) = elsewhere.keys()
    line = elsewhere[name]["ssh-ed25519"].get_base64()
    changed = line[:-6] + ("AAAAAA" if not line.endswith("AAAAAA") else "BBBBBB")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"{name} ssh-ed25519 {changed}\n")
    with pytest.raises(BoardUnreachable, match="THE HOST KEY HAS CHANGED"):
        Ssh(reached.model_copy(update={"known_hosts": known_hosts})).connect()
    other.write_private_key_file(str(tmp_path / "key"))
    with pytest.raises(BoardUnreachable, match=r"SSH login of root .*refused"):
        Ssh(reached.model_copy(update={"key": tmp_path / "key"})).connect()


# --- identity -------------------------------------------------------------------------------------


def test_the_board_has_the_described_processor_and_memory(board: Transport) -> None:
    assert shell(board, "uname -s -m").split() == ["Linux", "aarch64"]
    assert shell(board, "cat /proc/device-tree/model").strip("\0\n")
    assert shell(board, "grep -c ^processor /proc/cpuinfo").strip() == "1"
    assert shell(board, "cat /proc/device-tree/cpus/cpu@0/compatible").startswith("arm,cortex-a72")
    memory_kib = int(shell(board, "grep MemTotal /proc/meminfo").split()[1])
    described = DESCRIPTION.memory
    assert described is not None
    assert 0.9 * described.ram_bytes < memory_kib * 1024 < described.ram_bytes
    available_kib = int(shell(board, "grep MemAvailable /proc/meminfo").split()[1])
    assert available_kib * 1024 > described.usable_bytes


def test_repeated_runs_take_the_same_processor_time(board: Transport) -> None:
    """An instruction takes the same emulated time whatever else the host does.

    So does a loop, except for the interrupts that arrive in it, which only add time.
    """
    loop = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done"
    script = f"{loop}; cat /proc/$$/schedstat"
    runs_ns = sorted(int(shell(board, script).split()[0]) for _ in range(15))
    assert runs_ns[1] / runs_ns[0] < 1.05


# --- card -----------------------------------------------------------------------------------------


def test_the_card_is_mounted_and_keeps_data(board: Transport) -> None:
    storage = DESCRIPTION.storage
    assert storage is not None
    (mount,) = (
        line.split() for line in shell(board, "mount").splitlines() if f" {storage.path} " in line
    )
    assert (mount[0], mount[4]) == ("/dev/mmcblk0", "ext4")
    assert shell(board, "cat /sys/block/mmcblk0/device/type").strip() == "SD"
    blocks = int(shell(board, "cat /sys/block/mmcblk0/size"))
    assert blocks * 512 == storage.capacity_bytes
    copied = shell(
        board,
        f"cd {storage.path} && head -c 1048576 /dev/urandom >written && sync"
        " && dd if=written of=copy bs=4096 iflag=direct oflag=direct 2>/dev/null"
        " && cmp written copy && wc -c <copy; rm -f written copy",
    )
    assert copied.strip() == "1048576"


# --- raw flash ------------------------------------------------------------------------------------


def flash_partitions(board: Transport) -> dict[str, tuple[str, int, int]]:
    """Device, size in bytes and erase block in bytes of each partition, by name."""
    partitions = {}
    for line in shell(board, "cat /proc/mtd").splitlines()[1:]:
        device, size, block, name = line.split(maxsplit=3)
        partitions[name.strip('"')] = (f"/dev/{device[:-1]}", int(size, 16), int(block, 16))
    return partitions


def test_the_flash_has_a_scratch_partition_and_a_read_only_one(board: Transport) -> None:
    partitions = flash_partitions(board)
    _, size_bytes, block_bytes = partitions[SCRATCH_PARTITION]
    assert size_bytes + partitions["system"][1] == 128 << 20
    assert block_bytes == BLOCK_BYTES
    number = partitions["system"][0].removeprefix("/dev/")
    writable = 0x400
    flags = int(shell(board, f"cat /sys/class/mtd/{number}/flags"), 16)
    assert not flags & writable


def test_the_flash_has_the_described_delays(board: Transport, probe: str) -> None:
    """The delays are lower limits; correcting errors and moving data adds processor time.

    The shortest of three tries counts, since other work of the board adds time too.
    """
    device, _, _ = flash_partitions(board)[SCRATCH_PARTITION]
    tries = [board.run([probe, "flash", device], timeout_s=LIMIT_S).stdout.split() for _ in "123"]
    erase_us, write_us, read_us = (min(map(int, ns)) / 1e3 for ns in zip(*tries, strict=True))
    emulator = DESCRIPTION.emulator
    assert emulator is not None
    assert isinstance(emulator.nand, EmulatedNand)
    read_bus_us, write_bus_us = BUS_US
    processor_us = 100_000 * ns_per_instruction(DESCRIPTION) * 1e-3
    least_us = emulator.nand.erase_delay_ms * 1e3
    assert least_us <= erase_us < least_us + processor_us
    least_us = emulator.nand.program_delay_us + write_bus_us
    assert least_us <= write_us < least_us + processor_us
    least_us = emulator.nand.read_delay_us + read_bus_us
    assert least_us <= read_us < least_us + processor_us


# --- power sensor ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sensor(board: Transport) -> str:
    """The sensor's directory in sysfs."""
    return shell(board, "dirname $(grep -l ina226 /sys/class/hwmon/hwmon*/name)").strip()


@dataclass(frozen=True)
class Samples:
    """Samples of the sensor at 100 Hz; every array has the shape [samples].

    While the board is idle its time is the host's, so that a sample is late on a busy host.
    """

    times_ns: NDArray[np.int64]
    is_busy: NDArray[np.bool_]
    power_w: NDArray[np.float64]


def sample(board: Transport, probe: str, sensor: str, *stretches_s: float) -> Samples:
    """Sample the power over idle and busy stretches in turn, of the given lengths in seconds."""
    words = [probe, "power", f"{sensor}/power1_input", "10000000", *map(str, stretches_s)]
    text = board.run(words, timeout_s=LIMIT_S).stdout
    table = np.array([list(map(int, line.split())) for line in text.splitlines()])
    return Samples(table[:, 0], table[:, 1] == 1, table[:, 2] * 1e-6)


def sensor_log(board: Transport) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Times in ns at which the power at the sensor was set, and the values in watts."""
    table = np.array(
        [list(map(int, line.split())) for line in shell(board, f"cat {SENSOR_LOG}").splitlines()]
    )
    return table[:, 0], table[:, 1] * 1e-6


def test_the_sensor_is_the_described_meter(board: Transport, sensor: str) -> None:
    assert isinstance(DESCRIPTION.meter, HwmonMeter)
    meter = open_hwmon(DESCRIPTION.meter, board, "emulated")
    assert meter.sampler is not None
    power, current = meter.sampler.sources
    assert power.endswith(f"{sensor}/power1_input")
    assert current.endswith(f"{sensor}/curr1_input")


def test_the_sensor_follows_the_load_between_the_described_powers(
    board: Transport, probe: str, sensor: str
) -> None:
    emulator = DESCRIPTION.emulator
    assert emulator is not None
    assert isinstance(emulator.sensor, EmulatedSensor)
    idle_w, busy_w = emulator.sensor.idle_w, emulator.sensor.busy_w
    samples = sample(board, probe, sensor, 0.5, 0.3, 0.5)
    tolerance_w = 0.02 * (busy_w - idle_w)
    assert np.median(samples.power_w[samples.is_busy]) == pytest.approx(busy_w, abs=tolerance_w)
    assert np.median(samples.power_w[~samples.is_busy]) == pytest.approx(idle_w, abs=tolerance_w)
    assert samples.power_w.min() >= idle_w
    assert samples.power_w.max() <= busy_w


def test_the_sensor_reads_the_power_in_the_log(board: Transport, probe: str, sensor: str) -> None:
    """Every reading is the last value in the log before it, and the energies agree."""
    samples = sample(board, probe, sensor, 0.5, 0.1, 0.2, 0.1, 0.3)
    times_ns, power_w = samples.times_ns, samples.power_w
    set_ns, set_w = sensor_log(board)
    # A value that was set while the sensor was being read is in the log a moment later.
    moment_ns = 1_000_000
    first = np.searchsorted(set_ns, times_ns - moment_ns, side="right") - 1
    last = np.searchsorted(set_ns, times_ns + moment_ns, side="right")
    for power, *possible in zip(power_w, first, last, strict=True):
        assert power in set_w[slice(*possible)]
    assert len(set(power_w)) > 2

    inside = set_ns[(set_ns > times_ns[0]) & (set_ns < times_ns[-1])]
    knots_ns = np.concatenate([times_ns[:1], inside, times_ns[-1:]])
    held_w = set_w[np.searchsorted(set_ns, knots_ns[:-1], side="right") - 1]
    set_j = np.sum(np.diff(knots_ns) * 1e-9 * held_w)
    sampled_j = np.trapezoid(power_w, times_ns * 1e-9)
    # Between two readings, the mean power and the mean of the readings both lie within the values
    # that the log has there. Nothing else limits the difference where a reading is late.
    within_j = 0.0
    for k, period_s in enumerate(np.diff(times_ns) * 1e-9):
        values_w = set_w[first[k] : last[k + 1]]
        mean_w = (power_w[k] + power_w[k + 1]) / 2
        within_j += period_s * max(values_w.max() - mean_w, mean_w - values_w.min())
    assert abs(sampled_j - set_j) <= within_j


def test_voltage_and_current_of_the_sensor_agree_with_its_power(
    board: Transport, sensor: str
) -> None:
    script = f"cd {sensor} && cat in1_input power1_input curr1_input shunt_resistor in0_input"
    for _ in range(20):
        bus_mv, power_uw, current_ma, shunt_uohm, shunt_mv = map(int, shell(board, script).split())
        # Values are read one after another, and may change in between.
        if power_uw * 1e-6 == pytest.approx(bus_mv * current_ma * 1e-6, abs=0.01) and (
            shunt_mv == pytest.approx(current_ma * shunt_uohm * 1e-6, abs=1.0)
        ):
            break
    else:
        pytest.fail("power is not voltage times current, or current not that of the shunt")
    assert bus_mv == 5000


def test_the_sensor_averages_over_its_update_interval(
    board: Transport, probe: str, sensor: str
) -> None:
    usual_ms = shell(board, f"cat {sensor}/update_interval").strip()
    shell(board, f"echo 35 >{sensor}/update_interval")
    try:
        samples = sample(board, probe, sensor, *([0.02] * 24))
        set_ns, _ = sensor_log(board)
    finally:
        shell(board, f"echo {usual_ms} >{sensor}/update_interval")
    first_ns, last_ns = samples.times_ns[[0, -1]]
    values = np.count_nonzero((set_ns > first_ns) & (set_ns <= last_ns))
    averages, conversions_s = 16, 2.2e-3
    assert 3 <= values <= (last_ns - first_ns) * 1e-9 / (averages * conversions_s) + 2
