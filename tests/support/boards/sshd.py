"""A real OpenSSH server on loopback, run by an ordinary user with its own keys.

Root starts it as a user created for the purpose and removed afterwards: an sshd that is not root
admits only the user that it runs as, and that user needs a shell.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devices.claims.scratch import ScratchDirectory
from devices.description import SshTransport

SSHD = Path("/usr/sbin/sshd")
_START_LIMIT_S = 120.0
_USER_PREFIX = "jw-test-"


def left_by_sessions(directory: Path) -> list[str]:
    """Names in a board's directory but those of caches, which stay between sessions."""
    if not directory.exists():
        return []
    return [path.name for path in directory.iterdir() if path.name not in {"clients", "objects"}]


@dataclass(frozen=True)
class Sshd:
    """A running server. ``directory`` holds all its files; sessions make theirs in ``board``."""

    user: str
    port: int
    directory: Path
    key: Path
    known_hosts: Path
    host_key: Path

    @property
    def board(self) -> Path:
        """Directory in which sessions make their directories."""
        return self.directory / "cache" / "joulewright"

    def left(self) -> list[str]:
        """What sessions have left on the board."""
        return left_by_sessions(self.board)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def config(self, alias: str, **overrides: str) -> str:
        """A block of ``ssh_config`` that describes the server as ``alias``."""
        settings = {
            "HostName": "127.0.0.1",
            "User": self.user,
            "Port": str(self.port),
            "IdentityFile": str(self.key),
            "UserKnownHostsFile": str(self.known_hosts),
        } | overrides
        return f"Host {alias}\n" + "".join(f"  {key} {value}\n" for key, value in settings.items())

    def description(self, **overrides: Any) -> SshTransport:
        """Transport to the server, with limits for a busy computer.

        Tests of silent hosts and of lost connections state their own.
        """
        reached = {
            "kind": "ssh",
            "host": "127.0.0.1",
            "user": self.user,
            "port": self.port,
            "key": self.key,
            "known_hosts": self.known_hosts,
            "connect_timeout_s": 60.0,
            "deadline_s": 120.0,
        }
        return SshTransport.model_validate(reached | overrides)


class Network:
    """A network between this computer and an sshd that can fail: a TCP proxy on loopback.

    ``cut`` resets all connections and refuses new ones until ``restore``. ``swallow`` keeps
    existing connections open and forwards nothing on them; new ones work. ``cut_after`` cuts once
    so many bytes have been sent to the board, and restores the network some time after that.
    """

    def __init__(self, server: Sshd) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[_Pair] = []
        self._up = True
        self._budget: int | None = None
        self._restored_after_s = 0.0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def description(self, **overrides: Any) -> SshTransport:
        """Transport to the server through this network."""
        known_hosts = self._server.directory / f"known_hosts_{self.port}"
        host_key = self._server.host_key.with_suffix(".pub").read_text()
        known_hosts.write_text(f"[127.0.0.1]:{self.port} {host_key}")
        return self._server.description(
            **{"port": self.port, "known_hosts": known_hosts} | overrides
        )

    def cut(self) -> None:
        self._up = False
        for pair in self._pairs:
            pair.reset()
        self._pairs.clear()

    def restore(self) -> None:
        self._up = True

    def swallow(self) -> None:
        for pair in self._pairs:
            pair.passing.clear()

    def cut_after(self, sent_bytes: int, *, restored_after_s: float) -> None:
        self._restored_after_s = restored_after_s
        self._budget = sent_bytes

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._up:
                board = socket.create_connection(("127.0.0.1", self._server.port))
                self._pairs.append(_Pair(client, board, self._spend))
            else:
                _reset(client)

    def _spend(self, sent_bytes: int) -> None:
        if self._budget is not None:
            self._budget -= sent_bytes
            if self._budget <= 0:
                self._budget = None
                self.cut()
                threading.Timer(self._restored_after_s, self.restore).start()


