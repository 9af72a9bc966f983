"""The benchmark of demos runs what ``make demo`` runs."""

from __future__ import annotations

import shlex
import subprocess

from benchmarks.replay.demos import demo_commands
from tests.support.paths import ROOT


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
