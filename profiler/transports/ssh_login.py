"""Who we are to a board behind SSH, and why it would not have us."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, NoValidConnectionsError

from devices.description import SshTransport
from devices.errors import BoardUnreachable
from profiler.transports.host_keys import Host, changed_key, unknown_key
from profiler.transports.link import ConnectionLostError

CREDENTIAL_VARIABLE = "JOULEWRIGHT_SSH_PASSWORD"

_KEY_TYPES = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}


@dataclass(frozen=True, repr=False)
class Credentials:
    """``path`` is the described key, ``key`` what it holds unless it is encrypted and nobody said
    the passphrase; ``password`` is that of a board described without a key."""

    path: Path | None
    key: paramiko.PKey | None
    password: str | None

    @classmethod
    def of(cls, reached: SshTransport, host: Host) -> Credentials:
        """Raises :class:`~devices.errors.BoardUnreachable` for a key that cannot be read. A jump
        host is never shown the board's password."""
        secret = os.environ.get(CREDENTIAL_VARIABLE)
        if reached.key is None:
            is_board = host == Host.board(reached)
            return cls(None, None, secret if is_board else None)
        path = reached.key.expanduser()
        return cls(path, _load_key(host, path, secret), None)

    def options(self) -> dict[str, Any]:
        """What :meth:`paramiko.SSHClient.connect` is told."""
        return {
            "pkey": self.key,
            "password": self.password,
            "allow_agent": True,
            "look_for_keys": self.path is None,
        }


def explain(
    error: Exception,
    host: Host,
    credentials: Credentials,
    client: paramiko.SSHClient | None,
    *,
    reconnecting: bool,
) -> BoardUnreachable | ConnectionLostError:
    """What a failed connection means: :class:`ConnectionLostError` if trying again may help.

    A refused login or host key stays refused. A closed port or an unknown name does as well, except
    for a board that was there a moment ago, which may be restarting.
    """
    if isinstance(error, paramiko.BadHostKeyException):
        return changed_key(host, error.key, error.expected_key)
    transport = client.get_transport() if client is not None else None
    presented = _presented_key(transport) if transport is not None else None
    if client is not None and presented is not None:
        if client.get_host_keys().lookup(host.known_as) is None:
            return unknown_key(host, presented)
        return BoardUnreachable(f"{host}: {_refused_login(error, host, credentials)}")
    if isinstance(error, paramiko.AuthenticationException) and not reconnecting:
        return BoardUnreachable(f"{host}: {_refused_login(error, host, credentials)}")
    reason, lasting = _network_reason(error, host)
    if lasting and not reconnecting:
        return BoardUnreachable(f"{host}: {reason}")
    return ConnectionLostError(reason)


def _load_key(host: Host, path: Path, passphrase: str | None) -> paramiko.PKey | None:
    """None if it is encrypted and no passphrase is known."""
    for kind in _KEY_TYPES:
        try:
            return kind.from_private_key_file(str(path), passphrase)
        except paramiko.PasswordRequiredException:
            return None
        except OSError as error:
            raise BoardUnreachable(
                f"{host}: cannot read the key {path}: {error.strerror}"
            ) from error
        except (paramiko.SSHException, ValueError):
            continue  # a key of another type
    wrong = f", or {CREDENTIAL_VARIABLE} is not its passphrase" if passphrase else ""
    raise BoardUnreachable(
        f"{host}: {path} is not a private key of type ed25519, ecdsa or rsa{wrong}"
    )


def _presented_key(transport: paramiko.Transport) -> paramiko.PKey | None:
    """The host key, if the connection still stands and is past the exchange of keys: what failed
    then is not the network."""
    try:
        key = transport.get_remote_server_key()
    except paramiko.SSHException:
        return None
    return key if transport.is_active() else None


def _refused_login(error: Exception, host: Host, credentials: Credentials) -> str:
    path = credentials.path
    if path is not None and credentials.key is None:
        return (
            f"the key {path} is encrypted, and no agent could log in instead; load it with:"
            f" ssh-add {shlex.quote(str(path))} (or set {CREDENTIAL_VARIABLE} to its passphrase)"
        )
    if path is not None:
        return (
            f"refused to log in {host.user} with the key {path} ({error}); the line in {path}.pub"
            f" must stand in ~{host.user}/.ssh/authorized_keys there"
        )
    return (
        f"refused to log in {host.user} with the agent's and the default keys ({error}); name a"
        f" key in the description, load one with ssh-add, or set {CREDENTIAL_VARIABLE} to the"
        " password"
    )


def _network_reason(error: Exception, host: Host) -> tuple[str, bool]:
    """What went wrong below SSH, and whether it will be the same in a moment."""
    if isinstance(error, socket.gaierror):
        reason = (
            f"the name {host.host} does not resolve ({error.strerror}); give an address or a full"
            " name, since ~/.ssh/config is not read"
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
        return f"nothing listens on port {host.port}; is sshd running there, on that port?", True
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return f"there is no way to it ({error.strerror}); is it on this network?", True
    return f"the connection could not be made ({error or 'closed by the other end'})", False
