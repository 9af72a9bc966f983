"""Files that survive a power cut, and the name of the file that filled a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def sync(path: Path) -> None:
    """Bring a file or a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_synced(made: Path, place: Path) -> None:
    """Rename a finished directory: bring all its files to the disk first, then the new name.

    Args:
        made: The directory, of files and directories only.
        place: Its new path, on the same file system.

    Raises:
        OSError: The disk is full, or ``place`` exists and is not an empty directory.
    """
    for path in (*made.rglob("*"), made):
        sync(path)
    made.rename(place)
    sync(place.parent)


def lacks_room(error: OSError) -> bool:
    """Whether an error comes from a full disk; ``tempfile`` then finds no usable directory."""
    return error.errno in _FULL or "No usable temporary directory" in str(error)


@contextmanager
def names_when_full(path: Path) -> Iterator[None]:
    """Name ``path`` in the error of a full disk, which a write to an open file does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
