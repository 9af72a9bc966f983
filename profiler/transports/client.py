"""Locks by which sessions recognise the leftovers of dead ones.

Each session holds a lock on this computer while its process lives. The kernel releases the lock
however that process ends. The lock's file names the computer: a directory that several share may
keep the locks of each apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import socket
from pathlib import Path

from devices.user_cache import user_cache

_TOKEN = re.compile(r"[0-9a-f]{32}")


class ClientLock:
    """Lock of one session. ``token`` names the session, here and on the board.

    Where no lock file can be made, the session still works; it is then recognised as dead only by
    its age.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._handle: int | None = None

    def acquire(self) -> None:
        try:
            _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = _lock(_directory() / self.token, os.O_CREAT)
        except OSError:
            self._handle = None
            return
        with contextlib.suppress(OSError):  # a full disk: the file then names no computer
            os.write(self._handle, socket.gethostname().encode())

    def release(self, *, cleaned: bool) -> None:
        """Release the lock. ``cleaned`` means that nothing is left on the board for a later session
        to remove."""
        if self._handle is not None:
            if cleaned:
                forget(self.token)
            os.close(self._handle)
            self._handle = None


def is_dead(token: str) -> bool:
    """Whether a process of this computer began that session and has ended since.

    False for a session that another computer began, and for names that are no token.
    """
    if not _TOKEN.fullmatch(token):
        return False
    try:
        handle = _lock(_directory() / token, 0)
    except OSError:
        return False
    try:
        return os.read(handle, 1024).decode(errors="replace") in {"", socket.gethostname()}
    finally:
        os.close(handle)


def forget(token: str) -> None:
    """Remove the lock file of a session whose leftovers are gone."""
    (_directory() / token).unlink(missing_ok=True)


def is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _directory() -> Path:
    return user_cache() / "clients"


def _lock(path: Path, flags: int) -> int:
    """Open and lock a file. Raises :class:`OSError` if it is locked already."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
