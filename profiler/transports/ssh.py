"""Boards that are reached over SSH.

What the description does not state comes from ``~/.ssh/config`` and ``/etc/ssh/ssh_config``, so
that a board is reached as ``ssh`` reaches it (:mod:`profiler.transports.route`); fabric's own
configuration files are not read. Host keys are always checked. Files go through ``cat`` on the
board, since dropbear often comes without an SFTP server. A key's passphrase, or the password of a
board that is described without a key, is taken from the environment variable
``JOULEWRIGHT_SSH_PASSWORD``; with an agent none is needed.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

import fabric
import paramiko

from devices import description
from devices.errors import SetupMissing
from profiler.transports.deadline import Deadline
from profiler.transports.host_keys import load_known_hosts
from profiler.transports.link import ConnectionLostError, NoAnswerError, Sink
from profiler.transports.posix import PosixTransport
from profiler.transports.proxy_command import running_proxy
from profiler.transports.route import Host, find_route
from profiler.transports.shell import quoted
from profiler.transports.ssh_login import Credentials, Login, explain

_NETWORK_ERRORS = (paramiko.SSHException, EOFError, OSError)
_CHUNK_BYTES = 32 * 1024
_DEAD_AFTER_KEEP_ALIVES = 3
_SHORTEST_LIMIT_S = 0.1  # zero would mean "do not wait" to a socket

# What every script prints first. The byte 2 is not in the command line, which a shell may print.
_BEGUN = b"\x02joulewright\n"
_SAY_BEGUN = r"printf '\002joulewright\n'; printf '\002joulewright\n' >&2" + "\n"
_KEPT_BYTES = 2000  # of what a login shell has printed before
_UNCHANGED = frozenset(map(chr, range(0x20, 0x7F))) - set("'!\\")

# Without a handler of its own, paramiko's warnings and tracebacks go to standard error.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class SshTransport(PosixTransport):
    """A board that is reached as its description and the SSH configuration say.

    Args:
        reached: How to reach it.
        may_be_starting: Its power may have been switched on just now: what else is a permanent
            failure, such as a closed port or an unknown name, is tried again.

    Raises:
        DocumentError: The SSH configuration is invalid.
    """

    def __init__(self, reached: description.SshTransport, *, may_be_starting: bool = False) -> None:
        super().__init__(_SshLink(reached, may_be_starting))


class _SshLink:
    """Implements :class:`~profiler.transports.link.Link`.

    paramiko waits without limit in several places (for the answer to an exec request, for an exit
    status) and an hour for a session. All its waits end when the connection is closed, so this is
    how a script is held to its time limit.
    """

    def __init__(self, reached: description.SshTransport, may_be_starting: bool) -> None:
        self._reached = reached
        self._may_be_starting = may_be_starting  # always so once it has been connected
        self._board = find_route(reached)
        self._connections: list[fabric.Connection] = []  # jump hosts first, the board last
        self._proxies = contextlib.ExitStack()
        self._has_begun = False  # any script

    @property
    def name(self) -> str:
        return str(self._board)

    @property
    def patience_s(self) -> float:
        return self._reached.deadline_s

    def open(self, *, timeout_s: float) -> None:
        if self._connections and self._connections[-1].is_connected:
            return
        self.close()
        deadline = Deadline(timeout_s)
        try:
            for host in self._board.hops:
                limit_s = min(self._reached.connect_timeout_s, deadline.remaining_s)
                self._connect(host, max(limit_s, _SHORTEST_LIMIT_S))
        except BaseException:
            self.close()
            raise
        self._may_be_starting = True

    def execute(
        self, script: str, *, timeout_s: float, source: BinaryIO | None, out: Sink, err: Sink
    ) -> int:
        deadline = Deadline(timeout_s)
        watchdog = threading.Timer(timeout_s, self.close)
        watchdog.daemon = True
        watchdog.start()
        try:
            return self._exchange(script, source, out, err)
        except ConnectionLostError:
            if deadline.expired:
                raise NoAnswerError(timeout_s) from None
            raise
        finally:
            watchdog.cancel()

    def close(self) -> None:
        while self._connections:
            with contextlib.suppress(*_NETWORK_ERRORS):
                self._connections.pop().client.close()
        self._proxies.close()

    def _connect(self, host: Host, limit_s: float) -> None:
        """Make one more connection, through the last existing one."""
        credentials = Credentials.of(host, is_board=host is self._board)
        options: dict[str, Any] = {
            "timeout": limit_s,  # fabric's own takes whole seconds, with none for no limit
            "banner_timeout": limit_s,
            "channel_timeout": limit_s,
            "auth_strategy": Login(host.user, credentials, limit_s),
        }
        client = proxy = None
        try:
            if self._connections:
                options["sock"] = self._connections[-1].transport.open_channel(
                    "direct-tcpip", (host.host, host.port), ("", 0), timeout=limit_s
                )
            elif host.proxy_command is not None:
                proxy = self._proxies.enter_context(running_proxy(host.proxy_command))
                options["sock"] = proxy.socket
            connection = fabric.Connection(
                host.host,
                user=host.user,
                port=host.port,
                config=fabric.Config(overrides={"load_ssh_configs": False}, lazy=True),
                connect_kwargs=options,
            )
            client = connection.client
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            load_known_hosts(client, host)
            self._connections.append(connection)
            connection.open()
        except _NETWORK_ERRORS as error:
            raise explain(
                error, host, credentials, client, proxy, may_be_starting=self._may_be_starting
            ) from error
        self._keep_alive(connection.transport)

    def _keep_alive(self, transport: paramiko.Transport) -> None:
        """Detect a dead connection. paramiko sends keepalives but ignores missing answers; the
        kernel does not."""
        transport.set_keepalive(max(1, round(self._reached.keep_alive_s)))
        sock = transport.sock
        if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
            dead_after_s = _DEAD_AFTER_KEEP_ALIVES * self._reached.keep_alive_s
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(dead_after_s * 1000))

    def _exchange(self, script: str, source: BinaryIO | None, out: Sink, err: Sink) -> int:
        with _network(started=False):
            transport = self._transport()
            channel = transport.open_session(timeout=self._reached.connect_timeout_s)
        try:
            with _network(started=True):
                channel.exec_command(_command(script))
            if source is not None:
                _send(channel, source)
            own, errors = _FromBegun(out), _FromBegun(err)
            _receive(channel, own, errors)
            exit_code = channel.recv_exit_status()
        finally:
            with contextlib.suppress(*_NETWORK_ERRORS):
                channel.close()
        if exit_code == -1:
            why = "the shell was killed" if transport.is_active() else transport.get_exception()
            raise ConnectionLostError(str(why or "closed by the board"), started=True)
        if not own.begun:
            raise self._not_begun(exit_code, errors.before + own.before)
        self._has_begun = True
        return exit_code

    def _not_begun(self, exit_code: int, said: bytes) -> SetupMissing | ConnectionLostError:
        """The failure of a login shell that has not begun a script. If it could before, the board
        may lack memory for another process, so trying again may help."""
        what = (
            f"the login shell of {self._board.user} ended with exit code {exit_code} and ran no"
            f" command{quoted(said.decode(errors='replace'))}"
        )
        if self._has_begun:
            return ConnectionLostError(what)
        return SetupMissing(
            f"{self.name}: {what}",
            remedy="correct its start-up files, or give the user another login shell",
        )

    def _transport(self) -> paramiko.Transport:
        transport: paramiko.Transport | None = None
        if self._connections:
            transport = self._connections[-1].transport
        if transport is None:
            raise paramiko.SSHException("not connected")
        return transport


@contextlib.contextmanager
def _network(*, started: bool) -> Iterator[None]:
    try:
        yield
    except _NETWORK_ERRORS as error:
        raise ConnectionLostError(str(error) or "connection lost", started=started) from error


class _FromBegun:
    """Passes on what a script prints. Before it, the start-up files of a login shell, such as
    ``.bashrc``, may print anything."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.before = b""
        self.begun = False

    def __call__(self, chunk: bytes) -> None:
        if not self.begun:
            before, begun, chunk = (self.before + chunk).partition(_BEGUN)
            self.begun = bool(begun)
            self.before = before[-_KEPT_BYTES:]
        if chunk:
            self._sink(chunk)


