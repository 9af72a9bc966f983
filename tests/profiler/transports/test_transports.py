"""Transports: one contract on this computer and over a real SSH server, and their failures."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import paramiko
import pytest
from paramiko.auth_strategy import InMemoryPrivateKey

from devices.claims.owner import Owner
from devices.description import SshTransport as SshDescription
from devices.errors import BoardCommandFailed, BoardInUse, BoardUnreachable, SetupMissing
from profiler.transports import open_transport, scripts
from profiler.transports.base import DetachedCommand, Transport
from profiler.transports.client import ClientLock, forget, is_dead
from profiler.transports.link import ConnectionLostError
from profiler.transports.local import LocalTransport
from profiler.transports.scripts import LEASE_MINUTES
from profiler.transports.shell import OUTPUT_LIMIT_BYTES
from profiler.transports.ssh import SshTransport
from tests.support.boards.measuring import describe, unopened_ppk2
from tests.support.boards.processes import ended_in_any_case, eventually
from tests.support.boards.sshd import Network, Sshd, left_by_sessions, make_key, running_sshd
from tests.support.failures import sentence_of
from tests.support.paths import ROOT

AWKWARD = [
    "two words",
    'it\'s "quoted"',
    "a;b&&c|d>e",
    "$(touch pwned)`touch pwned`$HOME",
    "line\nbreak",
    "größe-µ-日本",
    "-rf",
    "--",
    "*?[a]~!#%",
    "back\\slash",
    " ",
]


pytestmark = pytest.mark.usefixtures("own_client")


class ReachedBoard:
    """A board, reached locally or by SSH: opens transports and lists the files that they leave."""

    def __init__(self, sessions: Path, description: SshDescription | None) -> None:
        self._sessions = sessions
        self._description = description
        self._others: list[subprocess.Popen[str]] = []

    def transport(self) -> Transport:
        return LocalTransport() if self._description is None else SshTransport(self._description)

    def leftovers(self) -> list[str]:
        return left_by_sessions(self._sessions)

    def in_another_process(self, body: str) -> subprocess.Popen[str]:
        """Run Python code in another process, with an open ``transport`` to the board."""
        if self._description is None:
            opening = "from profiler.transports.local import LocalTransport as T; transport = T()"
        else:
            opening = (
                "from profiler.transports.ssh import SshTransport as T;"
                "from devices.description import SshTransport as D;"
                f"transport = T(D.model_validate_json({self._description.model_dump_json()!r}))"
            )
        code = f"{opening}\nwith transport:\n    {body}\n"
        other = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._others.append(other)
        return other

    def end_others(self) -> None:
        """Kill the other processes that still run, as they do after a failed test."""
        with ended_in_any_case(*self._others):
            self._others = []


@pytest.fixture(params=["local", "ssh"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReachedBoard]:
    if request.param == "local":
        board = ReachedBoard(tmp_path / "cache" / "joulewright", None)
    else:
        server: Sshd = request.getfixturevalue("sshd")
        board = ReachedBoard(server.board, server.description())
    yield board
    board.end_others()
    assert board.leftovers() == []


@pytest.fixture
def transport(board: ReachedBoard) -> Iterator[Transport]:
    with board.transport() as transport:
        yield transport


class Marked:
    """A command that can be found among all processes, since it sleeps for a unique time."""

    def __init__(self) -> None:
        self.seconds = f"3600.{secrets.randbelow(10**12):012}"
        self.command = ["sleep", self.seconds]

    def begun(self) -> bool:
        """Whether the command itself runs, and not only a process that is about to become it: the
        command line of a process reads as empty while it changes programs."""
        return any(words == [*self.command, ""] for words in _command_lines())

    def runs(self) -> bool:
        """Whether any process was told of the command: itself, its supervisor or its timer."""
        return any(self.seconds in words for words in _command_lines())


def _command_lines() -> Iterator[list[str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().decode(errors="replace").split("\0")


def finish(command: DetachedCommand, within_s: float = 60.0) -> int | None:
    eventually(lambda: command.poll(timeout_s=5).exit_code is not None, within_s)
    return command.poll(timeout_s=5).exit_code


# --- claims -----------------------------------------------------------------------------------


def somebody(pid: int, host: str = "elsewhere") -> Owner:
    return Owner(pid=pid, host=host, command="joulewright run", since="noon")


@pytest.fixture
def other_board(board: ReachedBoard) -> Iterator[Transport]:
    """A second way to the same board."""
    with board.transport() as transport:
        yield transport


def test_a_board_is_claimed_by_one_process_of_any_computer(
    transport: Transport, other_board: Transport
) -> None:
    transport.claim(somebody(7))
    for owner in (somebody(8), somebody(7, "here")):
        with pytest.raises(BoardInUse) as caught:
            other_board.claim(owner)
        assert str(caught.value) == (
            f"{transport.name}: another program uses this board: process 7 on elsewhere"
            " (joulewright run), since noon; wait until it has ended, or end it; if it was lost,"
            " the board is free again 10 minutes later, when what it runs there has ended"
        )
    transport.close()
    other_board.claim(somebody(8))


def test_a_process_may_claim_a_board_twice(transport: Transport, other_board: Transport) -> None:
    for _ in range(2):
        transport.claim(somebody(7))
        other_board.claim(somebody(7))


def age_claims(transport: Transport, minutes: int) -> None:
    """Let all claims be as if their owners had been silent for so long."""
    in_claims(transport, f'touch -d "{minutes} minutes ago" *')


def in_claims(transport: Transport, script: str) -> str:
    """Run a script in the directory of the claims, and return its output."""
    words = ["sh", "-c", f'cd "${{TMPDIR:-/tmp}}"/joulewright-boards && {script}']
    return transport.run(words, timeout_s=10).stdout


def test_a_claim_expires_when_its_owner_is_silent(
    transport: Transport, other_board: Transport
) -> None:
    transport.claim(somebody(7))
    age_claims(transport, LEASE_MINUTES - 1)
    with pytest.raises(BoardInUse):
        other_board.claim(somebody(8))
    age_claims(transport, LEASE_MINUTES + 1)
    other_board.claim(somebody(8))


def test_a_claim_that_has_expired_is_not_renewed_by_calls(
    transport: Transport, other_board: Transport
) -> None:
    """Another session may have claimed the board since."""
    transport.claim(somebody(7))
    age_claims(transport, LEASE_MINUTES + 1)
    other_board.claim(somebody(8))
    transport.run(["true"], timeout_s=10)
    assert in_claims(other_board, f"find . -type f -mmin +{LEASE_MINUTES}") != ""
    with pytest.raises(BoardInUse, match="process 8 on elsewhere"):
        transport.claim(somebody(7))
    other_board.close()
    transport.claim(somebody(7))


def test_a_claim_that_counts_stands_whoever_tries_to_claim_the_board(transport: Transport) -> None:
    """The claim of another session exists for a moment, until it sees this one."""
    transport.claim(somebody(7))
    other = secrets.token_hex(8)
    in_claims(transport, f"printf '8 elsewhere\\nprocess 8\\n/\\n' >{other}")
    try:
        transport.claim(somebody(7))
        # An attempt that a lost connection has ended may not have seen the other one.
        in_claims(transport, 'for claim in *; do sed -i /held/d "$claim"; done')
        with pytest.raises(BoardInUse, match="process 8"):
            transport.claim(somebody(7))
    finally:
        in_claims(transport, f"rm {other}")


def test_a_claim_does_not_expire_while_a_program_of_its_owner_runs(
    transport: Transport, other_board: Transport
) -> None:
    transport.claim(somebody(7))
    left = Marked()
    command = transport.start(left.command, timeout_s=10)
    age_claims(other_board, 60)
    with pytest.raises(BoardInUse, match="process 7 on elsewhere"):
        other_board.claim(somebody(8))
    assert command.poll(timeout_s=10).exit_code is None  # renews the claim
    command.stop(timeout_s=10)
    with pytest.raises(BoardInUse, match="process 7 on elsewhere"):
        other_board.claim(somebody(8))
    age_claims(other_board, 60)
    other_board.claim(somebody(8))


def test_every_call_renews_a_claim(transport: Transport, other_board: Transport) -> None:
    transport.claim(somebody(7))
    age_claims(other_board, LEASE_MINUTES - 1)
    assert in_claims(other_board, "find . -type f -mmin -1") == ""
    transport.run(["true"], timeout_s=10)
    assert in_claims(other_board, "find . -type f -mmin -1") != ""


@pytest.mark.slow
def test_a_claim_of_a_killed_process_of_this_computer_is_removed(board: ReachedBoard) -> None:
    owner = "Owner(pid=7, host='here', command='x', since='noon')"
    body = f"from devices.claims.owner import Owner; transport.claim({owner})\n    input()"
    other = board.in_another_process(body)
    with board.transport() as transport:
        claims = ["sh", "-c", 'ls "${TMPDIR:-/tmp}"/joulewright-boards 2>/dev/null']
        assert eventually(lambda: transport.run(claims, timeout_s=10, check=False).stdout != "")
    other.kill()
    other.communicate()
    with board.transport() as transport:
        transport.claim(somebody(8))


def test_a_claim_ends_with_its_session(transport: Transport, other_board: Transport) -> None:
    """Whoever removes what a killed process left may not see its claim, which is below TMPDIR."""
    transport.claim(somebody(7))
    assert isinstance(transport, LocalTransport | SshTransport)
    other_board.run(["rm", "-r", transport.directory], timeout_s=10)
    other_board.claim(somebody(8))


# --- commands ---------------------------------------------------------------------------------


def test_a_command_gives_its_exit_code_and_both_streams(transport: Transport) -> None:
    script = "echo out; echo err >&2; exit 7"
    result = transport.run(["sh", "-c", script], timeout_s=10, check=False)
    assert (result.exit_code, result.stdout, result.stderr) == (7, "out\n", "err\n")


def test_the_error_quotes_a_command_that_fails(transport: Transport) -> None:
    with pytest.raises(BoardCommandFailed, match=r"exited with 3: no such register$"):
        transport.run(["sh", "-c", "echo no such register >&2; exit 3"], timeout_s=10)


def test_a_missing_command_has_exit_code_127(transport: Transport) -> None:
    assert transport.run(["no-such-program"], timeout_s=10, check=False).exit_code == 127


def test_shell_builtins_are_not_commands(transport: Transport) -> None:
    assert transport.run(["exit", "0"], timeout_s=10, check=False).exit_code == 127


def test_words_reach_a_command_unharmed(transport: Transport) -> None:
    result = transport.run(["printf", "<%s>", *AWKWARD], timeout_s=10)
    assert result.stdout == "".join(f"<{word}>" for word in AWKWARD)


def test_environment_reaches_a_command_unharmed(transport: Transport) -> None:
    given = {f"X{number}": value for number, value in enumerate(AWKWARD)}
    result = transport.run(["env", "-0"], timeout_s=10, environment=given)
    seen = dict(entry.split("=", 1) for entry in result.stdout.rstrip("\0").split("\0"))
    assert {name: seen[name] for name in given} == given


def test_commands_run_in_the_private_directory(transport: Transport) -> None:
    assert transport.run(["pwd"], timeout_s=10).stdout == f"{transport.directory}\n"
    mode = transport.run(["stat", "-c", "%a", transport.directory], timeout_s=10)
    assert mode.stdout == "700\n"


def test_output_that_is_not_text_is_replaced(transport: Transport) -> None:
    assert transport.run(["printf", r"a\377b"], timeout_s=10).stdout == "a\ufffdb"


def test_a_command_that_prints_endlessly_is_ended(transport: Transport) -> None:
    marked = Marked()
    script = f"sleep {marked.seconds} & cat /dev/zero"
    with pytest.raises(BoardCommandFailed, match=f"more than {OUTPUT_LIMIT_BYTES} bytes"):
        transport.run(["sh", "-c", script], timeout_s=30)
    assert eventually(lambda: not marked.runs())


def test_a_command_that_hangs_is_ended_with_its_children(transport: Transport) -> None:
    marked = Marked()
    script = f"trap '' TERM; sleep {marked.seconds} & sleep {marked.seconds}"
    began = time.monotonic()
    with pytest.raises(BoardCommandFailed, match=r"did not finish within 0\.3 s and was ended"):
        transport.run(["sh", "-c", script], timeout_s=0.3)
    assert time.monotonic() - began < 60.0
    assert eventually(lambda: not marked.runs())


def test_children_that_outlive_their_command_are_ended(transport: Transport) -> None:
    marked = Marked()
    script = f"sleep {marked.seconds} >/dev/null 2>&1 &"
    assert transport.run(["sh", "-c", script], timeout_s=10).exit_code == 0
    assert eventually(lambda: not marked.runs())


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_a_file_is_unchanged_after_put_and_get(
    transport: Transport, tmp_path: Path, size: int
) -> None:
    content = secrets.token_bytes(size)
    (tmp_path / "there").write_bytes(content)
    transport.put(tmp_path / "there", "file", timeout_s=10)
    transport.get("file", tmp_path / "back", timeout_s=10)
    assert (tmp_path / "back").read_bytes() == content


def test_files_may_have_any_name(transport: Transport, tmp_path: Path) -> None:
    for name in AWKWARD:
        (tmp_path / "there").write_text(name)
        transport.put(tmp_path / "there", name, timeout_s=10)
        transport.get(name, tmp_path / "back", timeout_s=10)
        assert (tmp_path / "back").read_text() == name
    listed = transport.run(["find", ".", "-type", "f", "-name", "pwned"], timeout_s=10)
    assert listed.stdout == ""


def test_a_program_that_was_copied_to_the_board_runs(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\necho it runs\n")
    transport.put(tmp_path / "program", "program", timeout_s=10, executable=True)
    assert transport.run(["./program"], timeout_s=10).stdout == "it runs\n"


def test_putting_a_file_again_replaces_it(transport: Transport, tmp_path: Path) -> None:
    for content in ("first, and longer", "second"):
        (tmp_path / "there").write_text(content)
        transport.put(tmp_path / "there", "file", timeout_s=10)
    assert transport.run(["cat", "file"], timeout_s=10).stdout == "second"


@pytest.mark.parametrize("remote", ["no/such/directory", "directory"])
def test_a_failed_put_leaves_no_partial_file(
    transport: Transport, tmp_path: Path, remote: str
) -> None:
    transport.run(["mkdir", "directory"], timeout_s=10)
    (tmp_path / "there").write_text("x")
    with pytest.raises(BoardCommandFailed, match=rf"cannot put '{remote}' \(1 bytes\)"):
        transport.put(tmp_path / "there", remote, timeout_s=10)
    assert transport.run(["find", ".", "-name", "*.part"], timeout_s=10).stdout == ""


def test_a_failed_get_leaves_the_local_file_unchanged(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "back").write_text("before")
    with pytest.raises(BoardCommandFailed, match=r"cannot get 'missing'.*: No such file"):
        transport.get("missing", tmp_path / "back", timeout_s=10)
    assert (tmp_path / "back").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) in (["back"], ["back", "cache"])


def test_a_full_disk_of_this_computer_names_the_file_that_was_fetched(
    transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    transport.run(["sh", "-c", "echo content >file"], timeout_s=10)
    local = tmp_path / "here"
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{local}'"):
        transport.get("file", local, timeout_s=10)


# --- detached commands ------------------------------------------------------------------------


def test_a_detached_command_runs_to_its_end_by_itself(transport: Transport) -> None:
    script = 'echo "$X"; read go <fifo; echo err >&2; exit 5'
    transport.run(["mkfifo", "fifo"], timeout_s=10)
    command = transport.start(["sh", "-c", script], timeout_s=10, environment={"X": "a b"})
    assert command.poll(timeout_s=10).exit_code is None
    assert eventually(lambda: command.output(timeout_s=10) == ("a b\n", ""))
    transport.run(["sh", "-c", "echo go >fifo"], timeout_s=10)
    assert finish(command) == 5
    assert command.output(timeout_s=10) == ("a b\n", "err\n")


def test_a_detached_command_is_stopped_with_its_children(transport: Transport) -> None:
    marked = Marked()
    script = f"sleep {marked.seconds} & sleep {marked.seconds}"
    command = transport.start(["sh", "-c", script], timeout_s=10)
    assert eventually(marked.begun)
    for _again in range(2):
        command.stop(timeout_s=10)
        assert eventually(lambda: not marked.runs())
        assert command.poll(timeout_s=10).exit_code == 128 + signal.SIGTERM


def test_a_detached_command_that_will_not_stop_is_killed() -> None:
    marked = Marked()
    with LocalTransport() as transport:
        script = f"trap '' TERM; sleep {marked.seconds}"
        command = transport.start(["sh", "-c", script], timeout_s=10)
        assert eventually(marked.begun)
        command.stop(timeout_s=10)
        assert eventually(lambda: not marked.runs())
        assert command.poll(timeout_s=10).exit_code == 128 + signal.SIGKILL


def test_a_killed_command_has_no_lock_any_more_once_it_is_stopped(tmp_path: Path) -> None:
    """To free so much memory takes the kernel longer than a shell takes to go on."""
    lock = tmp_path / "lock"
    lock.touch()
    script = (
        "import fcntl, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "memory = bytearray(b'1') * (1 << 29); lock = open(sys.argv[1], 'r+');"
        "fcntl.flock(lock, fcntl.LOCK_EX); lock.write('held'); lock.flush(); time.sleep(3600)"
    )
    with LocalTransport() as transport, lock.open() as again:
        command = transport.start([sys.executable, "-c", script, str(lock)], timeout_s=60)
        assert eventually(lambda: lock.read_text() == "held")
        command.stop(timeout_s=60)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_detached_command_that_was_killed_from_outside_is_reported(transport: Transport) -> None:
    command = transport.start(Marked().command, timeout_s=10)
    kill = "kill -KILL -$(ls .joulewright | grep '^job.*running$' | cut -d. -f2)"
    transport.run(["sh", "-c", kill], timeout_s=10)
    with pytest.raises(BoardCommandFailed, match=r"sleep 3600.*ended without an exit code"):
        eventually(lambda: command.poll(timeout_s=10).exit_code is not None)


def test_a_detached_command_may_print_more_than_can_be_collected(transport: Transport) -> None:
    script = f"head -c {OUTPUT_LIMIT_BYTES + 1} /dev/zero"
    command = transport.start(["sh", "-c", script], timeout_s=10)
    assert finish(command) == 0
    with pytest.raises(BoardCommandFailed, match="let the command write to a file"):
        command.output(timeout_s=10)


def test_a_vanished_private_directory_is_an_error(transport: Transport) -> None:
    gone = pytest.raises(BoardCommandFailed, match="working directory no longer exists")
    with gone:
        transport.run(["rm", "-rf", transport.directory], timeout_s=10)
    with gone:
        transport.run(["true"], timeout_s=10)
    with gone:
        transport.start(["true"], timeout_s=10)


# --- clean-up ---------------------------------------------------------------------------------


def test_closing_ends_running_commands_and_removes_all_files(board: ReachedBoard) -> None:
    marked = Marked()
    transport = board.transport()
    transport.connect()
    transport.start(marked.command, timeout_s=10)
    assert eventually(marked.begun)
    assert len(board.leftovers()) == 1
    transport.close()
    assert not marked.runs()
    assert board.leftovers() == []
    transport.close()


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_no_processes_and_no_files(
    board: ReachedBoard, failure: type[BaseException]
) -> None:
    marked = Marked()

    def fail() -> None:
        with board.transport() as transport:
            transport.start(marked.command, timeout_s=10)
            raise failure

    with pytest.raises(failure):
        fail()
    assert not marked.runs()
    assert board.leftovers() == []


@pytest.mark.slow
def test_ctrl_c_in_a_command_leaves_no_processes_and_no_files(board: ReachedBoard) -> None:
    marked = Marked()
    client = board.in_another_process(f"transport.run({marked.command}, timeout_s=100)")
    assert eventually(marked.begun)
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=60)
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert not marked.runs()
    assert board.leftovers() == []


@pytest.mark.slow
def test_the_next_session_cleans_up_after_a_killed_one_and_spares_a_live_one(
    board: ReachedBoard,
) -> None:
    lost, kept = Marked(), Marked()
    with board.transport() as live:
        live.start(kept.command, timeout_s=100)
        body = f"transport.start({lost.command}, timeout_s=100); transport.run({lost.command},"
        client = board.in_another_process(f"{body} timeout_s=100)")
        assert eventually(lambda: len(board.leftovers()) == 2 and lost.begun())
        client.kill()
        client.communicate(timeout=60)
        assert lost.runs()
        with board.transport():
            assert not lost.runs()
            assert kept.runs()
            assert len(board.leftovers()) == 2
        assert live.run(["echo", "alive"], timeout_s=10).stdout == "alive\n"
    assert not kept.runs()


def test_a_session_of_another_computer_is_left_alone_until_it_is_old(
    transport: Transport, board: ReachedBoard
) -> None:
    sessions = {"1 hour ago": f"session.{'a' * 32}", "8 days ago": f"session.{'b' * 32}"}
    for age, name in sessions.items():
        make = 'mkdir -p "../$0/.joulewright" && touch -d "$1" "../$0/.joulewright/seen"'
        transport.run(["sh", "-c", make, name, age], timeout_s=10)
    with board.transport():
        assert sessions["1 hour ago"] in board.leftovers()
        assert sessions["8 days ago"] not in board.leftovers()
    transport.run(["rm", "-r", f"../{sessions['1 hour ago']}"], timeout_s=10)


# --- failures of connecting -------------------------------------------------------------------


def refused(description: SshDescription) -> str:
    """Message of the error that reports the board as unreachable."""
    return sentence_of(BoardUnreachable, SshTransport(description).connect)


def fingerprint(key: Path) -> str:
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[1]


def test_an_unknown_host_key_is_refused_and_the_suggested_command_accepts_it(
    sshd: Sshd, tmp_path: Path
) -> None:
    description = sshd.description(known_hosts=tmp_path / "known hosts")
    message = refused(description)
    assert fingerprint(sshd.host_key) in message
    command = message.partition("accept it with: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    with SshTransport(description) as transport:
        assert transport.run(["echo", "hello"], timeout_s=10).stdout == "hello\n"


def test_a_changed_host_key_is_refused_with_a_warning(sshd: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other.with_suffix('.pub').read_text()}")
    message = refused(sshd.description(known_hosts=known_hosts))
    assert "THE HOST KEY HAS CHANGED" in message
    assert fingerprint(sshd.host_key) in message
    assert fingerprint(other) in message
    command = message.partition("remove the old key with: ")[2]
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert "is not in" in refused(sshd.description(known_hosts=known_hosts))


def test_lines_of_known_hosts_that_ssh_skips_are_skipped(sshd: Sshd, tmp_path: Path) -> None:
    name = f"[127.0.0.1]:{sshd.port}"
    kind, key = sshd.host_key.with_suffix(".pub").read_text().split()[:2]
    skipped = [
        f"@cert-authority {name} {kind} {key}",
        f"@cert-authority * {kind} {key}",
        f"{name} {kind} {key[:-5]}",
        f"{name} {kind} {key[:-4]}",
        f"|1|damaged|hash {kind} {key}",
        "127.0.0.1 1024 35 1234",
        "# Größe",
    ]
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("\n".join(skipped), encoding="latin-1")
    description = sshd.description(known_hosts=known_hosts)
    assert "is not in" in refused(description)
    known_hosts.write_text("\n".join([*skipped, f"{name} {kind} {key}"]), encoding="latin-1")
    with SshTransport(description) as transport:
        assert transport.run(["echo", "hello"], timeout_s=10).stdout == "hello\n"


@pytest.mark.parametrize("also", ["nothing", "the same key", "another key"])
def test_a_host_key_that_is_marked_as_revoked_is_refused(
    sshd: Sshd, tmp_path: Path, also: str
) -> None:
    name = f"[127.0.0.1]:{sshd.port}"
    key = sshd.host_key.with_suffix(".pub").read_text()
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    accepted = {
        "nothing": "",
        "the same key": f"{name} {key}",
        "another key": f"{name} {other}",
    }
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(f"{accepted[also]}@revoked * {key}")
    assert refused(sshd.description(known_hosts=known_hosts)) == (
        f"{sshd.user}@127.0.0.1:{sshd.port}: its host key (ssh-ed25519"
        f" {fingerprint(sshd.host_key)}) is marked as revoked in {known_hosts};"
        " give the host a new key; remove the mark only if it is a mistake"
    )


def test_a_jump_host_whose_key_is_marked_as_revoked_is_refused(
    sshd: Sshd, jump_sshd: Sshd, tmp_path: Path
) -> None:
    known_hosts = tmp_path / "known_hosts"
    revoked = f"@revoked * {jump_sshd.host_key.with_suffix('.pub').read_text()}"
    both = sshd.known_hosts.read_text() + jump_sshd.known_hosts.read_text()
    known_hosts.write_text(both + revoked)
    jump = {"host": "127.0.0.1", "user": jump_sshd.user, "port": jump_sshd.port}
    message = refused(sshd.description(known_hosts=known_hosts, jump=jump))
    assert message.startswith(f"{jump_sshd.user}@127.0.0.1:{jump_sshd.port}: its host key")
    assert f"is marked as revoked in {known_hosts}" in message


def test_a_key_that_the_board_does_not_know_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    message = refused(sshd.description(key=key))
    assert f"SSH login of {sshd.user} with the key {key}" in message


def test_a_missing_or_invalid_key_file_is_an_error(sshd: Sshd, tmp_path: Path) -> None:
    assert "No such file" in refused(sshd.description(key=tmp_path / "missing"))
    assert "is not a private key" in refused(sshd.description(key=sshd.known_hosts))


def test_without_a_key_the_error_suggests_ssh_add(sshd: Sshd) -> None:
    assert "load one with ssh-add" in refused(sshd.description(key=None))


def test_an_encrypted_key_needs_an_agent_or_its_passphrase(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_bytes(sshd.key.read_bytes())
    key.chmod(0o600)
    change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(key)]
    subprocess.run(change, check=True, capture_output=True)
    description = sshd.description(key=key)
    assert f"ssh-add {key}" in refused(description)

    monkeypatch.setenv("JOULEWRIGHT_SSH_PASSWORD", "wrong")
    message = refused(description)
    assert "JOULEWRIGHT_SSH_PASSWORD is not its passphrase" in message
    assert "wrong" not in message.replace("is not its", "")
    monkeypatch.setenv("JOULEWRIGHT_SSH_PASSWORD", "open sesame")
    with SshTransport(description) as transport:
        transport.run(["true"], timeout_s=10)
    monkeypatch.delenv("JOULEWRIGHT_SSH_PASSWORD")

    agent_socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(agent_socket)], stdout=-3) as agent:
        try:
            assert eventually(agent_socket.exists)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(agent_socket))
            subprocess.run(["ssh-add", "-q", str(sshd.key)], check=True, capture_output=True)
            with SshTransport(description) as transport:
                transport.run(["true"], timeout_s=10)
        finally:
            agent.terminate()


def test_a_closed_port_is_an_error_at_once(sshd: Sshd) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        began = time.monotonic()
        assert f"nothing listens on port {port}" in refused(sshd.description(port=port))
        assert time.monotonic() - began < 9.0


@pytest.mark.parametrize("mode", ["source", "ampere"])
def test_a_board_has_time_to_start_if_its_meter_feeds_it(
    sshd: Sshd, mode: Literal["source", "ampere"]
) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        reached = sshd.description(port=unheard.getsockname()[1], deadline_s=0.5)
        transport = reached.model_dump(mode="json", exclude_none=True)
        description = describe(transport=transport, meter=unopened_ppk2(mode).model_dump())
        said = sentence_of(BoardUnreachable, open_transport(description).connect)
    assert "nothing listens on port" in said
    assert ("tried again for 0.5 s" in said) == (mode == "source")


def test_a_name_that_does_not_resolve_is_an_error(sshd: Sshd) -> None:
    # Without a network, the resolver says that it may know the name later.
    description = sshd.description(host="no-such-board.invalid", deadline_s=0.5)
    assert "does not resolve" in refused(description)


def test_a_host_described_with_user_or_port_is_refused(sshd: Sshd) -> None:
    for host in ("pi@pi4", "pi4:22", "-oProxyCommand=x"):
        with pytest.raises(ValueError, match="put the user under 'user'"):
            sshd.description(host=host)


def test_a_silent_host_is_an_error_at_the_deadline(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        description = sshd.description(
            port=silent.getsockname()[1], connect_timeout_s=0.5, deadline_s=1.5
        )
        began = time.monotonic()
        assert "tried again for 1.5 s" in refused(description)
        assert 0.4 < time.monotonic() - began < 9.0


def test_a_failed_connection_logs_nothing(sshd: Sshd) -> None:
    """Output of paramiko's log is checked in another process, since pytest takes over logging."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        description = sshd.description(
            port=silent.getsockname()[1], connect_timeout_s=0.2, deadline_s=0.3
        )
        board = ReachedBoard(sshd.board, description)
        client = board.in_another_process("pass")
        try:
            _, errors = client.communicate(timeout=120)
        finally:
            board.end_others()
    assert "BoardUnreachable" in errors.splitlines()[-1]
    assert "Exception (client)" not in errors


