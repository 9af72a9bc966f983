"""Emulated boards: started, found again, reset and stopped, even if their starter is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cli
from devices.description import DeviceDescription, SerialTransport, load_description
from devices.documents.document import DocumentError, dump_json, write_atomically
from devices.errors import BoardUnreachable, BuildFailed
from devices.firmware import EmulatedCard, Throttle
from devices.program import COMMAND
from profiler.building.programs import program_path, require_programs
from profiler.lab import RunningBoard, bring_up, kept_boards, start, take_down
from profiler.lab.directories import boards_directory
from profiler.lab.kept import Record
from profiler.lab.process import Launch, Process
from profiler.lab.qemu import Guest
from profiler.lab.wiring import card_wiring
from profiler.transports.serial.exchange import StrangerError
from profiler.transports.serial.line import Line
from profiler.transports.serial.session import SerialSession
from tests.support.boards.processes import (
    VARIABLE,
    ended_in_any_case,
    marked,
    new_mark,
    wait_until,
)
from tests.support.paths import ROOT
from tests.support.progress import ignore

M4F, M3_SD, M0_FLASH = "emulated-m4f", "emulated-m3-sd", "emulated-m0-flash"
M4F_SD = "emulated-m4f-sd"


@pytest.fixture(autouse=True)
def _nothing_is_left(own_boards: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that a test leaves no board running, and remove what it left."""
    mark = new_mark()
    monkeypatch.setenv(VARIABLE, mark)
    yield
    take_down([board.name for board in kept_boards()])
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(boards_directory())
    assert left == set()


def started(name: str, says: Callable[[str], None] = ignore) -> RunningBoard:
    return start(load_description(name), says)


@contextmanager
def session(description: DeviceDescription) -> Iterator[SerialSession]:
    assert isinstance(description.transport, SerialTransport)
    assert description.transport.port is not None
    line = Line(description.transport.port, description.transport.baud)
    board = SerialSession(line, description.name, deadline_s=10.0)
    board.open()
    try:
        board.hello()
        yield board
    finally:
        board.close()


def hello(description: DeviceDescription) -> str:
    """The name that the board's firmware reports."""
    with session(description) as board:
        return board.hello()["board"]


def with_card(name: str, card: EmulatedCard) -> DeviceDescription:
    description = load_description(name)
    assert description.emulator is not None
    emulator = description.emulator.model_copy(update={"card": card})
    return description.model_copy(update={"emulator": emulator})


