"""Processes that use a directory or a device node, as messages name them."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from devices.documents.document import StrictModel
from devices.quantities import Count, Name

_PROC = Path("/proc")
_START_TIME = 19  # field of /proc/PID/stat after the name, proc(5)
_MOST_SHOWN = 120


class Owner(StrictModel):
    """A process: its number, its host, its command line, and since when it runs or owns."""

    pid: Count
    host: Name
    command: str
    since: str

    @classmethod
    def this_process(cls) -> Owner:
        """This process, as an owner from now on."""
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        return cls(
            pid=os.getpid(), host=_host(), command=_shortened(command), since=_local(time.time())
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.command}), since {self.since}"


def users_of(node: Path) -> list[Owner]:
    """The processes that have a device node open.

    Returns:
        What Linux lists in ``/proc``: processes of this user, and for root all of them. Empty on
            other systems.
    """
    try:
        wanted = node.stat()
    except OSError:
        return []
    found = []
    for process in _PROC.glob("[0-9]*"):
        if any(os.path.samestat(wanted, opened) for opened in _open_files(process)):
            owner = _owner(process)
            if owner is not None:
                found.append(owner)
    return found


def _open_files(process: Path) -> Iterator[os.stat_result]:
    try:
        handles = list((process / "fd").iterdir())
    except OSError:  # of another user, or ended
        return
    for handle in handles:
        try:
            yield handle.stat()
        except OSError:
            continue


def _owner(process: Path) -> Owner | None:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        stat = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    began_s = int(stat[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    command = shlex.join(word.decode(errors="replace") for word in words)
    return Owner(
        pid=int(process.name),
        host=_host(),
        command=_shortened(command),
        since=_local(time.time() - age_s),
    )


def _host() -> str:
    return socket.gethostname() or "this computer"


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _shortened(text: str) -> str:
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"
