"""Flashing with tools and boot loaders: the right program is written, and errors are quoted.

The tools are stand-ins on PATH; neither a debug probe nor a board is needed.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import serial
import yaml
from hypothesis import given
from hypothesis import strategies as st

import cli
from devices.description import DeviceDescription, SerialTransport, load_description
from devices.documents.document import DocumentError, dump_yaml
from devices.errors import (
    BoardInUse,
    BoardUnreachable,
    BuildFailed,
    ExitCode,
    FirmwareMismatch,
)
from devices.firmware import Firmware
from devices.plan import ExecutionPlan
from networks.training import Network, training_step
from profiler.building.firmware_image import FirmwareImage, build_firmware, firmware_identity
from profiler.flashing import flashing
from profiler.flashing.flashing import (
    BossacFlashing,
    CopyFlashing,
    ToolFlashing,
    flashing_of,
)
from profiler.flashing.uf2 import uf2_file
from profiler.lab import kept_boards, take_down
from profiler.meters.stand_ins.ppk2 import Ppk2StandIn, Scenario
from profiler.opening.boards import open_board
from replay.lowering.lowering import unscheduled
from tests.support.boards import processes
from tests.support.boards.claims import used_by_another
from tests.support.boards.measuring import unopened_ppk2
from tests.support.boards.serial import Cable, StandInBoard
from tests.support.paths import ROOT
from tests.support.progress import ignore

pytestmark = pytest.mark.usefixtures("own_boards")


@pytest.fixture(scope="module")
def emulated() -> DeviceDescription:
    return load_description("emulated-m4f")


@pytest.fixture(scope="module")
def image(own_boards: None, emulated: DeviceDescription) -> FirmwareImage:
    """Firmware of the board as a real one, whose clock never stands still."""
    return build_firmware(emulated.model_copy(update={"emulator": None}))


Described = Callable[..., DeviceDescription]


@pytest.fixture
def described(emulated: DeviceDescription) -> Described:
    """Maker of descriptions of the emulated board as a real one with a given flasher."""

    def describe(**flasher: Any) -> DeviceDescription:
        assert emulated.firmware is not None
        firmware = Firmware.model_validate(
            {**emulated.firmware.model_dump(), "flasher": flasher or None}
        )
        return emulated.model_copy(update={"firmware": firmware, "emulator": None})

    return describe


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Maker of stand-ins for a tool, which record their arguments, one a line, and run a body."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, body: str = "exit 0") -> Path:
        recorded = tmp_path / f"{name}.words"
        script = directory / name
        script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{recorded}'\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return recorded

    return make


# --- tools with a probe ---------------------------------------------------------------------


def words(image: FirmwareImage) -> dict[str, tuple[dict[str, Any], list[str]]]:
    return {
        "openocd": (
            {"config": ["interface/stlink.cfg", "board/a b.cfg"]},
            [
                *("-f", "interface/stlink.cfg", "-f", "board/a b.cfg"),
                *("-c", f"program {{{image.elf}}} verify reset exit"),
            ],
        ),
        "pyocd": (
            {"target": "nrf52840", "probe": "0683"},
            [
                *("flash", "--no-wait", "--target", "nrf52840", "--probe", "0683"),
                str(image.elf),
            ],
        ),
        "nrfjprog": (
            {"serial": "683"},
            [
                *("--program", str(image.hex), "--sectorerase", "--verify", "--reset"),
                *("--snr", "683"),
            ],
        ),
    }


@pytest.mark.parametrize("kind", ["openocd", "pyocd", "nrfjprog"])
def test_a_flashing_tool_gets_its_command_line_options(
    kind: str, described: Described, image: FirmwareImage, tool: Callable[..., Path]
) -> None:
    options, expected = words(image)[kind]
    recorded = tool(kind)
    way = flashing_of(described(kind=kind, **options), image)
    way.carry_out(ignore)
    assert recorded.read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        # Output of OpenOCD 0.12.0, pyOCD 0.46.0 and bossac 1.9.1 without a board.
        (
            "Info : clock speed 2000 kHz\nError: open failed\nin procedure 'program'\n"
            "** OpenOCD init failed **\nshutdown command invoked\n",
            "openocd failed: open failed",
        ),
        (
            "No connected debug probes\n0000390 E No target device available [load_cmd]\n",
            "openocd failed: No target device available",
        ),
        ("\nNo device found on /dev/ttyACM7\n\n", "openocd failed: No device found on /dev/tty"),
        ("", "openocd failed: no output, exit code 3"),
    ],
)
def test_the_error_quotes_the_tools_own_message(
    output: str,
    sentence: str,
    described: Described,
    image: FirmwareImage,
    tool: Callable[..., Path],
    tmp_path: Path,
) -> None:
    (tmp_path / "output").write_text(output)
    tool("openocd", f"cat '{tmp_path / 'output'}' >&2; exit 3")
    way = flashing_of(described(kind="openocd", config=["x.cfg"]), image)
    with pytest.raises(BoardUnreachable, match=sentence):
        way.carry_out(ignore)


def test_a_missing_tool_is_named_with_its_package(
    described: Described, image: FirmwareImage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    way = flashing_of(described(kind="openocd", config=["x.cfg"]), image)
    with pytest.raises(BuildFailed, match=r"cannot run openocd .*sudo apt install openocd"):
        way.carry_out(ignore)


def test_a_tool_that_hangs_is_ended_with_its_children(
    tool: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = processes.new_mark()
    monkeypatch.setenv(processes.VARIABLE, mark)
    tool("hangs", "trap '' TERM\nsleep 600 &\nwait; sleep 600")
    way = ToolFlashing("board", ("hangs",), "nowhere", limit_s=0.3)
    with pytest.raises(BoardUnreachable, match=r"hangs did not finish within 0.3 s"):
        way.carry_out(ignore)
    processes.wait_until(lambda: not processes.marked(mark))


@pytest.mark.slow
def test_ctrl_c_ends_the_tool(tool: Callable[..., Path], described: Described) -> None:
    """A command in a process of its own gets SIGINT, as from a terminal."""
    mark = processes.new_mark()
    recorded = tool("hangs", "sleep 600")
    program = (
        "from profiler.flashing.flashing import ToolFlashing\n"
        "ToolFlashing('board', ('hangs',), 'nowhere').carry_out(print)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {processes.VARIABLE: mark},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as command:
        processes.wait_until(recorded.exists)
        command.send_signal(signal.SIGINT)
        _, error = command.communicate(timeout=60)
    assert b"KeyboardInterrupt" in error
    processes.wait_until(lambda: not processes.marked(mark))


# --- boot loaders -----------------------------------------------------------------------------


class TouchPort:
    """The port of a board that enters its boot loader when the port is opened at 1200 baud.

    It is a symbolic link to a pseudo-terminal; the link vanishes, and comes back or not.
    """

    def __init__(self, name: Path, *, comes_back: bool) -> None:
        self.name = name
        self.touched = threading.Event()
        self._comes_back = comes_back
        self._master, self._slave = pty.openpty()
        self._port = os.ttyname(self._slave)
        name.symlink_to(self._port)
        self._ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended:
            if termios.tcgetattr(self._slave)[5] == termios.B1200:
                self.touched.set()
                self.name.unlink()
                time.sleep(0.2)
                if self._comes_back:
                    self.name.symlink_to(self._port)
                return
            time.sleep(0.01)

    def close(self) -> None:
        self._ended = True
        self._thread.join(timeout=10)
        os.close(self._slave)
        os.close(self._master)


@pytest.fixture
def touch_port(tmp_path: Path) -> Iterator[Callable[[bool], TouchPort]]:
    ports: list[TouchPort] = []

    def make(comes_back: bool) -> TouchPort:
        ports.append(TouchPort(tmp_path / "ttyACM0", comes_back=comes_back))
        return ports[-1]

    yield make
    for port in ports:
        port.close()


def test_bossac_writes_after_the_touch_to_the_offset_after_the_boot_loader(
    touch_port: Callable[[bool], TouchPort],
    described: Described,
    image: FirmwareImage,
    tool: Callable[..., Path],
) -> None:
    port = touch_port(True)
    recorded = tool("bossac")
    way = flashing_of(described(kind="bossac", port=str(port.name), offset=0x2000), image)
    way.carry_out(ignore)
    assert port.touched.is_set()
    assert recorded.read_text().splitlines() == [
        *(f"--port={port.name}", "--offset=0x2000"),
        *("--erase", "--write", "--verify", "--reset"),
        str(image.bin),
    ]


def test_the_touched_port_of_a_board_that_its_meter_feeds_is_awaited(
    touch_port: Callable[[bool], TouchPort],
    described: Described,
    image: FirmwareImage,
    tool: Callable[..., Path],
    tmp_path: Path,
) -> None:
    recorded = tool("bossac")
    fed = {"meter": unopened_ppk2()}
    port = str(tmp_path / "ttyACM0")
    way = flashing_of(
        described(kind="bossac", port=port, offset=0x2000).model_copy(update=fed), image
    )
    starting = threading.Timer(0.3, touch_port, [True])
    starting.start()
    way.carry_out(ignore)
    starting.join()
    assert f"--port={port}" in recorded.read_text()


def test_a_boot_loader_whose_port_does_not_appear_is_an_error(
    touch_port: Callable[[bool], TouchPort],
    image: FirmwareImage,
    tool: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = touch_port(False)
    recorded = tool("bossac")
    touch = BossacFlashing._touch

    def touch_until_it_vanishes(way: BossacFlashing) -> None:
        """On a busy computer the stand-in may notice the touch late."""
        touch(way)
        processes.wait_until(lambda: not port.name.is_symlink())

    monkeypatch.setattr(BossacFlashing, "_touch", touch_until_it_vanishes)
    way = BossacFlashing("board", str(port.name), 0x2000, image.bin, port_limit_s=1.0)
    with pytest.raises(BoardUnreachable, match="no port appeared within 1 s"):
        way.carry_out(ignore)
    assert not recorded.exists()


def test_a_missing_port_is_named_in_the_error(image: FirmwareImage, tmp_path: Path) -> None:
    way = BossacFlashing("board", str(tmp_path / "nothing"), 0x2000, image.bin)
    with pytest.raises(BoardUnreachable, match=r"cannot open .*nothing"):
        way.carry_out(ignore)


@pytest.mark.parametrize("kind", ["bin", "hex", "uf2"])
def test_a_disk_gets_the_program_in_its_format(
    kind: str, described: Described, image: FirmwareImage, tmp_path: Path
) -> None:
    (tmp_path / "INFO.TXT").write_text("the boot loader's own")
    family = {"uf2_family": 0xADA52840} if kind == "uf2" else {}
    description = described(kind="copy", directory=str(tmp_path), format=kind, **family)
    flashing_of(description, image).carry_out(ignore)
    program = image.bin.read_bytes()
    assert description.firmware is not None
    address = description.firmware.flash_address
    expected = {
        "bin": program,
        "hex": image.hex.read_bytes(),
        "uf2": uf2_file(program, address, 0xADA52840),
    }
    assert (tmp_path / f"firmware.{kind}").read_bytes() == expected[kind]


def test_flashing_waits_for_the_disk_to_appear(tmp_path: Path) -> None:
    """An empty directory stands for a mount point without its disk."""
    told: list[str] = []

    def appear(what: str) -> None:
        told.append(what)
        (tmp_path / "INFO.TXT").touch()

    way = CopyFlashing("board", tmp_path, "firmware.bin", b"program")
    way.carry_out(appear)
    assert told[0].startswith("waiting for the disk")
    assert (tmp_path / "firmware.bin").read_bytes() == b"program"


def test_a_disk_that_does_not_appear_in_time_is_an_error(tmp_path: Path) -> None:
    way = CopyFlashing("board", tmp_path, "firmware.bin", b"program", limit_s=0.2)
    with pytest.raises(BoardUnreachable, match=r"no disk appeared at .* within 0.2 s"):
        way.carry_out(ignore)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BoardUnreachable, match="no disk appeared"):
        replace(way, directory=tmp_path / "nothing").carry_out(ignore)


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    way = CopyFlashing("board", Path("/dev"), "full", b"program" * 1000)
    with pytest.raises(BoardUnreachable, match="cannot write full to /dev: No space left"):
        way.carry_out(ignore)


@given(
    program=st.binary(max_size=2000),
    address=st.integers(0, (1 << 32) - 4096),
    family=st.integers(0, (1 << 32) - 1),
)
def test_a_uf2_file_holds_the_program_at_its_address(
    program: bytes, address: int, family: int
) -> None:
    file = uf2_file(program, address, family)
    memory = bytearray()
    blocks = [file[start : start + 512] for start in range(0, len(file), 512)]
    for number, block in enumerate(blocks):
        start_0, start_1, flags, target, size, index, total, kind = struct.unpack("<8I", block[:32])
        assert (start_0, start_1) == (0x0A324655, 0x9E5D5157)
        assert struct.unpack("<I", block[508:]) == (0x0AB16F30,)
        assert (flags & 0x2000, kind) == (0x2000, family)
        assert (index, total) == (number, len(blocks))
        assert target == address + len(memory)
        memory += block[32 : 32 + size]
    assert memory[: len(program)] == program
    assert len(memory) - len(program) < 256
    assert not any(memory[len(program) :])


# --- the command ------------------------------------------------------------------------------


def test_a_board_without_a_described_flasher_is_refused(
    described: Described, image: FirmwareImage
) -> None:
    with pytest.raises(DocumentError, match=r"add firmware.flasher, of kind openocd"):
        flashing_of(described(), image)


def test_a_linux_board_is_not_flashed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["flash", "--device", "pi4"]) == ExitCode.USAGE
    assert "pi4 takes no firmware: its transport is ssh" in capsys.readouterr().err


@pytest.fixture
def stand_ins() -> list[StandInBoard]:
    """The stand-in boards made in a test."""
    return []


@pytest.fixture
def reached(
    described: Described, image: FirmwareImage, tmp_path: Path, stand_ins: list[StandInBoard]
) -> Iterator[Callable[..., Path]]:
    """Maker of descriptions of a board that is flashed with OpenOCD and answers on a serial port.

    The board is a stand-in, whose hello has the given values.
    """
    with ExitStack() as stack:

        def reach(**hello: str) -> Path:
            usual = {
                "firmware": image.identity.firmware_sha256,
                "kernels": image.identity.kernels_sha256,
                "storage": "none",
            }
            board = StandInBoard(hello=usual | hello)
            stand_ins.append(board)
            stack.callback(board.close)
            cable = Cable(board.far_end, tmp_path)
            stack.callback(cable.close)
            description = described(kind="openocd", config=["x.cfg"])
            transport = description.transport.model_copy(update={"port": cable.port})
            path = tmp_path / "board.yaml"
            dumped = dump_yaml(description.model_copy(update={"transport": transport}))
            path.write_text(dumped)
            return path

        yield reach


def test_a_flashed_board_is_asked_for_its_identity(
    reached: Callable[..., Path],
    image: FirmwareImage,
    tool: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = tool("openocd")
    assert cli.main(["flash", "--device", str(reached()), "--json"]) == ExitCode.DONE
    assert f"program {{{image.elf}}} verify reset exit" in recorded.read_text()
    document = json.loads(capsys.readouterr().out)
    assert document["firmware_sha256"] == image.firmware_sha256
    assert document["program_bytes"] == image.bin.stat().st_size
    assert document["board"]["serial"] == "0123abcd"


def test_a_board_that_its_meter_feeds_has_power_while_it_is_flashed(
    reached: Callable[..., Path], tool: Callable[..., Path]
) -> None:
    path = reached()
    with Ppk2StandIn(Scenario()) as ppk2:
        meter = {"kind": "ppk2", "port": ppk2.port, "mode": "source", "voltage_v": 3.0}
        document = yaml.safe_load(path.read_text())
        document["meter"] = meter | {"sync": {"kind": "steady"}}
        path.write_text(yaml.safe_dump(document))
        assert cli.main(["flash", "--device", str(path), "--dry-run"]) == ExitCode.DONE
        assert not ppk2.status().powered
        tool("openocd")
        assert cli.main(["flash", "--device", str(path)]) == ExitCode.DONE
        processes.wait_until(lambda: ppk2.status().powered)
        assert ppk2.status().millivolts == 3000


@pytest.fixture
def plan() -> ExecutionPlan:
    net = Network("tiny", 2)
    net.mean_squared_error(
        "loss", net.linear("linear", net.input("x", 2, 3), 2), net.input("y", 2, 2)
    )
    return unscheduled(training_step(net))


@pytest.mark.parametrize("needed", ["the plan", "no plan"])
@pytest.mark.parametrize("holds", ["another program", "it already"])
def test_the_firmware_that_is_needed_is_written_to_a_board_unless_it_has_it_already(
    holds: str,
    needed: str,
    plan: ExecutionPlan,
    reached: Callable[..., Path],
    stand_ins: list[StandInBoard],
    tool: Callable[..., Path],
) -> None:
    recorded = tool("openocd")
    path = reached()
    description = load_description(str(path))
    plans = [plan] if needed == "the plan" else []
    identity = firmware_identity(description, plans)
    (board,) = stand_ins
    other = firmware_identity(description, [] if plans else [plan])
    board.hello["firmware"] = (identity if holds == "it already" else other).firmware_sha256
    told: list[str] = []

    def tell(what: str) -> None:
        told.append(what)
        if what == "openocd writes the program":
            board.hello["firmware"] = identity.firmware_sha256

    with open_board(description, 0.5, tell, plans) as opened:
        opened.prepare(ignore)
    assert recorded.exists() == (holds == "another program")
    if recorded.exists():
        assert f"program {{{build_firmware(description, plans=plans).elf}}}" in recorded.read_text()
    stays = "it stays there until a command needs another one"
    assert any(what.endswith(stays) for what in told) == (holds == "another program")


@pytest.mark.parametrize("needed", ["the plan", "no plan"])
@pytest.mark.parametrize(
    ("key", "found"), [("board", "microbit"), ("protocol", "2"), ("clock_hz", "16000000")]
)
def test_a_board_that_is_not_the_described_one_is_not_flashed(
    key: str,
    found: str,
    needed: str,
    plan: ExecutionPlan,
    reached: Callable[..., Path],
    stand_ins: list[StandInBoard],
    tool: Callable[..., Path],
) -> None:
    recorded = tool("openocd")
    description = load_description(str(reached(**{key: found})))
    plans = [plan] if needed == "the plan" else []
    if key == "clock_hz":  # another firmware would state another clock
        identity = firmware_identity(description, plans)
        stand_ins[0].hello["firmware"] = identity.firmware_sha256
    with (
        pytest.raises(FirmwareMismatch, match=f"{key} is {found} instead of"),
        open_board(description, 0.5, ignore, plans),
    ):
        pass
    assert not recorded.exists()


@pytest.mark.parametrize("needed", ["the plan", "no plan"])
def test_a_silent_board_is_flashed_for_a_plan_only(
    needed: str,
    plan: ExecutionPlan,
    described: Described,
    tool: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flashing, "_START_LIMIT_S", 0.0)
    recorded = tool("openocd")
    description = described(kind="openocd", config=["x.cfg"])
    ends = pty.openpty()
    silent = {"port": os.ttyname(ends[1]), "deadline_s": 0.5}
    transport = description.transport.model_copy(update=silent)
    description = description.model_copy(update={"transport": transport})
    plans = [plan] if needed == "the plan" else []
    with (
        pytest.raises(BoardUnreachable, match="did not answer within"),
        open_board(description, 0.5, ignore, plans),
    ):
        pass
    assert recorded.exists() == (needed == "the plan")
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("way", ["flash", "a plan", "no plan"])
def test_a_board_that_another_program_uses_is_not_flashed(
    way: str,
    plan: ExecutionPlan,
    reached: Callable[..., Path],
    tool: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = tool("openocd")
    path = reached()
    description = load_description(str(path))
    assert isinstance(description.transport, SerialTransport)
    with serial.Serial(description.transport.port, exclusive=True):
        if way == "flash":
            assert cli.main(["flash", "--device", str(path)]) == ExitCode.BOARD_UNREACHABLE
            assert "another program uses this port" in capsys.readouterr().err
        else:
            with (
                pytest.raises(BoardInUse, match="another program uses this port"),
                open_board(description, 0.5, ignore, [plan] * (way == "a plan")),
            ):
                pass
    assert not recorded.exists()


@pytest.mark.parametrize("way", ["flash", "a plan", "no plan"])
def test_a_board_that_another_program_is_flashing_is_left_alone(
    way: str,
    plan: ExecutionPlan,
    reached: Callable[..., Path],
    tool: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its port is closed meanwhile, and may have another name in the other description."""
    recorded = tool("openocd")
    path = reached()
    description = load_description(str(path))
    assert isinstance(description.transport, SerialTransport)
    port = os.path.realpath(str(description.transport.port))
    transport = description.transport.model_copy(update={"port": port})
    with used_by_another(description.model_copy(update={"transport": transport})):
        if way == "flash":
            assert cli.main(["flash", "--device", str(path)]) == ExitCode.BOARD_UNREACHABLE
            assert "another program uses this board" in capsys.readouterr().err
        else:
            with (
                pytest.raises(BoardInUse, match="another program uses this board"),
                open_board(description, 0.5, ignore, [plan] * (way == "a plan")),
            ):
                pass
    assert not recorded.exists()


