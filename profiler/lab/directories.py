"""Directories of running emulated boards, and the removal of leftovers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices.user_cache import user_cache


def boards_directory() -> Path:
    """Directory below ``XDG_CACHE_HOME`` or ``~/.cache``. It is private, since anyone who can write
    to an emulator's monitor has the rights of its user."""
    directory = user_cache() / "boards"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


@contextmanager
def boards_lock() -> Iterator[None]:
    """Hold the lock for looking up, starting or ending boards. It is held only for moments."""
    handle = os.open(boards_directory() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class RunDirectory:
    """Directory of a board that one command starts.

    The kernel releases its lock when the command ends, however that happens. The next command that
    needs a directory removes leftovers.
    """

    def __init__(self, name: str) -> None:
        runs = boards_directory() / "runs"
        with boards_lock():
            runs.mkdir(mode=0o700, exist_ok=True)
            for leftover in runs.iterdir():
                _remove_unless_locked(leftover)
            self.path = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=runs))
            self._handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the directory. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _remove_unless_locked(directory: Path) -> None:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed by its own command
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(handle)
