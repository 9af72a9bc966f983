"""Directories are on the disk before they have their name; a full disk names the file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from devices.documents.disk import names_when_full, rename_synced


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


def test_a_full_disk_names_the_file_and_other_errors_stay() -> None:
    with (
        pytest.raises(OSError, match=r"No space left on device: '/dev/full'"),
        names_when_full(Path("/dev/full")),
        Path("/dev/full").open("w") as full,
    ):
        full.write("too much")
    for other in (OSError("x"), OSError(5, "Input/output error"), OSError(28, "full", "its own")):
        with (
            pytest.raises(OSError, match=re.escape(str(other))) as caught,
            names_when_full(Path("file")),
        ):
            raise other
        assert caught.value is other