def test_an_answer_from_another_program_is_an_error(
    reached: Callable[..., Path],
    tool: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flashing, "_START_LIMIT_S", 0.0)
    tool("openocd")
    code = cli.main(["flash", "--device", str(reached(firmware="0" * 64))])
    assert code == ExitCode.USAGE
    assert "the program was written, but another program answers: " in capsys.readouterr().err


def test_a_dry_run_of_flashing_prints_the_command_and_runs_nothing(
    reached: Callable[..., Path],
    image: FirmwareImage,
    tool: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = tool("openocd")
    assert cli.main(["flash", "--device", str(reached()), "--dry-run"]) == ExitCode.DONE
    expected = f"openocd -f x.cfg -c 'program {{{image.elf}}} verify reset exit'"
    assert capsys.readouterr().out.strip() == expected
    assert not recorded.exists()


@pytest.fixture
def programmed(
    described: Described, tool: Callable[..., Path], tmp_path: Path
) -> Iterator[tuple[Path, Path]]:
    """Description of a board that is an emulator, and the file that names its program.

    OpenOCD's stand-in starts the emulator with the program that it is given.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    current, process_id = tmp_path / "program", tmp_path / "pid"
    recorded = tmp_path / "openocd.words"
    words = f"-M mps2-an386 -nodefaults -display none -serial chardev:line -pidfile '{process_id}'"
    words += f" -chardev socket,id=line,host=127.0.0.1,port={port},server=on,wait=off,nodelay=on"
    tool(
        "openocd",
        f"elf=$(sed -n 's/^program {{\\(.*\\)}}.*/\\1/p' '{recorded}')\n"
        f"if [ -f '{process_id}' ]; then\n"
        f"  kill -9 $(cat '{process_id}'); while [ -d /proc/$(cat '{process_id}') ]; do :; done\n"
        "fi\n"
        f"qemu-system-arm {words} -icount shift=6,sleep=off -daemonize -kernel $elf || exit 1\n"
        f"echo $elf > '{current}'",
    )
    description = described(kind="openocd", config=["x.cfg"])
    transport = description.transport.model_copy(update={"port": f"socket://127.0.0.1:{port}"})
    path = tmp_path / "board.yaml"
    path.write_text(dump_yaml(description.model_copy(update={"transport": transport})))
    yield path, current
    os.kill(int(process_id.read_text()), signal.SIGKILL)


@pytest.mark.emulated
@pytest.mark.slow
def test_a_board_that_holds_a_plan_is_profiled_again(
    programmed: tuple[Path, Path],
    image: FirmwareImage,
    plan: ExecutionPlan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, current = programmed
    assert cli.main(["flash", "--device", str(path)]) == ExitCode.DONE
    assert current.read_text().strip() == str(image.elf)
    with open_board(load_description(str(path)), 0.5, ignore, [plan]) as board:
        board.prepare(ignore)
    assert current.read_text().strip() != str(image.elf)
    words = ["--model", "linear", "--batch", "1", "--slices", "none", "--no-additivity"]
    words += ["--blocks", "1", "--results", str(tmp_path / "results")]
    assert cli.main(["profile", "--device", str(path), *words]) == ExitCode.DONE
    assert current.read_text().strip() == str(image.elf)
    assert "writing the firmware to emulated-m4f: openocd" in capsys.readouterr().err


@pytest.mark.emulated
def test_flashing_an_emulated_board_starts_it_and_keeps_it_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        assert cli.main(["flash", "--device", "emulated-m4f"]) == ExitCode.DONE
        assert [board.state for board in kept_boards()] == ["up"]
    finally:
        take_down(["emulated-m4f"])
    output = capsys.readouterr()
    assert "emulated-m4f runs firmware " in output.out
    assert "lab up --device emulated-m4f" in output.err