def _command(script: str) -> bytes:
    """The command line that runs a script, whatever the login shell is.

    It is one line without characters that csh or fish change between single quotes.
    """
    encoded = "".join(
        chr(byte) if chr(byte) in _UNCHANGED else f"\\0{byte:03o}"
        for byte in (_SAY_BEGUN + script).encode()
    )
    return f"""exec sh -c 'eval "$(printf %b "$1")"' sh '{encoded}'""".encode()


def _send(channel: paramiko.Channel, source: BinaryIO) -> None:
    """Send the script's input. Stops early if the script stops reading or the connection is lost;
    its exit code tells which."""
    while chunk := source.read(_CHUNK_BYTES):
        try:
            channel.sendall(chunk)
        except _NETWORK_ERRORS:
            return
    with contextlib.suppress(*_NETWORK_ERRORS):
        channel.shutdown_write()


def _receive(channel: paramiko.Channel, out: Sink, err: Sink) -> None:
    """Pass output on until the script's streams end or the channel is closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        over = False
        while not over:
            selector.select()
            over = bool(
                channel.eof_received or channel.closed
            )  # noted before the buffers are emptied
            while channel.recv_ready():
                out(channel.recv(_CHUNK_BYTES))
            while channel.recv_stderr_ready():
                err(channel.recv_stderr(_CHUNK_BYTES))
