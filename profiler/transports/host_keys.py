"""SSH host keys: check them, and say how to accept or replace one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry

from devices.errors import BoardUnreachable
from profiler.transports.route import Host, address

_REVOKED = "@revoked"


def unknown_key(host: Host, key: paramiko.PKey) -> BoardUnreachable:
    return BoardUnreachable(
        f"{host}: its host key ({key.get_name()} {key.fingerprint}) is not in"
        f" {host.known_hosts[0]}; if the board itself shows the same fingerprint"
        f" (ssh-keygen -lf /etc/ssh/ssh_host_{_short_name(key)}_key.pub), accept it with:"
        f" {_command_that_accepts(host, key)}"
    )


def changed_key(host: Host, presented: paramiko.PKey, known: paramiko.PKey) -> BoardUnreachable:
    file = _file_that_has(host, known)
    return BoardUnreachable(
        f"{host}: THE HOST KEY HAS CHANGED: {file} has {known.get_name()}"
        f" {known.fingerprint}, but it presents {presented.get_name()} {presented.fingerprint};"
        " the connection may be intercepted; only if you know that the board was"
        f" reinstalled, remove the old key with: ssh-keygen -R {shlex.quote(host.known_as)}"
        f" -f {shlex.quote(str(file))}"
    )


def revoked_key(host: Host, presented: paramiko.PKey) -> BoardUnreachable | None:
    """The refusal of a key that a known_hosts file marks as revoked; None for any other key."""
    for line in _lines(host):
        if line.is_revoked and line.key == presented:
            return BoardUnreachable(
                f"{host}: its host key ({presented.get_name()} {presented.fingerprint}) is marked"
                f" as revoked in {line.file}",
                remedy="give the host a new key; remove the mark only if it is a mistake",
            )
    return None


def load_known_hosts(client: paramiko.SSHClient, host: Host) -> None:
    """Load the keys that ``host`` may present into ``client``.

    A missing file counts as empty. A key that is marked as revoked, for any host, is never loaded.
    Raises :class:`~devices.errors.BoardUnreachable`.
    """
    lines = list(_lines(host))
    revoked = [line.key for line in lines if line.is_revoked]
    known = client.get_host_keys()
    for file in host.known_hosts:
        keys: dict[str, paramiko.PKey] = {}
        for line in lines:
            if line.file == file and line.names(host.known_as) and line.key not in revoked:
                keys.setdefault(line.key.get_name(), line.key)
        for kind, key in keys.items():
            # Stored under the name by which paramiko looks it up, since it ignores HostKeyAlias.
            known.add(address(host.host, host.port), kind, key)


def is_known(client: paramiko.SSHClient, host: Host) -> bool:
    """Whether :func:`load_known_hosts` found any key of the host."""
    return client.get_host_keys().lookup(address(host.host, host.port)) is not None


@dataclass(frozen=True)
class _Line:
    """A key in a known_hosts file. The names of its hosts may be hashed."""

    file: Path
    hosts: tuple[str, ...]
    key: paramiko.PKey
    is_revoked: bool

    @classmethod
    def parse(cls, file: Path, text: str) -> _Line | None:
        """Parse a line. None if it has no key of a host that can be read: a comment, a key of a
        certificate authority, an unknown type, a damaged key."""
        words = text.split()
        is_marked = text.lstrip().startswith("@")
        marker = words.pop(0) if is_marked else None
        if marker not in {None, _REVOKED} or len(words) < 3 or words[0].startswith("#"):
            return None
        hosts, _, encoded = words[:3]
        try:
            entry = HostKeyEntry.from_line(" ".join(words))
        except Exception:  # paramiko passes on errors of the libraries that it uses
            return None
        if entry is None or entry.key.get_base64() != encoded:  # paramiko completes a cut key
            return None
        return cls(file, tuple(hosts.split(",")), entry.key, is_revoked=is_marked)

    def names(self, host: str) -> bool:
        """Whether the line is about this host."""
        return any(
            named == host or (named.startswith("|1|") and _hashed(host, named) == named)
            for named in self.hosts
        )


def _hashed(host: str, salted: str) -> str | None:
    """The host's name, hashed as ``salted`` is; None if that is damaged."""
    try:
        return paramiko.HostKeys.hash_host(host, salted)
    except (ValueError, AssertionError):
        return None


def _lines(host: Host) -> Iterator[_Line]:
    """The keys in all known_hosts files of a host, also those of other hosts."""
    for file in host.known_hosts:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BoardUnreachable(f"{host}: cannot check its host key: {file}: {error}") from error
        parsed = (_Line.parse(file, line) for line in text.split("\n"))
        yield from (line for line in parsed if line is not None)


def _file_that_has(host: Host, known: paramiko.PKey) -> Path:
    """The known_hosts file that holds the key ``known``."""
    having = (
        line.file
        for line in _lines(host)
        if not line.is_revoked and line.key == known and line.names(host.known_as)
    )
    return next(having, host.known_hosts[0])


def _command_that_accepts(host: Host, key: paramiko.PKey) -> str:
    """Command that accepts the key: ``ssh-keyscan`` where it can reach the host and knows its name,
    else ``ssh``, which asks."""
    file = host.known_hosts[0]
    is_direct = host.jump is None and host.proxy_command is None
    if is_direct and host.known_as == address(host.host, host.port):
        scan = ["ssh-keyscan", "-p", str(host.port), "-t", _short_name(key), host.host]
        return f"{shlex.join(scan)} >> {shlex.quote(str(file))}"
    # Names as stated, so that ssh finds the same entries of its configuration.
    files = f'"{file}"' if " " in str(file) else file  # ssh takes several, separated by spaces
    command = ["ssh", "-o", "StrictHostKeyChecking=ask", "-o", f"UserKnownHostsFile={files}"]
    if host.jump is not None:
        command += ["-J", ",".join(_jump(hop) for hop in host.jump.hops)]
    return shlex.join([*command, "-p", str(host.port), f"{host.user}@{host.name}", "true"])


def _jump(host: Host) -> str:
    name = f"[{host.name}]" if ":" in host.name else host.name
    return f"{host.user}@{name}:{host.port}"


def _short_name(key: paramiko.PKey) -> str:
    """Name of the key's type in OpenSSH's tools: rsa, ecdsa, ed25519."""
    return key.get_name().removeprefix("ssh-").partition("-")[0]