def test_a_board_is_reached_through_a_described_jump_host(sshd: Sshd) -> None:
    jump = {"host": "127.0.0.1", "user": sshd.user, "port": sshd.port}
    with SshTransport(sshd.description(jump=jump)) as transport:
        assert transport.run(["echo", "hello"], timeout_s=10).stdout == "hello\n"


def test_a_board_that_its_jump_host_cannot_reach_is_an_error(sshd: Sshd) -> None:
    jump = {"host": "127.0.0.1", "user": sshd.user, "port": sshd.port}
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        message = refused(sshd.description(jump=jump, port=port))
    assert message.startswith(f"{sshd.user}@127.0.0.1:{port}: its jump host cannot reach it")


def test_a_silent_board_beyond_a_jump_host_is_an_error_at_the_deadline(sshd: Sshd) -> None:
    jump = {"host": "127.0.0.1", "user": sshd.user, "port": sshd.port}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        refused(sshd.description(jump=jump, port=port, connect_timeout_s=0.5, deadline_s=1.0))
        assert time.monotonic() - began < 9.0


# --- login shells -----------------------------------------------------------------------------


def test_what_the_login_shell_prints_is_not_output_of_commands(tmp_path: Path) -> None:
    """The forced command stands for a shell whose start-up files greet."""
    greeting = "echo Welcome to pi4; echo no display >&2"
    forced = f'ForceCommand {greeting}; eval "$SSH_ORIGINAL_COMMAND"\n'
    (tmp_path / "there").write_bytes(bytes(range(256)))
    with (
        running_sshd(settings=forced) as server,
        SshTransport(server.description()) as transport,
    ):
        assert transport.directory.startswith(f"{server.board}/session.")
        transport.put(tmp_path / "there", "file", timeout_s=10)
        transport.get("file", tmp_path / "back", timeout_s=10)
        done = transport.run(
            ["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10, check=False
        )
        command = transport.start(["sh", "-c", "echo out; echo err >&2"], timeout_s=10)
        assert finish(command) == 0
        assert command.output(timeout_s=10) == ("out\n", "err\n")
    assert (tmp_path / "back").read_bytes() == bytes(range(256))
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_login_shell_gets_one_line_without_characters_of_its_own() -> None:
    """The forced command stands for csh, which reads single-quoted lines and ``!`` otherwise."""
    forced = (
        "ForceCommand case $SSH_ORIGINAL_COMMAND in *!*) exit 1;; esac;"
        ' [ "$(printf %s "$SSH_ORIGINAL_COMMAND" | wc -l)" -eq 0 ] || exit 1;'
        ' eval "$SSH_ORIGINAL_COMMAND"\n'
    )
    with (
        running_sshd(settings=forced) as server,
        SshTransport(server.description()) as transport,
    ):
        assert transport.run(["printf", "%s.", *AWKWARD], timeout_s=10).stdout == (
            "".join(f"{word}." for word in AWKWARD)
        )


def test_a_login_shell_that_runs_no_commands_is_an_error() -> None:
    for exit_code in (0, 1):
        forced = f"ForceCommand echo This account is not available.; exit {exit_code}\n"
        with running_sshd(settings=forced) as server:
            message = sentence_of(SetupMissing, SshTransport(server.description()).connect)
        assert message == (
            f"{server.user}@127.0.0.1:{server.port}: the login shell of {server.user} ended with"
            f" exit code {exit_code} and ran no command: This account is not available.;"
            " correct its start-up files, or give the user another login shell"
        )


# --- failures while connected -----------------------------------------------------------------


@contextlib.contextmanager
def impatient(transport: SshTransport, deadline_s: float) -> Iterator[None]:
    """Wait meanwhile only so long for a lost connection: a busy computer needs longer to log in."""
    link = transport._shell._link
    usual = link._reached  # type: ignore[attr-defined]
    link._reached = usual.model_copy(update={"deadline_s": deadline_s})  # type: ignore[attr-defined]
    yield
    link._reached = usual  # type: ignore[attr-defined]


def test_a_login_that_is_not_answered_in_time_is_tried_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = []
    authenticate = InMemoryPrivateKey.authenticate

    def unanswered_at_first(key: InMemoryPrivateKey, client: paramiko.Transport) -> list[str]:
        logins.append(key)
        if len(logins) == 1:
            network.swallow()
        return authenticate(key, client)

    monkeypatch.setattr(InMemoryPrivateKey, "authenticate", unanswered_at_first)
    patient = network.description(connect_timeout_s=2.0, deadline_s=120.0)
    with SshTransport(patient) as transport:
        assert transport.run(["echo", "hello"], timeout_s=60).stdout == "hello\n"
    assert len(logins) > 1


def test_a_detached_command_survives_a_lost_connection(network: Network) -> None:
    with SshTransport(network.description()) as transport:
        transport.run(["mkfifo", "fifo"], timeout_s=10)
        command = transport.start(
            ["sh", "-c", "echo before; read go <fifo; echo after; exit 5"], timeout_s=10
        )
        network.cut()
        threading.Timer(0.5, network.restore).start()
        assert command.poll(timeout_s=5).exit_code is None
        transport.run(["sh", "-c", "echo go >fifo"], timeout_s=10)
        assert finish(command) == 5
        assert command.output(timeout_s=10) == ("before\nafter\n", "")


def test_a_connection_that_stays_lost_is_an_error_at_the_deadline(
    network: Network, sshd: Sshd
) -> None:
    lost = pytest.raises(BoardUnreachable, match="tried again for 1 s; check that the board")
    with SshTransport(network.description()) as transport:
        command = transport.start(["true"], timeout_s=10)
        network.cut()
        began = time.monotonic()
        with impatient(transport, 1.0), lost:
            command.poll(timeout_s=1)
        assert time.monotonic() - began < 9.0
        network.restore()
    assert sshd.left() == []


def test_the_next_session_cleans_up_after_a_lost_one(network: Network, sshd: Sshd) -> None:
    marked = Marked()
    with SshTransport(network.description()) as transport:
        transport.start(marked.command, timeout_s=10)
        assert eventually(marked.begun)
        network.cut()
        with impatient(transport, 0.3):
            transport.close()
    assert marked.runs()
    with SshTransport(sshd.description()):
        assert not marked.runs()
    assert sshd.left() == []


@pytest.mark.slow
def test_a_command_is_not_run_again_after_a_lost_connection(network: Network) -> None:
    marked = Marked()
    with SshTransport(network.description()) as transport:
        script = f"echo once >>count; sleep {marked.seconds}"

        def cut_while_it_runs() -> None:
            eventually(marked.begun)
            network.cut()

        cutter = threading.Thread(target=cut_while_it_runs)
        cutter.start()
        with pytest.raises(BoardUnreachable, match="it was not run again"):
            transport.run(["sh", "-c", script], timeout_s=12)
        cutter.join()
        network.restore()
        assert transport.run(["cat", "count"], timeout_s=10).stdout == "once\n"
        assert eventually(lambda: not marked.runs()), "the board did not end the command in time"


def test_a_file_arrives_whole_despite_a_lost_connection(network: Network, tmp_path: Path) -> None:
    content = secrets.token_bytes(2_000_000)
    (tmp_path / "there").write_bytes(content)
    with SshTransport(network.description()) as transport:
        network.cut_after(500_000, restored_after_s=0.5)
        transport.put(tmp_path / "there", "file", timeout_s=120)
        transport.get("file", tmp_path / "back", timeout_s=120)
        assert transport.run(["find", ".", "-name", "*.part"], timeout_s=10).stdout == ""
    assert (tmp_path / "back").read_bytes() == content


def test_a_connection_without_answers_is_replaced_by_a_new_one(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits_s = [0.5]  # of the connection without answers; a busy computer needs longer for others
    with SshTransport(network.description()) as transport:
        command = transport.start(["sh", "-c", "exit 5"], timeout_s=10)
        link = transport._shell._link
        execute = link.execute

        def execute_soon(script: str, *, timeout_s: float, **named: Any) -> int:
            limit_s = limits_s.pop() if limits_s else timeout_s
            return execute(script, timeout_s=limit_s, **named)

        monkeypatch.setattr(link, "execute", execute_soon)
        network.swallow()
        began = time.monotonic()
        assert eventually(lambda: command.poll(timeout_s=60).exit_code == 5)
        assert limits_s == []
        assert time.monotonic() - began < 50.0


def test_a_transfer_ends_at_its_time_limit(network: Network, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(bytes(100))
    with SshTransport(network.description()) as transport:
        network.swallow()
        began = time.monotonic()
        with pytest.raises(BoardCommandFailed, match=r"putting 'file' did not finish within 0\.5"):
            transport.put(tmp_path / "there", "file", timeout_s=0.5)
        assert time.monotonic() - began < 9.0


def test_a_full_disk_is_an_error_and_leaves_no_partial_file(
    sshd_with_small_disk: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(2_000_000))
    (tmp_path / "small").write_bytes(b"x")
    with SshTransport(sshd_with_small_disk.description()) as transport:
        transport.put(tmp_path / "small", "weights", timeout_s=10)
        with pytest.raises(
            BoardCommandFailed,
            match=r"cannot put 'weights' \(2000000 bytes\) into \S+:"
            r" .*(No space|too large|size limit).*; \d+ bytes are free there$",
        ):
            transport.put(tmp_path / "large", "weights", timeout_s=10)
        assert transport.run(["cat", "weights"], timeout_s=10).stdout == "x"
        assert transport.run(["find", ".", "-name", "*.part"], timeout_s=10).stdout == ""


def test_a_detached_command_that_fills_the_disk_still_has_an_exit_code(
    sshd_with_small_disk: Sshd,
) -> None:
    with SshTransport(sshd_with_small_disk.description()) as transport:
        fill = ["sh", "-c", "cat /dev/zero >fill; exit 6"]
        command = transport.start(fill, timeout_s=10)
        assert finish(command) == 6
        assert transport.run(["rm", "fill"], timeout_s=10).exit_code == 0


def test_a_session_of_another_computer_with_the_same_home_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Locks of a directory on a network may hold on one computer only."""
    ours = ClientLock()
    ours.acquire()
    ours.release(cleaned=False)  # this computer no longer sees a lock
    assert is_dead(ours.token)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert not is_dead(ours.token)
    forget(ours.token)


# --- long transfers ---------------------------------------------------------------------------


def putting(
    transport: Transport, token: str, size_bytes: int, **more: Any
) -> subprocess.Popen[bytes]:
    """The shell of a board that puts ``size_bytes`` from its input into ``file``."""
    script = scripts.put(
        transport.directory, "file", token=token, size_bytes=size_bytes, executable=False
    )
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, **more)


def test_a_long_transfer_renews_the_claim_and_the_sign_of_life(tmp_path: Path) -> None:
    soon = tmp_path / "sleep"  # the board's minutes pass in a moment
    soon.write_text("#!/bin/sh\n")
    soon.chmod(0o700)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with LocalTransport() as transport:
        transport.claim(somebody(7))
        seen = Path(transport.directory) / ".joulewright" / "seen"
        before = seen.stat().st_mtime
        long_ago = before - 3600

        def arrives(data: bytes) -> bool:
            """Whether a piece of the file renews the sign of life."""
            os.utime(seen, (long_ago, long_ago))
            assert shell.stdin is not None
            shell.stdin.write(data)
            shell.stdin.flush()
            return eventually(lambda: seen.stat().st_mtime > long_ago + 1, 60.0)

        with putting(transport, "t", 3, env=environment) as shell:
            assert eventually(lambda: any(Path(transport.directory).glob(".t.part")))
            assert arrives(b"a")
            time.sleep(4.0)
            os.utime(seen, (long_ago, long_ago))
            time.sleep(4.0)
            assert seen.stat().st_mtime < long_ago + 1, "nothing has arrived meanwhile"
            assert arrives(b"b")
            shell.communicate(b"c", timeout=60)
        assert shell.returncode == 0
        assert (Path(transport.directory) / "file").read_bytes() == b"abc"


def test_an_attempt_that_was_cut_off_does_not_disturb_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The board may notice late that the connection was lost, and then removes what it has."""
    (tmp_path / "large").write_bytes(bytes(8))
    written: list[str] = []

    def lost_once(script: str, *words: Any, **named: Any) -> int:
        written.extend(set(re.findall(r"\.\w+\.part", script)))
        if len(written) == 1:
            raise ConnectionLostError("reset", started=True)
        return execute(script, *words, **named)

    with LocalTransport() as transport:
        link = transport._shell._link
        execute = link.execute
        monkeypatch.setattr(type(link), "patience_s", 10.0)
        monkeypatch.setattr(link, "execute", lost_once)
        transport.put(tmp_path / "large", "file", timeout_s=30)
        assert (Path(transport.directory) / "file").read_bytes() == bytes(8)
    assert len(set(written)) == 2
