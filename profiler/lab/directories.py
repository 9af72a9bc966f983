"""Directories of running emulated boards."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devices.claims.scratch import ScratchDirectory
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


def run_directory(name: str) -> ScratchDirectory:
    """Directory of a board that one command starts."""
    return ScratchDirectory(boards_directory() / "runs", f"{name}.")
