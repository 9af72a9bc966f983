"""Directory for files on this computer that can be rebuilt."""

from __future__ import annotations

import os
from pathlib import Path

from devices.errors import SetupMissing


def user_cache() -> Path:
    """Path of the cache, which may not exist yet.

    Returns:
        ``~/.cache/joulewright``, or ``joulewright`` below ``XDG_CACHE_HOME`` if that is set (XDG
        Base Directory Specification).

    Raises:
        SetupMissing: Neither that is set nor has this user a home directory, as in a container
            that runs as a user without an entry in its list of users.
    """
    if own := os.environ.get("XDG_CACHE_HOME"):
        return Path(own) / "joulewright"
    try:
        return Path.home() / ".cache" / "joulewright"
    except RuntimeError:
        raise SetupMissing(
            "this user has no home directory, in which compiled programs would be kept",
            remedy="set HOME or XDG_CACHE_HOME to a directory that can be written to",
        ) from None
