"""Archive that Linux unpacks as its first file system.

Format: "newc" of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst: a header
of thirteen numbers of eight hexadecimal digits, the name and the content, padded to four bytes.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass

_MAGIC = b"070701"
_END = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """An entry of the archive. ``mode`` includes the file type; ``data`` is a file's content or a
    link's target; ``device`` holds the numbers of a device node."""

    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def file(data: bytes | str, permissions: int = 0o644) -> Entry:
    return Entry(stat.S_IFREG | permissions, data.encode() if isinstance(data, str) else data)


def directory(permissions: int = 0o755) -> Entry:
    return Entry(stat.S_IFDIR | permissions)


def link(target: str) -> Entry:
    return Entry(stat.S_IFLNK | 0o777, target.encode())


def character_device(major: int, minor: int, permissions: int) -> Entry:
    return Entry(stat.S_IFCHR | permissions, device=(major, minor))


def archive(entries: Mapping[str, Entry]) -> bytes:
    """Make an archive, owned by root, with time 0. Missing parent directories are added. The same
    entries always give the same bytes."""
    whole = dict(entries)
    for path in entries:
        above = posixpath.dirname(path)
        while above:
            whole.setdefault(above, directory())
            above = posixpath.dirname(above)
    out = bytearray()
    for inode, path in enumerate(sorted(whole), 1):
        _append(out, inode, path, whole[path], links=1)
    _append(out, 0, _END, Entry(0), links=1)
    return bytes(out)


def _append(out: bytearray, inode: int, path: str, entry: Entry, links: int) -> None:
    name = path.encode() + b"\0"
    numbers = (
        inode,
        entry.mode,
        0,  # user
        0,  # group
        links,
        0,  # time
        len(entry.data),
        0,  # device that the file is on
        0,
        *entry.device,
        len(name),
        0,  # checksum, only used by another format
    )
    out += _MAGIC + b"".join(b"%08X" % number for number in numbers) + name
    _pad(out)
    out += entry.data
    _pad(out)


def _pad(out: bytearray) -> None:
    out += b"\0" * (-len(out) % 4)
