"""Cache of the lab's builds: each is complete or absent, and is built once even if two processes
want it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from devices.documents.disk import rename_synced
from devices.documents.readable import file_failure
from devices.errors import BuildFailed
from devices.user_cache import user_cache

_UNFINISHED = ".part-"


class BuildCache:
    """Directory ``~/.cache/joulewright/lab``, or the one below ``XDG_CACHE_HOME``.

    While it is entered, no other process builds in it; ``progress`` is called if another process
    must be waited for. Every entry is named by a digest of all its inputs, so it is never out of
    date. Removing the directory is always safe, and makes the next build fetch the newest packages.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._root = user_cache() / "lab"
        self._progress = progress
        self._lock: int | None = None

    def directory(self, name: str, key: str, build: Callable[[Path], None]) -> Path:
        """The directory that ``build`` has filled once for this ``key``.

        Raises :class:`~devices.errors.BuildFailed` when the cache cannot be written, and what
        ``build`` raises.
        """
        finished = self._root / f"{name}-{key}"
        if finished.is_dir():
            return finished
        try:
            part = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._root))
            try:
                build(part)
                rename_synced(part, finished)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise BuildFailed(
                f"the lab's {name} cannot be built in {self._root}: {file_failure(error)}"
            ) from error
        return finished

    def __enter__(self) -> Self:
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BuildFailed(f"the lab's cache cannot be used: {file_failure(error)}") from error
        try:
            self._acquire(self._lock)
        except BaseException:
            os.close(self._lock)
            raise
        for abandoned in self._root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _acquire(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._progress("waiting for another process that builds the lab")
            fcntl.flock(lock, fcntl.LOCK_EX)


def digest(*parts: bytes | str) -> str:
    """Short digest of all inputs of a build."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:16]
