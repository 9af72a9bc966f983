"""SSH login to a board, and the explanation of a refusal."""

from __future__ import annotations

import copy
import errno
import os
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.auth_strategy import (
    AuthSource,
    AuthStrategy,
    InMemoryPrivateKey,
    Password,
    SourceResult,
)
from paramiko.ssh_exception import IncompatiblePeer, NoValidConnectionsError

from devices.errors import BoardUnreachable
from profiler.transports.deadline import Deadline
from profiler.transports.host_keys import changed_key, is_known, revoked_key, unknown_key
from profiler.transports.link import ConnectionLostError
from profiler.transports.proxy_command import ProxyCommand
from profiler.transports.route import Host
from profiler.transports.ssh_config import USER_FILE

CREDENTIAL_VARIABLE = "JOULEWRIGHT_SSH_PASSWORD"

_KEY_TYPES = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
_DEFAULT_KEYS = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
_SHORTEST_LIMIT_S = 0.1


@dataclass(frozen=True, repr=False)
class KeyFile:
    """A private key on this computer.

    ``keys`` are the keys to present: first with the certificate, if it has one, then alone. It is
    empty if there is a ``problem``, or if the key is encrypted and no passphrase was given.
    """

    path: Path
    keys: tuple[paramiko.PKey, ...] = ()
    took_passphrase: bool = False
    problem: str | None = None

    @property
    def public_part(self) -> bytes | None:
        """The public key. For a locked key it is read from the file beside it, if that exists."""
        if self.keys:
            return self.keys[-1].asbytes()
        for path in (Path(f"{self.path}.pub"), self.path):
            try:
                return paramiko.pkey.PublicBlob.from_file(str(path)).key_blob
            except (OSError, ValueError):  # including UnicodeDecodeError
                continue
        return None


@dataclass(frozen=True, repr=False)
class Credentials:
    """Credentials for a host.

    They are presented in this order: ``named`` keys (or, if there are none, the ``default`` ones),
    the agent's keys, a password. With ``named_only``, only those of the agent's keys that are
    named.
    """

    named: tuple[KeyFile, ...]
    default: tuple[KeyFile, ...]
    named_only: bool
    password: str | None

    @classmethod
    def of(cls, host: Host, *, is_board: bool) -> Credentials:
        """Credentials for a host.

        The secret in the environment is the passphrase of its keys. If it opened none and no key is
        described, it is the board's password; it is never sent to a jump host. Raises
        :class:`~devices.errors.BoardUnreachable` for a described key that cannot be read. A key of
        the SSH config may be missing or locked, as for ``ssh``.
        """
        secret = os.environ.get(CREDENTIAL_VARIABLE)
        named = []
        if host.key is not None:
            described = _read_key(host.key, secret)
            if described.problem is not None:
                raise BoardUnreachable(f"{host}: {described.problem}")
            named.append(described)
        named += [_read_key(path, secret) for path in host.identities]
        default = []
        if not named:
            paths = (Path(name).expanduser() for name in _DEFAULT_KEYS)
            default = [_read_key(path, secret) for path in paths if path.is_file()]
        is_passphrase = any(file.took_passphrase for file in (*named, *default))
        is_password = is_board and host.key is None and not is_passphrase
        return cls(
            tuple(named), tuple(default), host.identities_only, secret if is_password else None
        )


class Login(AuthStrategy):
    """Presents credentials to a host, one after the other, within one time limit for all."""

    def __init__(self, user: str, credentials: Credentials, limit_s: float) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._user = user
        self._credentials = credentials
        self._limit_s = limit_s
        self._agent: paramiko.Agent | None = None

    def get_sources(self) -> Iterator[AuthSource]:
        shown = set()
        for file in (*self._credentials.named, *self._credentials.default):
            shown.add(file.public_part)
            for key in file.keys:
                yield InMemoryPrivateKey(self._user, key)
        locked = {file.public_part for file in self._credentials.named if not file.keys}
        self._agent = paramiko.Agent()
        for agent_key in self._agent.get_keys():
            public_part = agent_key.asbytes()
            is_new = public_part not in shown and not self._credentials.named_only
            if is_new or public_part in locked:
                yield InMemoryPrivateKey(self._user, agent_key)
        password = self._credentials.password
        if password is not None:
            yield Password(self._user, lambda: password)

    def authenticate(self, transport: paramiko.Transport) -> list[SourceResult]:
        """Log in. Raises :class:`paramiko.SSHException`, or TimeoutError after the time limit."""
        deadline = Deadline(self._limit_s)
        refusal = paramiko.SSHException("no key and no password to present")
        try:
            for source in self.get_sources():
                transport.auth_timeout = max(deadline.remaining_s, _SHORTEST_LIMIT_S)
                try:
                    further = source.authenticate(transport)
                    if "keyboard-interactive" in further and self._credentials.password is None:
                        further = transport.auth_interactive_dumb(self._user)
                except paramiko.SSHException as error:
                    if deadline.expired:  # a slow board has not refused the key
                        raise TimeoutError from error
                    refusal = error
                    if not transport.is_active():
                        break
                    continue
                if not further:
                    return [SourceResult(source, further)]
                refusal = paramiko.SSHException(f"it also asks for {further[0]}")
        finally:
            if self._agent is not None:
                self._agent.close()
        raise refusal


