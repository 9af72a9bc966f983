"""Directories that one process uses for a while, and that no killed process leaves for good."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class ScratchDirectory:
    """A new private directory, whose ``path`` is ``parent/PREFIX`` and some more letters.

    The kernel releases its lock when the process ends, however that happens. The next process that
    needs a directory of the same parent and prefix removes those that nobody has locked.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(whole, fcntl.LOCK_EX)
            for leftover in parent.glob(f"{prefix}*"):
                _remove_unless_locked(leftover)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self._handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        finally:
            os.close(whole)

    def remove(self) -> None:
        """Remove the directory. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def _remove_unless_locked(directory: Path) -> None:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):  # removed by its own process, or another user's
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(handle)
