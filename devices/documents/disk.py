"""Files and directories that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


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