class _Pair:
    """Two sockets, each forwarded to the other."""

    def __init__(
        self, client: socket.socket, board: socket.socket, spend: Callable[[int], None]
    ) -> None:
        self._ends = (client, board)
        self.passing = threading.Event()
        self.passing.set()
        for source, target, count in ((client, board, spend), (board, client, lambda _n: None)):
            ends = (source, target, count)
            threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def reset(self) -> None:
        self.passing.set()
        for end in self._ends:
            _reset(end)

    def _pass_on(
        self, source: socket.socket, target: socket.socket, count: Callable[[int], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                self.passing.wait()
                target.sendall(chunk)
                count(len(chunk))
        for end in (source, target):
            _hang_up(end)


def _reset(end: socket.socket) -> None:
    """Close with a TCP reset, as a router does after a cable was pulled."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _hang_up(end)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@pytest.fixture
def network(sshd: Sshd) -> Iterator[Network]:
    """A network between this computer and ``sshd``."""
    between = Network(sshd)
    yield between
    between.close()


@pytest.fixture
def own_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exclude this user's SSH keys, agent, caches and password."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("JOULEWRIGHT_SSH_PASSWORD", raising=False)


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    """A server for the whole test run."""
    with running_sshd() as server:
        yield server


@pytest.fixture(scope="session")
def jump_sshd(sshd: Sshd) -> Iterator[Sshd]:
    """A jump host that forwards connections to ``sshd`` only, and logs each of them."""
    with running_sshd(settings=f"LogLevel DEBUG1\nPermitOpen 127.0.0.1:{sshd.port}\n") as server:
        yield server


@pytest.fixture(scope="session")
def sshd_with_small_disk() -> Iterator[Sshd]:
    """A server whose sessions use a file system of one mebibyte."""
    with running_sshd(small_disk=True) as server:
        yield server


@contextlib.contextmanager
def running_sshd(*, small_disk: bool = False, settings: str = "") -> Iterator[Sshd]:
    """A server that runs meanwhile, with further ``settings`` in its configuration."""
    for program in (SSHD, Path("/usr/bin/ssh-keygen"), Path("/usr/bin/ssh-keyscan")):
        if not program.exists():
            pytest.fail(f"{program} is missing: sudo apt install openssh-server openssh-client")
    with contextlib.ExitStack() as stack:
        parent = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
        directory = stack.enter_context(ScratchDirectory(parent, "jw-test-sshd-")).path
        user = stack.enter_context(_ordinary_user(directory))
        server = _prepare(directory, user, settings)
        command = [*_as_user(user), str(SSHD), "-D", "-e", "-f", str(directory / "sshd_config")]
        if small_disk:
            command = [*_on_small_disk(directory / "cache", user), *command]
        log = stack.enter_context((directory / "log").open("wb"))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        stack.callback(_end, process)
        _await_banner(server, process)
        yield server


@contextlib.contextmanager
def _ordinary_user(home: Path) -> Iterator[pwd.struct_passwd]:
    if os.getuid() != 0:
        yield pwd.getpwuid(os.getuid())
        return
    _remove_left_users()
    name = f"{_USER_PREFIX}{secrets.token_hex(4)}"
    subprocess.run(
        ["useradd", "--system", "--shell", "/bin/sh", "--home-dir", str(home), name], check=True
    )
    try:
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", "--force", name], check=True, capture_output=True)


def _remove_left_users() -> None:
    """Remove the users of killed runs: a :class:`ScratchDirectory` that nobody uses is removed."""
    for user in pwd.getpwall():
        if user.pw_name.startswith(_USER_PREFIX) and not Path(user.pw_dir).exists():
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if process.stat().st_uid == user.pw_uid:
                        os.kill(int(process.name), signal.SIGKILL)
            # Another run may remove it meanwhile.
            subprocess.run(["userdel", "--force", user.pw_name], capture_output=True)


def _as_user(user: pwd.struct_passwd) -> list[str]:
    if os.getuid() != 0:
        return []
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _on_small_disk(mount_point: Path, user: pwd.struct_passwd) -> list[str]:
    """Command prefix that limits disk space.

    It mounts a small file system where the machine allows that, and else limits the size of a file.
    """
    namespace = ["unshare", "--mount"]
    if os.getuid() != 0:
        namespace += ["--user", "--map-current-user", "--keep-caps"]
    options = f"size=1m,mode=700,uid={user.pw_uid},gid={user.pw_gid}"
    mount = f'mount -t tmpfs -o {options} none {mount_point} && exec "$@"'
    mounted = [*namespace, "sh", "-c", mount, "sh"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode == 0:
        return mounted
    return ["prlimit", "--fsize=1048576", "--"]


def _prepare(directory: Path, user: pwd.struct_passwd, settings: str) -> Sshd:
    """Write keys and configuration, with ``settings`` at its end; the user's own are not read."""
    for name in ("host_key", "key"):
        make_key(directory / name)
    shutil.copy(directory / "key.pub", directory / "authorized_keys")
    (directory / "cache").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host_key = (directory / "host_key.pub").read_text()
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    temporary = directory / "temporary"
    temporary.mkdir()
    (directory / "sshd_config").write_text(
        f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
MaxStartups 100
SetEnv XDG_CACHE_HOME={directory}/cache TMPDIR={directory}/temporary
{settings}"""
    )
    if os.getuid() == 0:
        for path in (directory, *directory.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    return Sshd(
        user=user.pw_name,
        port=port,
        directory=directory,
        key=directory / "key",
        known_hosts=directory / "known_hosts",
        host_key=directory / "host_key",
    )


def make_key(path: Path, *, passphrase: str = "") -> Path:
    """Make an ed25519 key pair; returns the path of the private key."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)],
        check=True,
    )
    return path


def _await_banner(server: Sshd, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < give_up and process.poll() is None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", server.port), timeout=10.0) as probe,
        ):
            if probe.recv(4) == b"SSH-":
                return
        time.sleep(0.02)
    pytest.fail(f"sshd did not start: {server.log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=120)
