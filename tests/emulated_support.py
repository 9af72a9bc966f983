"""What tests with emulated boards share: firmware and images are built once for all of them, and
kept for the next run; which boards are running is theirs alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devices.user_cache import user_cache

_BUILDS = ("firmware", "lab")


@pytest.fixture(scope="session")
def emulator_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be what ``XDG_CACHE_HOME`` says."""
    kept = user_cache()
    own = tmp_path_factory.mktemp("cache")
    (own / kept.name).mkdir()
    for name in _BUILDS:
        (kept / name).mkdir(parents=True, exist_ok=True)
        (own / kept.name / name).symlink_to(kept / name)
    return own


@pytest.fixture(scope="module")
def own_boards(emulator_cache: Path) -> Iterator[None]:
    """Boards of this user's that ``lab up`` keeps running are out of sight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(emulator_cache))
        yield
