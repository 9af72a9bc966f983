"""Route to a board over SSH: from its description, then the SSH configuration, then defaults."""

from __future__ import annotations

import getpass
import shlex
from dataclasses import dataclass
from pathlib import Path

from devices.description import SshTransport
from devices.documents.document import DocumentError
from profiler.transports.ssh_config import USER_FILE, Settings, SshConfig, parse_jumps

_PORT = 22
_KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("~/.ssh/known_hosts2"))
_GLOBAL_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
_NOWHERE = {"none", "/dev/null"}


@dataclass(frozen=True)
class Host:
    """One end of an SSH connection.

    ``name`` is the name in the description or in ``ProxyJump``, ``host`` the address that it stands
    for. The files ``known_hosts`` are searched for its key under ``known_as``; an accepted key goes
    to the first. ``key`` comes from the description, ``identities`` from the configuration. At most
    one of ``jump``, a jump host, and ``proxy_command`` is given.
    """

    name: str
    user: str
    host: str
    port: int
    known_hosts: tuple[Path, ...]
    known_as: str
    key: Path | None = None
    identities: tuple[Path, ...] = ()
    identities_only: bool = False
    jump: Host | None = None
    proxy_command: str | None = None
    is_user_stated: bool = True

    def __str__(self) -> str:
        address = f"{self.user}@{self.host}:{self.port}"
        return (
            address
            if self.name.lower() == self.host
            else f"{address} ({self.name} in the SSH config)"
        )

    @property
    def hops(self) -> list[Host]:
        """The hosts to connect to, each through the one before it; this host is the last."""
        return [self] if self.jump is None else [*self.jump.hops, self]


def find_route(reached: SshTransport) -> Host:
    """The board's host, with its jump hosts.

    Raises :class:`~devices.documents.document.DocumentError` for an invalid configuration.
    """
    return _Finder(SshConfig.read(), reached.connect_timeout_s).board(reached)


def address(host: str, port: int) -> str:
    """Name of a host in known_hosts where it has no alias."""
    return host if port == _PORT else f"[{host}]:{port}"


class _Finder:
    def __init__(self, config: SshConfig, limit_s: float) -> None:
        self._config = config
        self._limit_s = limit_s

    def board(self, reached: SshTransport) -> Host:
        """The board's host. A described key and known_hosts file also apply to a described jump
        host."""
        jump = None
        if reached.jump is not None:
            jump = self._find(
                reached.jump.host,
                user=reached.jump.user,
                port=reached.jump.port,
                key=reached.key,
                is_key_alone=False,
                known_hosts=reached.known_hosts,
            )
        return self._find(
            reached.host,
            user=reached.user,
            port=reached.port,
            key=reached.key,
            known_hosts=reached.known_hosts,
            jump=jump,
        )

    def _find(
        self,
        name: str,
        *,
        user: str | None,
        port: int | None,
        key: Path | None = None,
        is_key_alone: bool = True,
        known_hosts: Path | None = None,
        jump: Host | None = None,
        led_to: tuple[str, ...] = (),
    ) -> Host:
        """Settings of one host. ``led_to`` are the hosts whose configuration names it as their jump
        host."""
        found = self._config.lookup(name, user=user, port=port, limit_s=self._limit_s)
        proxy_command = None
        if jump is None:
            # The first of the two applies, as for ssh.
            way = next((key for key in found if key in {"proxyjump", "proxycommand"}), None)
            if way == "proxyjump":
                jump = self._jumps(name, found[way], led_to)
            elif way == "proxycommand":
                proxy_command = found[way]
        if proxy_command is not None and found.get("proxyusefdpass", "").lower() == "yes":
            raise DocumentError(
                f"{USER_FILE}: ProxyUseFdpass of {name} is not supported; use a ProxyCommand that"
                " passes the data on"
            )
        host, used_port = found["hostname"].lower(), int(found.get("port", _PORT))
        files = (known_hosts.expanduser(),) if known_hosts is not None else _known_hosts(found)
        identities = () if key is not None and is_key_alone else _identities(found)
        return Host(
            name=name,
            user=found.get("user") or getpass.getuser(),
            host=host,
            port=used_port,
            known_hosts=files,
            known_as=found.get("hostkeyalias") or address(host, used_port),
            key=key.expanduser() if key is not None else None,
            identities=identities,
            identities_only=found.get("identitiesonly", "").lower() == "yes",
            jump=jump,
            proxy_command=proxy_command,
            is_user_stated="user" in found,
        )

    def _jumps(self, name: str, value: str, led_to: tuple[str, ...]) -> Host | None:
        if value.lower() == "none":
            return None
        try:
            jumps = parse_jumps(value)
        except ValueError as error:
            raise DocumentError(f"{USER_FILE}: {name}: {error}") from None
        led_to = (*led_to, name)
        if any(jump.host == name for jump in jumps):
            return None  # a wildcard would make the jump host jump through itself
        hop = None
        for jump in jumps:
            if jump.host in led_to:
                raise DocumentError(
                    f"{USER_FILE}: ProxyJump leads in a circle: {' → '.join((*led_to, jump.host))}"
                )
            hop = self._find(jump.host, user=jump.user, port=jump.port, jump=hop, led_to=led_to)
        return hop


def _known_hosts(found: Settings) -> tuple[Path, ...]:
    """Known_hosts files of the user, then those of the system. Keys are always checked:
    ``UserKnownHostsFile none`` and ``/dev/null`` stand for the default."""
    users = _files(found.get("userknownhostsfile", "")) or _KNOWN_HOSTS
    systems = _files(found.get("globalknownhostsfile", "")) or _GLOBAL_KNOWN_HOSTS
    return tuple(path.expanduser() for path in (*users, *systems))


def _files(value: str) -> list[Path]:
    return [Path(name) for name in shlex.split(value) if name not in _NOWHERE]


def _identities(found: Settings) -> tuple[Path, ...]:
    names = found.get("identityfile", ())
    return tuple(Path(name).expanduser() for name in names if name.lower() != "none")