def explain(
    error: Exception,
    host: Host,
    credentials: Credentials,
    client: paramiko.SSHClient | None,
    proxy: ProxyCommand | None,
    *,
    may_be_starting: bool,
) -> BoardUnreachable | ConnectionLostError:
    """Explain a failed connection: :class:`ConnectionLostError` if trying again may help.

    A refused login or host key is permanent. A closed port or an unknown name is too, except for a
    board that ``may_be_starting``, as after a lost connection.
    """
    transport = client.get_transport() if client is not None else None
    presented = _presented_key(transport) if transport is not None else None
    if isinstance(error, paramiko.BadHostKeyException):
        presented = error.key
    revoked = revoked_key(host, presented) if presented is not None else None
    if revoked is not None:
        return revoked
    if isinstance(error, paramiko.BadHostKeyException):
        return changed_key(host, error.key, error.expected_key)
    if client is not None and presented is not None:
        if not is_known(client, host):
            return unknown_key(host, presented)
        if isinstance(error, TimeoutError):
            return ConnectionLostError("no answer to the login in time")
        return BoardUnreachable(f"{host}: {_refused_login(error, host, credentials)}")
    if isinstance(error, paramiko.AuthenticationException) and not may_be_starting:
        return BoardUnreachable(f"{host}: {_refused_login(error, host, credentials)}")
    reason, lasting = _network_reason(error, host)
    if proxy is not None:
        reason += f"; it is reached by ProxyCommand {host.proxy_command}"
        reason += f", which reported: {proxy.last_words}" if proxy.last_words else ""
    if lasting and not may_be_starting:
        return BoardUnreachable(f"{host}: {reason}")
    return ConnectionLostError(reason)


def _read_key(path: Path, passphrase: str | None) -> KeyFile:
    """Read a private key. The passphrase is tried only if the key needs one."""
    tried = None
    try:
        try:
            key = _load_key(path, None)
        except paramiko.PasswordRequiredException:
            if passphrase is None:
                return KeyFile(path)
            tried = passphrase
            key = _load_key(path, passphrase)
    except OSError as error:
        return KeyFile(path, problem=f"cannot read the key {path}: {error.strerror}")
    if key is None:
        wrong = f", or {CREDENTIAL_VARIABLE} is not its passphrase" if tried else ""
        problem = f"{path} is not a private key of type ed25519, ecdsa or rsa{wrong}"
        return KeyFile(path, problem=problem)
    return KeyFile(path, (*_with_certificate(path, key), key), took_passphrase=tried is not None)


def _load_key(path: Path, passphrase: str | None) -> paramiko.PKey | None:
    """Load a private key; None if its type is unknown or the passphrase is wrong."""
    for kind in _KEY_TYPES:
        try:
            return kind.from_private_key_file(str(path), passphrase)
        except paramiko.PasswordRequiredException:
            raise
        except (paramiko.SSHException, ValueError):
            continue  # a key of another type
    return None


def _with_certificate(path: Path, key: paramiko.PKey) -> list[paramiko.PKey]:
    certified = copy.copy(key)
    try:
        certified.load_certificate(f"{path}-cert.pub")
    except (OSError, ValueError):
        return []
    return [certified]


def _presented_key(transport: paramiko.Transport) -> paramiko.PKey | None:
    """The host key, if the connection stands after the key exchange. The failure is then not the
    network's."""
    try:
        key = transport.get_remote_server_key()
    except paramiko.SSHException:
        return None
    return key if transport.is_active() else None


def _refused_login(error: Exception, host: Host, credentials: Credentials) -> str:
    problems = [file.problem for file in credentials.named if file.problem is not None]
    if not host.is_user_stated:
        problems.append(
            f"{host.user} is the user name on this computer, used because neither the description"
            " nor the SSH config states one"
        )
    return "; ".join([_what_was_refused(error, host, credentials), *problems])


def _what_was_refused(error: Exception, host: Host, credentials: Credentials) -> str:
    locked = [file.path for file in credentials.named if not file.keys and not file.problem]
    paths = [file.path for file in credentials.named if file.keys]
    if locked and not paths:
        return (
            f"the key {locked[0]} is encrypted, and no agent could log in instead; load it with:"
            f" ssh-add {shlex.quote(str(locked[0]))} (or set {CREDENTIAL_VARIABLE} to its"
            " passphrase)"
        )
    if paths:
        keys = f"the key {paths[0]}"
        if len(paths) > 1:
            keys = f"the keys {', '.join(map(str, paths))}"
        origin = "" if host.key is not None else " of the SSH config"
        either = "" if len(paths) == 1 else " or that of another"
        return (
            f"SSH login of {host.user} with {keys}{origin} refused ({error}); the line in"
            f" {paths[0]}.pub{either} must be in ~{host.user}/.ssh/authorized_keys on the board"
        )
    if credentials.named:
        return (
            f"SSH login of {host.user} with the agent's keys refused ({error}), and no key that the"
            " SSH config names could be read"
        )
    return (
        f"SSH login of {host.user} with the agent's and the default keys refused ({error}); name a"
        f" key in the description, load one with ssh-add, or set {CREDENTIAL_VARIABLE} to the"
        " password"
    )


def _network_reason(error: Exception, host: Host) -> tuple[str, bool]:
    """The reason of a failure below SSH, and whether it is permanent."""
    if isinstance(error, socket.gaierror):
        reason = (
            f"the name {host.host} does not resolve ({error.strerror}); give an address, a full"
            f" name or a Host of {USER_FILE}"
        )
        return reason, error.errno != socket.EAI_AGAIN
    if isinstance(error, paramiko.ChannelException):
        return f"its jump host cannot reach it ({error.text})", True
    if isinstance(error, IncompatiblePeer):
        return f"its SSH server has no method in common with this one ({error})", True
    if isinstance(error, NoValidConnectionsError):
        error = next(iter(error.errors.values()))
    if isinstance(error, TimeoutError):
        return "no answer in time", False
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return f"nothing listens on port {host.port}; check that sshd runs there on that port", True
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return f"it cannot be reached ({error.strerror}); check that it is on this network", True
    return f"the connection could not be made ({error or 'closed by the other end'})", False
