"""Fixtures that watch over the emulators of tests, in test runs of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiler.lab.process import Process
from tests.support.paths import ROOT

pytestmark = pytest.mark.emulated

LEAVES_ONE = """
from devices.description import load_description
from profiler.lab import bring_up

def test_a_board_is_brought_up(own_boards):
    print("pid", bring_up(load_description("emulated-m4f"), lambda _what: None).pid)
"""

LENDS_ONE = """
import pytest
from devices.description import load_description

@pytest.fixture
def board(shared_boards):
    with shared_boards.lent(load_description("emulated-m4f")) as board:
        yield board

@pytest.mark.parametrize("fails", [False, True, False])
def test_a_board_is_lent(board, fails):
    print("pid", board.pid)
    assert not fails
"""


@dataclass(frozen=True)
class Run:
    exit_code: int
    output: str

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"pid (\d+)", self.output)]


def run(test: str, directory: Path) -> Run:
    (directory / "test_it.py").write_text(test)
    words = (
        "-p",
        "tests.support.boards.emulated",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-q",
        "-s",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "test_it.py"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr)


def is_running(pid: int) -> bool:
    """Whether the process runs; one that has ended without being waited for does not."""
    try:
        return Process.of(pid).is_alive
    except ProcessLookupError:
        return False


def test_an_emulator_left_running_fails_the_run_and_is_ended(tmp_path: Path) -> None:
    done = run(LEAVES_ONE, tmp_path)
    (pid,) = done.pids
    assert done.exit_code == 1
    assert f"{pid}: 'qemu-system-arm'" in done.output
    assert not is_running(pid)


def test_a_shared_board_is_replaced_after_a_test_fails(tmp_path: Path) -> None:
    done = run(LENDS_ONE, tmp_path)
    first, second, third = done.pids
    assert first == second != third
    assert "1 failed, 2 passed" in done.output  # and no error after them
    assert "error" not in done.output.splitlines()[-1]
    assert not any(is_running(pid) for pid in done.pids)
