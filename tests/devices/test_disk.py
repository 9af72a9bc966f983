"""Directories are on the disk before they have their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devices.documents.disk import rename_synced


def test_a_directory_is_renamed_after_all_of_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "file").write_text("content")
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{handle}").readlink()), place.exists()))
        fsync(handle)

    monkeypatch.setattr("os.fsync", noted)
    rename_synced(made, place)
    assert sorted(path for path, is_renamed in synced if not is_renamed) == [
        str(made),
        str(made / "inner"),
        str(made / "inner" / "file"),
    ]
    assert [path for path, is_renamed in synced if is_renamed] == [str(tmp_path)]
    assert (place / "inner" / "file").read_text() == "content"
