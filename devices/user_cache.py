"""Directory for files on this computer that can be rebuilt."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """Path of the cache, which may not exist yet.

    Returns:
        ``~/.cache/joulewright``, or ``joulewright`` below ``XDG_CACHE_HOME`` if that is set (XDG
        Base Directory Specification).
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joulewright"
