"""SSH host keys: check them, and say how to accept or replace one."""

from __future__ import annotations

import shlex
from pathlib import Path

import paramiko

from devices.errors import BoardUnreachable
from profiler.transports.route import Host, address


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


def load_known_hosts(client: paramiko.SSHClient, host: Host) -> None:
    """Load the keys that ``host`` may present into ``client``. A missing file counts as empty.
    Raises :class:`~devices.errors.BoardUnreachable`."""
    known = client.get_host_keys()
    for path in host.known_hosts:
        keys = _read(host, path).lookup(host.known_as)
        for kind, key in keys.items() if keys is not None else ():
            # Stored under the name by which paramiko looks it up, since it ignores HostKeyAlias.
            known.add(address(host.host, host.port), kind, key)


def is_known(client: paramiko.SSHClient, host: Host) -> bool:
    """Whether :func:`load_known_hosts` found any key of the host."""
    return client.get_host_keys().lookup(address(host.host, host.port)) is not None


def _read(host: Host, path: Path) -> paramiko.HostKeys:
    try:
        return paramiko.HostKeys(str(path))
    except FileNotFoundError:
        return paramiko.HostKeys()
    except (OSError, UnicodeDecodeError) as error:
        raise BoardUnreachable(f"{host}: cannot check its host key: {path}: {error}") from error


def _file_that_has(host: Host, known: paramiko.PKey) -> Path:
    """The known_hosts file that holds the key ``known``."""
    having = (path for path in host.known_hosts if _read(host, path).check(host.known_as, known))
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
