"""The benchmark of demos runs what ``make demo`` runs."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from benchmarks.replay import demos
from benchmarks.replay.demos import demo_commands, demos_page
from tests.support.paths import ROOT
from tests.support.progress import ignore


def test_the_commands_are_those_of_make_demo() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", " ")
    printed = [shlex.split(line) for line in said.splitlines() if " cli.py " in line]
    found = demo_commands((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert [words[words.index("cli.py") + 1 :] for words in printed] == found
    assert [words[0] for words in found] == ["profile", "solve", "run"]


def test_a_demo_that_fails_has_a_row_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli.py").write_text("raise SystemExit('no step was undisturbed')\n")
    (tmp_path / "Makefile").write_text("\ndemo: setup\n\tpython cli.py profile\n\n")
    monkeypatch.setattr(demos, "ROOT", tmp_path)
    (table,) = demos_page(2, [], ignore).tables
    assert [row[:2] for row in table.rows] == [
        ("1", "failed: profile: no step was undisturbed"),
        ("2", "failed: profile: no step was undisturbed"),
    ]
    assert table.note == "2 of 2 runs failed."
