"""Is this the board that was accepted before? Answers with what to do if not."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import paramiko

from devices.description import JumpHost, SshTransport
from devices.errors import BoardUnreachable


@dataclass(frozen=True)
class Host:
    """One end of an SSH connection; ``jump`` is the one that leads to it."""

    user: str
    host: str
    port: int
    known_hosts: Path
    jump: JumpHost | None = None

    @classmethod
    def board(cls, description: SshTransport) -> Host:
        return cls(
            description.user,
            description.host,
            description.port,
            description.known_hosts.expanduser(),
            description.jump,
        )

    @classmethod
    def jump_host(cls, description: SshTransport, jump: JumpHost) -> Host:
        return cls(jump.user, jump.host, jump.port, description.known_hosts.expanduser())

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def known_as(self) -> str:
        """Its name in known_hosts."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


def unknown_key(host: Host, key: paramiko.PKey) -> BoardUnreachable:
    return BoardUnreachable(
        f"{host}: its host key ({key.get_name()} {key.fingerprint}) is not in {host.known_hosts};"
        " if that is the fingerprint which the board itself shows (ssh-keygen -lf"
        f" /etc/ssh/ssh_host_{_short_name(key)}_key.pub), accept it with:"
        f" {_command_that_accepts(host, key)}"
    )


def changed_key(host: Host, presented: paramiko.PKey, known: paramiko.PKey) -> BoardUnreachable:
    return BoardUnreachable(
        f"{host}: THE HOST KEY HAS CHANGED: {host.known_hosts} has {known.get_name()}"
        f" {known.fingerprint}, but it presents {presented.get_name()} {presented.fingerprint};"
        " somebody may be listening in between; only if you know that the board was installed anew,"
        f" forget the old key with: ssh-keygen -R {shlex.quote(host.known_as)}"
        f" -f {shlex.quote(str(host.known_hosts))}"
    )


def load_known_hosts(client: paramiko.SSHClient, host: Host) -> None:
    """A missing file knows nobody. Raises :class:`~devices.errors.BoardUnreachable`."""
    try:
        client.load_host_keys(str(host.known_hosts))
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise BoardUnreachable(
            f"{host}: cannot check its host key: {host.known_hosts}: {error}"
        ) from error


def _command_that_accepts(host: Host, key: paramiko.PKey) -> str:
    file = shlex.quote(str(host.known_hosts))
    if host.jump is None:
        return f"ssh-keyscan -p {host.port} -t {_short_name(key)} {host.host} >> {file}"
    jump = f"{host.jump.user}@{host.jump.host}:{host.jump.port}"
    return f"ssh -o UserKnownHostsFile={file} -J {jump} -p {host.port} {host.user}@{host.host} true"


def _short_name(key: paramiko.PKey) -> str:
    """What OpenSSH's tools call the key's type: rsa, ecdsa, ed25519."""
    return key.get_name().removeprefix("ssh-").partition("-")[0]
