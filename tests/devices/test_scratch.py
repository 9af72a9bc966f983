"""Scratch directories that killed processes leave, and that the next process removes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from devices.claims.scratch import ScratchDirectory
from tests.support.paths import ROOT

PROGRAM = """
import sys, time
from pathlib import Path
from devices.claims.scratch import ScratchDirectory
scratch = ScratchDirectory(Path(sys.argv[1]), "work-")
(scratch.path / "file").write_text("half")
print(scratch.path, flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with Popen(words, cwd=ROOT, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        with ScratchDirectory(tmp_path, "work-") as beside:
            assert theirs.is_dir()
            assert beside.path != theirs
        assert not beside.path.exists()
        os.kill(process.pid, signal.SIGKILL)
    assert theirs.is_dir()
    with ScratchDirectory(tmp_path, "work-") as mine:
        assert sorted(tmp_path.iterdir()) == sorted([mine.path, tmp_path / "other"])
    assert list(tmp_path.iterdir()) == [tmp_path / "other"]


def test_a_directory_that_another_user_keeps_private_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "work-of-another"
    private.mkdir()
    opened = os.open

    def refusing(path: Path, *words: Any, **named: Any) -> int:
        if path == private:
            raise PermissionError
        return opened(path, *words, **named)

    monkeypatch.setattr(os, "open", refusing)
    with ScratchDirectory(tmp_path, "work-") as mine:
        assert mine.path.is_dir()
    assert list(tmp_path.iterdir()) == [private]