def processor_s(pid: int) -> float:
    """Seconds of processors that a process has taken: proc(5), stat's utime and stime."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(*argv: str) -> int:
    return cli.main(argv)


def runs() -> list[Path]:
    return list((boards_directory() / "runs").iterdir())


# --- boards of one command ------------------------------------------------------------------------


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("name", "board"),
    [(M4F, "mps2-an386"), (M4F_SD, "mps2-an386"), (M3_SD, "lm3s6965evb"), (M0_FLASH, "microbit")],
)
def test_a_board_answers_repeatedly_until_it_is_stopped(name: str, board: str) -> None:
    with started(name) as running:
        assert hello(running.description) == board
        assert hello(running.description) == board
        assert running.is_alive
    assert not running.is_alive
    assert runs() == []
    running.stop()


@pytest.mark.emulated
@pytest.mark.parametrize("name", [M4F, M3_SD, M0_FLASH])
def test_a_microcontroller_that_waits_takes_no_time_of_this_computer(name: str) -> None:
    with started(name) as running:
        hello(running.description)
        before_s = processor_s(running.pid)
        time.sleep(2.0)
        assert processor_s(running.pid) - before_s < 0.1  # a busy one takes more beside others, too
        hello(running.description)


@pytest.mark.emulated
def test_a_reset_board_answers_a_new_hello_on_the_same_line() -> None:
    with started(M4F) as running, session(running.description) as board:
        running.reset()
        with pytest.raises(StrangerError):
            board.line("health")
        board.hello()
        assert board.line("health")
        assert running.is_alive


@pytest.mark.emulated
def test_a_card_is_empty_at_every_start_and_as_large_as_described() -> None:
    throttle = Throttle(read_iops=1000, write_iops=1000)
    description = with_card(M3_SD, EmulatedCard(size_bytes=1 << 25, throttle=throttle))
    assert description.emulator is not None
    emulator = description.emulator.model_copy(update={"icount_shift": None})
    with start(description.model_copy(update={"emulator": emulator}), ignore) as running:
        (image,) = runs()[0].glob("*.img")
        assert image.stat().st_size == 1 << 25
        assert image.stat().st_blocks == 0
        with session(running.description) as board:
            assert "capacity_bytes=33554432" in board.line("storage")


@pytest.mark.emulated
def test_a_reset_board_finds_the_card_that_is_wired_to_it() -> None:
    card = EmulatedCard(size_bytes=1 << 25, spi_port=0x40026000)
    with start(with_card(M4F_SD, card), ignore) as running:
        with session(running.description) as board:
            before = board.line("storage")
            assert "capacity_bytes=33554432" in before
        running.reset()
        with session(running.description) as board:
            assert board.line("storage") == before


@pytest.mark.emulated
@pytest.mark.parametrize("name", [M4F_SD, M3_SD])
def test_a_card_cannot_be_wired_where_the_machine_has_no_spi_port(name: str) -> None:
    card = EmulatedCard(spi_port=0x40004000)
    said = "the card cannot be wired: this machine has no SPI port .* at this address"
    with pytest.raises(BoardUnreachable, match=said):
        start(with_card(name, card), ignore)
    assert runs() == []


@pytest.mark.emulated
def test_a_card_is_wired_only_if_the_plugin_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed, match="needs cc, which") as caught:
        card_wiring(ignore)
    assert caught.value.remedy == "install with: sudo apt install gcc"


@pytest.mark.emulated
def test_boards_of_one_name_run_side_by_side() -> None:
    with started(M4F) as one, started(M4F) as other:
        assert one.pid != other.pid
        assert one.description.transport != other.description.transport
        assert hello(one.description) == hello(other.description)


@pytest.mark.emulated
def test_the_files_of_a_killed_board_are_removed() -> None:
    with started(M4F) as running:
        running.kill()
        wait_until(lambda: not running.is_alive)
    assert runs() == []


STARTS_ONE = """
import sys, time
from devices.description import load_description
from profiler.lab import start
board = start(load_description("emulated-m4f"), lambda text: None)
print(board.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.emulated
def test_a_board_ends_when_the_command_that_started_it_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        emulator = Process.of(int(command.stdout.readline()))
        assert emulator.is_alive
        command.kill()
    wait_until(lambda: not emulator.is_alive)
    (left,) = runs()
    with started(M4F):
        assert not left.exists()


@pytest.mark.emulated
def test_ctrl_c_in_the_terminal_does_not_reach_the_emulator() -> None:
    """The command decides when to end it, since it may have records to fetch first."""
    with started(M4F) as running:
        assert os.getsid(running.pid) != os.getsid(0)
        assert os.getpgid(running.pid) != os.getpgid(0)


@pytest.mark.emulated
def test_the_error_quotes_an_emulator_that_fails_to_start() -> None:
    description = load_description(M4F)
    assert description.emulator is not None
    emulator = description.emulator.model_copy(update={"cpu": "cortex-m99"})
    with pytest.raises(BoardUnreachable, match=r"emulated-m4f: qemu-system-arm .*cortex-m99"):
        start(description.model_copy(update={"emulator": emulator}), ignore)
    assert runs() == []


def test_only_emulated_boards_can_be_started() -> None:
    with pytest.raises(DocumentError, match="local is not an emulated board"):
        start(load_description("local"), ignore)


def test_a_launched_process_does_nothing_before_it_is_released(tmp_path: Path) -> None:
    with Launch(["touch", "done"], tmp_path, keep=True, inherited=[]) as launch:
        assert launch.process.is_alive
    assert launch.process.wait(timeout_s=10.0)
    assert launch.process.end(patience_s=1.0)
    assert not (tmp_path / "done").exists()


# --- kept boards ----------------------------------------------------------------------------------


@pytest.mark.emulated
def test_lab_up_status_and_down_list_and_stop_kept_boards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("lab", "status") == 0
    assert "no emulated board is running" in capsys.readouterr().out
    assert run("lab", "up", "--device", M4F, M0_FLASH) == 0
    assert "starting emulated-m4f" in capsys.readouterr().err
    assert run("lab", "status", "--json") == 0
    boards = json.loads(capsys.readouterr().out)["boards"]
    assert [(board["name"], board["state"]) for board in boards] == [(M0_FLASH, "up"), (M4F, "up")]
    assert all(board["uptime_s"] >= 0 for board in boards)
    processes = [Process.of(board["pid"]) for board in boards]
    assert run("lab", "down", M4F) == 0
    assert "emulated-m4f is stopped" in capsys.readouterr().out
    assert [process.is_alive for process in processes] == [True, False]
    assert run("lab", "down", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": [M0_FLASH]}
    assert not any(process.is_alive for process in processes)
    assert list((boards_directory() / "kept").iterdir()) == []


@pytest.mark.emulated
def test_commands_use_a_kept_board_and_leave_it_running() -> None:
    kept = bring_up(load_description(M4F), ignore)
    said: list[str] = []
    for _ in range(2):
        with started(M4F, said.append) as running:
            assert running.pid == kept.pid
            assert hello(running.description) == "mps2-an386"
    assert kept.is_alive
    assert said.count("using emulated-m4f, which is kept running") == 2


@pytest.mark.emulated
def test_a_second_up_changes_nothing() -> None:
    said: list[str] = []
    boards = [bring_up(load_description(M4F), said.append) for _ in range(2)]
    assert boards[0].pid == boards[1].pid
    assert boards[0].description == boards[1].description
    assert "emulated-m4f is running already" in said


@pytest.mark.emulated
def test_two_ups_at_once_start_one_board() -> None:
    up = [sys.executable, "cli.py", "lab", "up", "--device", M4F, "--json"]
    started = (
        subprocess.Popen(up, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(2)
    )
    with ended_in_any_case(*started) as commands:
        answers = [json.loads(command.communicate()[0])["boards"] for command in commands]
    assert [command.returncode for command in commands] == [0, 0]
    assert len({board["pid"] for boards in answers for board in boards}) == 1


@pytest.mark.emulated
def test_a_kept_board_that_differs_is_unused_by_commands_and_renewed_by_up() -> None:
    description = load_description(M4F)
    assert description.emulator is not None
    emulator = description.emulator.model_copy(update={"icount_shift": 5})
    changed = description.model_copy(update={"emulator": emulator})
    kept = bring_up(description, ignore)
    said: list[str] = []
    with start(changed, said.append) as own:
        assert own.pid != kept.pid
    assert f"restart it with: {COMMAND} lab up --device emulated-m4f" in said[-2]
    assert kept.is_alive
    renewed = bring_up(changed, said.append)
    assert not kept.is_alive
    assert renewed.pid != kept.pid
    assert "restarting it" in said[-1]


@pytest.mark.emulated
def test_a_kept_board_that_has_ended_is_reported_and_cleaned_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        board = bring_up(load_description(M4F), ignore)
        board.kill()
        wait_until(lambda board=board: not board.is_alive)  # type: ignore[misc]
        assert [kept.state for kept in kept_boards()] == ["dead"]
        with started(M4F) as own:
            assert own.pid != board.pid
    said: list[str] = []
    board = bring_up(load_description(M4F), said.append)
    assert "has ended: restarting it" in said[0]
    board.kill()
    wait_until(lambda: not board.is_alive)
    assert run("lab", "down") == 0
    assert "had already ended; its files are removed" in capsys.readouterr().out
    assert kept_boards() == []


@pytest.mark.emulated
def test_a_reused_process_id_is_not_killed() -> None:
    board = bring_up(load_description(M4F), ignore)
    record = boards_directory() / "kept" / M4F / "board.json"
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        written = json.loads(record.read_text())
        emulator = Process(board.pid, written["start_ticks"], written["boot_id"])
        record.write_text(json.dumps(written | {"pid": innocent.pid}))
        assert [kept.state for kept in kept_boards()] == ["dead"]
        assert take_down([M4F]) == {M4F: False}
        assert innocent.poll() is None
        assert emulator.end(patience_s=5.0)
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.emulated
def test_a_failed_up_leaves_no_board(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "devices" / "catalog" / f"{M4F}.yaml").read_text()
    path = boards_directory() / "odd.yaml"
    path.write_text(text.replace("machine: mps2-an386", "machine: mps2-an000"))
    assert run("lab", "up", "--device", str(path)) == 3
    assert "unsupported machine type" in capsys.readouterr().err
    assert kept_boards() == []


@pytest.mark.emulated
def test_ctrl_c_while_a_board_starts_leaves_no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Process] = []

    def interrupted(_guest: Guest, process: Process, _directory: Path) -> int:
        begun.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr("profiler.lab.kept.wait_until_up", interrupted)
    monkeypatch.setattr("profiler.lab.running.wait_until_up", interrupted)
    assert run("lab", "up", "--device", M4F) == 130
    with pytest.raises(KeyboardInterrupt):
        started(M4F)
    assert [process.is_alive for process in begun] == [False, False]
    assert kept_boards() == []
    assert runs() == []


@pytest.mark.emulated
def test_a_command_waits_for_a_board_that_is_starting() -> None:
    kept = bring_up(load_description(M4F), ignore)
    record = boards_directory() / "kept" / M4F / "board.json"
    written = json.loads(record.read_text())
    port = written.pop("port")
    record.write_text(json.dumps(written))
    assert [(board.state, board.port) for board in kept_boards()] == [("starting", None)]
    with started(M4F) as running:
        assert running.pid == kept.pid
        assert running.description == kept.description
    bring_up(load_description(M4F), ignore)
    assert [(board.state, board.port) for board in kept_boards()] == [("up", port)]


def test_down_suggests_a_name_for_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lab", "down", "emulated-m4") == 2
    assert "did you mean emulated-m4f?" in capsys.readouterr().err
    assert run("lab", "down", M4F) == 0
    assert "emulated-m4f was not running" in capsys.readouterr().out


def test_down_with_a_wrong_name_stops_no_board(capsys: pytest.CaptureFixture[str]) -> None:
    board = subprocess.Popen(["sleep", "600"])
    try:
        process = Process.of(board.pid)
        record = Record(
            name=M4F,
            pid=process.pid,
            start_ticks=process.start_ticks,
            boot_id=process.boot_id,
            guest="",
            port=1,
        )
        write_atomically(record.directory / "board.json", dump_json(record))
        assert run("lab", "down", M4F, "nosuch") == 2
        assert "no device 'nosuch'" in capsys.readouterr().err
        assert board.poll() is None
        assert [kept.name for kept in kept_boards()] == [M4F]
    finally:
        board.kill()
        board.wait()


# --- required programs ----------------------------------------------------------------------------


def test_missing_programs_are_named_with_one_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert run("lab", "up", "--device", M4F) == 2
    assert capsys.readouterr().err == (
        "error: emulated-m4f needs arm-none-eabi-gcc and qemu-system-arm, which this computer does"
        " not have; install with: sudo apt install gcc-arm-none-eabi libnewlib-arm-none-eabi"
        " qemu-system-arm\n"
    )


def test_a_board_that_compiles_for_itself_needs_no_local_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    require_programs(load_description("pi4"))
    with pytest.raises(BuildFailed, match="arm-none-eabi-gcc"):
        require_programs(load_description(M0_FLASH))


def test_programs_in_sbin_are_found_without_sbin_on_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program_path("mke2fs") is not None
