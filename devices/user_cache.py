"""Where this project keeps on this computer what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """``~/.cache/joulewright``, or below ``XDG_CACHE_HOME`` (XDG Base Directory Specification). Not
    made yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joulewright"
