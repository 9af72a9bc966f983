"""``Console`` when standard error is not a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from commands.console import Console
from tests.support.boards.processes import wait_until


def test_status_prints_a_line_for_each_text_except_passing_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.console._SOON_S", 600.0)
    with Console().status("beginning") as status:
        status.show("building")
        status.show("compiling a.c", passing=True)
        status.show("running")
    captured = capsys.readouterr()
    assert captured.err == "building\nrunning\n"
    assert captured.out == ""


WITHOUT_A_READER = """
import os
from commands.console import Console

with Console().progress("solving", 2) as progress:
    progress.show("a point", 1)
    os.dup2(int(os.environ["BROKEN"]), 2)
Console().result("the result")
"""


def test_a_progress_bar_whose_reader_has_gone_does_not_end_the_command() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_READER],
        env={**os.environ, "BROKEN": str(writer)},
        pass_fds=(writer,),
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "the result\n")


def test_the_first_text_of_a_status_is_printed_if_nothing_follows_soon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.console._SOON_S", 0.01)
    said = []
    with Console().status("reading a file"), Console().status():
        wait_until(lambda: bool(said.append(capsys.readouterr().err) or "".join(said)))
        time.sleep(0.1)
    said.append(capsys.readouterr().err)
    assert "".join(said) == "reading a file\n"


def test_a_status_keeps_to_its_rate_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Console().status(lines_every_s=60.0) as status:
        status.show("first")
        status.show("second")
    assert capsys.readouterr().err == "first\n"


def test_progress_with_a_count_prints_a_line_for_each_item(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Console().progress("solving", 2) as progress:
        progress.show("a point", 1)
        progress.show("a point", 2)
    assert capsys.readouterr().err.rstrip() == "1 of 2  a point\n2 of 2  a point"


def test_progress_with_a_share_prints_a_line_for_each_activity(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Console().progress("connecting") as progress:
        progress.show("block 1", 0.0)
        progress.show("block 1", 0.25, "3 s left")
        progress.show("block 2", 0.5, "2 s left")
    assert capsys.readouterr().err.rstrip() == "  0 %  block 1\n 50 %  block 2  2 s left"


def test_no_name_in_a_text_changes_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.say("reading\x1b[2J\r\nnext")
    console.result("na\udcffme\x07")
    console.table([["head"], ["\x9b31m"]])
    captured = capsys.readouterr()
    assert captured.err == "reading\\x1b[2J\\r\nnext\n"
    assert captured.out == "na\\udcffme\\x07\nhead\n\\x9b31m\n"
