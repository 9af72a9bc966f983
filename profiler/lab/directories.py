"""Where emulated boards keep what they need while they run, and how leftovers are recognised."""

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
    """Below ``XDG_CACHE_HOME``, or ``~/.cache``. Nobody else may look into it: whoever can write to
    an emulator's monitor can do what its user can."""
    directory = user_cache() / "boards"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


@contextmanager
def boards_lock() -> Iterator[None]:
    """Held by one process at a time, for moments only: while boards are looked up, begun or
    ended."""
    handle = os.open(boards_directory() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class RunDirectory:
    """A directory of its own for a board that one command starts. The kernel lets go of its lock
    when the command ends, however it does, and the next one that needs a directory removes what
    was left."""

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
        """May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _remove_unless_locked(directory: Path) -> None:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed by the command that it belonged to
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(handle)
