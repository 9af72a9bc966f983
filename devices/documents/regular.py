"""Refusal of what is no regular file, before it is opened or replaced."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_KINDS: Mapping[int, str] = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device file",
    stat.S_IFBLK: "a device file",
}


def require_regular(path: Path) -> None:
    """Check that a path is a regular file, or a link to one.

    A named pipe may block the program for ever, a device never end, and opening a serial port
    resets some boards.

    Raises:
        OSError: It is something else, or does not exist; the error names ``path``.
    """
    _require(path, "write what it gives to a regular file")


def replaced_by_writing(path: Path) -> Path:
    """The file that writing to a path replaces: the path itself, or what links there lead to.

    A new file in the place of a device would take the device from the whole computer.

    Args:
        path: A regular file, a link, or a path at which nothing is yet.

    Raises:
        OSError: Something else is there; the error names ``path``.
    """
    with suppress(FileNotFoundError):
        _require(path, "only a regular file is written to or replaced")
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _require(path: Path, otherwise: str) -> None:
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "no regular file")
        raise OSError(errno.EINVAL, f"it is {what}; {otherwise}", str(path))
