"""Programs side by side: a directory or port that another process uses is refused by its name."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cli
from devices.claims.claim import LOCK, sole_user, sole_writer, user_of
from devices.claims.owner import users_of
from devices.description import DeviceDescription, load_description
from devices.documents.document import dump_yaml
from devices.errors import BoardInUse, BoardUnreachable, InputError, RequestRefused
from networks.models import build_model
from profiler.opening.boards import open_board
from profiler.run.options import ProfileOptions
from profiler.run.run import choose_run_directory, profile_device
from profiler.transports.serial.line import Line
from replay.running.opening import open_replay
from tests.support.boards.claims import used_by_another
from tests.support.boards.measuring import describe, unopened_ppk2
from tests.support.boards.processes import ended_in_any_case
from tests.support.boards.sshd import Sshd
from tests.support.paths import ROOT
from tests.support.progress import ignore

HOLDER = """
import sys
from pathlib import Path
from devices.claims.claim import sole_user
with sole_user(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
PORT_HOLDER = """
import sys
from profiler.transports.serial.line import Line
line = Line(sys.argv[1], 115_200)
line.open()
print("held", flush=True)
sys.stdin.read()
"""
FILE_HOLDER = """
import sys
from pathlib import Path
from devices.claims.claim import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
BOARD_HOLDER = """
import sys
from devices.description import load_description
from profiler.opening.boards import open_board
with open_board(load_description(sys.argv[1]), 0.5, print) as board:
    print("held", flush=True)
    sys.stdin.read()
"""
COUNTER = """
import sys
from pathlib import Path
from devices.claims.claim import sole_user
path = Path(sys.argv[1])
for _ in range(50):
    with sole_user(path, patience_s=60):
        before = int((path / "count").read_text())
        (path / "count").write_text(str(before + 1))
"""


@contextmanager
def holder(program: str, what: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a claim until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", program, what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
            process.communicate(timeout=60)  # a killed one's claim on a board counts for minutes
        finally:
            process.kill()


def refusal(directory: Path) -> str:
    with pytest.raises((InputError, RequestRefused)) as caught, sole_user(directory):
        pass
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_directory_in_use_is_refused_with_who_where_and_since_when(tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    with holder(HOLDER, str(directory)) as other:
        said = refusal(directory)
    host = re.escape(os.uname().nodename)
    assert said.startswith(f"{directory}: another program uses this directory: process {other.pid}")
    assert re.search(rf" on {host} \(-c {directory}\), since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", said)
    assert said.endswith("; wait until it has ended, or choose another directory")


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    with holder(HOLDER, str(tmp_path)) as other:
        other.kill()
        other.wait()
        assert (tmp_path / LOCK).exists()
        with sole_user(tmp_path):
            assert f'"pid": {os.getpid()},' in (tmp_path / LOCK).read_text()
    assert list(tmp_path.iterdir()) == []


def test_the_user_of_a_directory_is_named_without_disturbing_it(tmp_path: Path) -> None:
    assert user_of(tmp_path / "missing") is None
    with holder(HOLDER, str(tmp_path)) as other:
        found = user_of(tmp_path)
        assert found is not None
        assert found.pid == other.pid
    assert user_of(tmp_path) is None  # its lock file may be left
    with sole_user(tmp_path):
        pass


def test_a_directory_is_free_again_after_its_user(tmp_path: Path) -> None:
    for _ in range(2):
        with sole_user(tmp_path / "new"):
            assert "another program uses" in refusal(tmp_path / "new")


def test_a_new_directory_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with sole_user(tmp_path / "new"):
        pass
    assert list(tmp_path.iterdir()) == []
    with sole_user(tmp_path / "new"):
        (tmp_path / "new" / "kept").write_text("")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["kept"]


@pytest.mark.slow
def test_processes_that_wait_take_turns(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNTER, str(tmp_path)]
    with ended_in_any_case(*(subprocess.Popen(command, cwd=ROOT) for _ in range(3))) as others:
        assert [other.wait(timeout=120) for other in others] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "150"


def test_a_record_that_is_not_complete_names_nobody(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    lock.write_text('{"pid": 1')
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert "another program uses this directory: an unknown one" in refusal(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be locked for this program alone" in refusal(Path("/proc/sys/joulewright"))
    assert "this is a file, but a directory is needed here" in refusal(tmp_path / "file")


def test_a_file_system_without_locks_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert "(No locks available); choose a directory" in refusal(tmp_path)
    assert "(No locks available); choose a directory" in refusal(tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_refuse_directories_in_use_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    network = ("--profile", "m4", "--model", "linear")
    assert cli.main(("solve", *network, "--ram-budget", "80%", "--out", "s.json")) == 0
    sweep = ("sweep", *network, "--ram-budgets", "80%", "--out", "here")
    run = ("run", "--schedule", "s.json", "--device", "local", "--out", "here")
    with holder(HOLDER, str(tmp_path / "here")) as other:
        for command in (sweep, run):
            capsys.readouterr()
            assert cli.main(command) == 2
            said = capsys.readouterr().err
            assert f"here: another program uses this directory: process {other.pid} on" in said


def test_a_run_of_the_profiler_in_use_is_refused_before_the_board_is_reached(
    tmp_path: Path,
) -> None:
    local, specs = load_description("local"), build_model("linear").distinct_specs
    options = ProfileOptions()
    chosen = choose_run_directory([tmp_path], local, specs, None, options)
    assert choose_run_directory([tmp_path], local, specs, None, options) == chosen
    with holder(HOLDER, str(chosen)) as other, pytest.raises(RequestRefused) as caught:
        profile_device(local, specs, None, options, chosen)
    assert f"process {other.pid} on " in str(caught.value)


def test_a_file_that_another_program_is_going_to_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "new" / "pi4.yaml"
    with holder(FILE_HOLDER, str(file)) as other:
        with sole_writer(file.with_name("other.yaml")):
            pass
        with pytest.raises(RequestRefused) as caught, sole_writer(file):
            pass
    said = str(caught.value)
    assert said.startswith(f"{file}: another program is going to write this file: process")
    assert f"process {other.pid} on " in said
    assert said.endswith("; wait until it has ended, or choose another file")


def test_a_profile_that_another_program_is_going_to_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_module("replay.costs.measuring")  # which would keep the function that is patched here
    import_module("replay.costs.general")
    monkeypatch.setattr("profiler.run.run.profile_device", pytest.fail)
    out = tmp_path / "x.yaml"
    with holder(FILE_HOLDER, str(out)) as other:
        words = ("profile", "--device", "local", "--model", "linear", "--out", str(out))
        assert cli.main(words) == 2
    assert f"process {other.pid} on " in capsys.readouterr().err


# --- boards ---------------------------------------------------------------------------------------


def board(path: Path, transport: dict[str, Any]) -> str:
    """Write the description of a Linux board; returns its path."""
    path.write_text(dump_yaml(describe(name=path.stem, transport=transport)))
    return str(path)


def assert_in_use(name: str, other: subprocess.Popen[str]) -> None:
    with pytest.raises(BoardInUse) as caught, open_board(load_description(name), 0.5, ignore):
        pass
    said = str(caught.value)
    assert said.startswith(
        f"{Path(name).stem}: another program uses this board: process {other.pid} on "
    )
    assert said.endswith("; wait until it has ended, or end it")


def test_this_computer_as_a_board_is_used_by_one_program_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = board(tmp_path / "bench.yaml", {"kind": "local"})
    profile = ("profile", "--device", bench, "--model", "linear", "--results", str(tmp_path))
    with holder(BOARD_HOLDER, bench) as other:
        assert_in_use("local", other)
        assert cli.main(profile) == 3
        assert f"process {other.pid} on " in capsys.readouterr().err
        with open_board(load_description(bench), 0.5, ignore, alone=False):
            pass
        other.kill()
        other.wait()
        with open_board(load_description(bench), 0.5, ignore):
            pass


@pytest.mark.slow
@pytest.mark.usefixtures("own_client")
def test_a_board_is_the_same_by_whatever_name_and_user_it_is_reached(
    tmp_path: Path, sshd: Sshd
) -> None:
    stated = sshd.description().model_dump(mode="json", exclude_none=True)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(sshd.config("board"))
    bench = board(tmp_path / "bench.yaml", stated)
    alias = board(tmp_path / "alias.yaml", {"kind": "ssh", "host": "board", "user": "somebody"})
    with holder(BOARD_HOLDER, bench) as other:
        assert_in_use(bench, other)
        assert_in_use(alias, other)
        with open_board(load_description("local"), 0.5, ignore):
            pass


def profile(description: DeviceDescription, directory: Path) -> None:
    profile_device(description, [], None, ProfileOptions(), directory)


def replay(description: DeviceDescription, _directory: Path) -> None:
    with open_replay(description, [], lambda _sizes: [], ignore):
        pass


@pytest.mark.parametrize("use", [profile, replay])
@pytest.mark.parametrize("name", ["local", "nrf52840-dk"])
def test_the_meter_of_a_board_in_use_is_left_alone(
    name: str, use: Callable[[DeviceDescription, Path], None], tmp_path: Path
) -> None:
    # Opening the meter is another error.
    description = load_description(name).model_copy(update={"meter": unopened_ppk2()})
    with used_by_another(description), pytest.raises(BoardInUse):
        use(description, tmp_path)


# --- ports ----------------------------------------------------------------------------------------


@contextmanager
def terminal() -> Iterator[str]:
    """Name of a pseudo-terminal, which stands for a serial port."""
    near, far = pty.openpty()
    name = os.ttyname(far)
    os.close(far)
    try:
        yield name
    finally:
        os.close(near)


@contextmanager
def listener() -> Iterator[str]:
    """URL of a socket that accepts connections, which stands for an emulated board."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"socket://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("port_of", [terminal, listener])
def test_a_port_in_use_is_refused_with_the_process_that_uses_it(
    port_of: Callable[[], AbstractContextManager[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ExitStack() as stack:
        port = stack.enter_context(port_of())
        other = stack.enter_context(holder(PORT_HOLDER, port))
        with pytest.raises(BoardUnreachable) as caught:
            Line(port, 115_200).open()
    said = str(caught.value)
    assert said.startswith(f"{port}: another program uses this port: process {other.pid} on ")
    assert "), since 20" in said
    assert said.endswith(". Wait until it has ended, or end it")
    assert caught.value.exit_code == 3


def test_users_of_a_device_node_are_found_by_their_open_files() -> None:
    with terminal() as port, holder(PORT_HOLDER, port) as other:
        (found,) = users_of(Path(port))
        assert found.pid == other.pid
        assert "import Line" in found.command
    assert users_of(Path("/dev/no-such-node")) == []
