"""Mistakes on the command line: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli
from commands.command_line import _SUMMARIES, _command
from devices.description import CATALOG
from devices.documents.document import dump_yaml
from devices.published import load_published
from tests.support.paths import ROOT

SCHEDULE = ROOT / "tests" / "references" / "schedule-1.json"
INSTANCE = ROOT / "benchmarks" / "instances" / "poet-linear-m0.json"


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that is refused prints last."""
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


# --- values of options ----------------------------------------------------------------------------


def typed_options() -> Iterator[tuple[str, str]]:
    """The words of every command with each option whose value is parsed."""
    for name in _SUMMARIES:
        parser = argparse.ArgumentParser()
        _command(name).add_options(parser)
        yield from _typed_options_of(name, parser)


def _typed_options_of(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _typed_options_of(f"{words} {name}", below)
            continue
        takes_path = action.type is Path or getattr(action.type, "__name__", "") == "_results"
        if action.type is not None and not takes_path:
            yield words, action.option_strings[0]


@pytest.mark.parametrize(("command", "option"), list(typed_options()))
def test_the_error_says_which_values_an_option_takes(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = said(capsys, *command.split(), option, "x")
    what = "a (whole )?(number|fraction|course)|the size of a slice"
    assert re.search(rf"{option}.*: 'x' is not ({what})", error)
    assert "invalid" not in error


def test_an_endless_word_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(capsys, "profile", "--device", "local", "--seed", "9" * 5000)) < 600
    error = said(capsys, "solve", "--profile", "m4", "--model", "x" * 5000, "--ram-budget", "1MiB")
    assert len(error) < 1000


@pytest.mark.slow
def test_a_deadline_shorter_than_the_ops_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("solve", "--graph", str(INSTANCE), "--ram-budget", "50%", "--deadline", "0.01x")
    assert cli.main([*words, "--time-limit", "5"]) == 5
    assert "computing every op once takes" in capsys.readouterr().out


def test_lab_up_with_a_name_points_to_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert "lab up --device emulated-m4f" in said(capsys, "lab", "up", "emulated-m4f")


# --- files and directories ------------------------------------------------------------------------


WRITES = [
    ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--out", "WHERE/x.json"),
    ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--pictures", "WHERE"),
    ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--export-graph", "WHERE/g.json"),
    ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--results", "WHERE"),
    ("sweep", "--graph", str(INSTANCE), "--ram-budgets", "80%", "--out", "WHERE"),
    ("profile", "--device", "local", "--model", "linear", "--out", "WHERE/x.yaml"),
    ("export", "--schedule", str(SCHEDULE), "--format", "perfetto", "--out", "WHERE"),
    ("export", "--schedule", str(SCHEDULE), "--format", "perfetto", "--out", "WHERE/a/b"),
    ("export", "--schedule", str(SCHEDULE), "--format", "c", "--out", "WHERE"),
    ("plot", "--profile", "m4", "--directory", "WHERE"),
    ("plot", "--profile", "m4", "--results", "WHERE"),
    ("campaign", "run", "published", "--results", "WHERE"),
]


@pytest.mark.parametrize("words", WRITES)
def test_a_file_where_a_directory_is_needed_is_found_before_the_work(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for work in (
        "solver.requests.choice.solve_graph",
        "solver.sweep.sweep.sweep",
        "profiler.run.run.profile_device",
        "solver.files.solved.read_solved",
        "plots.pictures.draw_profile",
    ):
        monkeypatch.setattr(work, pytest.fail)
    Path("taken").touch()
    error = said(capsys, *(word.replace("WHERE", "taken") for word in words))
    assert error == "error: taken: this is a file, but a directory is needed here"
    assert [path.name for path in Path().iterdir()] == ["taken"]


def test_a_directory_where_a_file_is_to_be_written_is_found_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("solver.requests.choice.solve_graph", pytest.fail)
    Path("there").mkdir()
    words = ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--out", "there")
    assert said(capsys, *words).endswith("there: this is a directory, but a file is needed here")


def test_a_pipe_where_a_file_is_to_be_written_is_found_before_the_work_and_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("solver.requests.choice.solve_graph", pytest.fail)
    os.mkfifo("pipe")
    words = ("solve", "--graph", str(INSTANCE), "--ram-budget", "80%", "--out", "pipe")
    told = said(capsys, *words)
    assert told.endswith("pipe: it is a named pipe; only a regular file is written to or replaced")
    assert [path.name for path in Path().iterdir()] == ["pipe"]
    assert Path("pipe").is_fifo()


def test_no_name_of_a_temporary_file_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = os.open

    def refused(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name.startswith(".m4-storage.png."):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr("os.open", refused)
    error = said(capsys, "plot", "--profile", "m4", "--directory", "pictures")
    assert error == "error: pictures/m4-storage.png: Permission denied"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (r'"\ud800"', r"a text contains \ud800, which is half a character"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ("1" + "0" * 5000, "found the number 1000000000… of 5001 characters; allowed: 400"),
        ("NaN", "ops[0].time_s: found NaN; allowed: a number of seconds"),
    ],
)
def test_no_place_in_a_text_that_nobody_wrote_is_named(
    text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, cost = INSTANCE.read_text(), re.compile(r'"time_s": ?[\d.e-]+')
    changed = cost.sub(lambda _: f'"time_s": {text}', instance, count=1)
    Path("graph.json").write_text(changed)
    error = said(capsys, "solve", "--graph", "graph.json", "--ram-budget", "50%")
    assert told in error
    assert "column" not in error


def test_a_device_description_is_not_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(CATALOG / "pi4.yaml", "pi4.yaml")
    error = said(capsys, "solve", "--profile", "pi4.yaml")
    assert "pi4.yaml: this is a device description (schema: device/1)" in error
    assert "profile --device pi4.yaml" in error
    measured = Path("results/profiles/pi4.yaml")
    measured.parent.mkdir(parents=True)
    measured.write_text(dump_yaml(load_published("m4")))
    error = said(capsys, "solve", "--profile", "pi4.yaml")
    assert "use --profile results/profiles/pi4.yaml" in error


def test_a_file_of_another_format_is_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, "solve", "--graph", str(SCHEDULE), "--ram-budget", "50%")
    assert "this is a schedule (schema: schedule/1), but a costed graph is needed" in error


# --- this computer --------------------------------------------------------------------------------

PROFILE = ("profile", "--device", "local", "--model", "linear", "--blocks", "2")


def profiled(**environment: str) -> str:
    """What profiling this computer says in another environment, in which it is refused."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *PROFILE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_missing_shell_is_named_with_its_package(tmp_path: Path) -> None:
    error = profiled(PATH=str(tmp_path))
    assert "the shell sh, which runs all commands, is not installed" in error
    assert "sudo apt install dash" in error


@pytest.mark.slow
def test_missing_tools_are_named_with_their_packages(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    (tmp_path / "sh").symlink_to(shell)
    error = profiled(PATH=str(tmp_path))
    assert "these programs are not installed: cat cut" in error
    assert "setsid; install coreutils findutils util-linux, or a busybox" in error


@pytest.mark.slow
def test_directories_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    home = {"HOME": str(file), "XDG_CACHE_HOME": ""}
    assert "storage.path ~/.cache/joulewright of local cannot be used" in profiled(**home)
    error = profiled(**home, TMPDIR=str(file))
    assert "neither ~/.cache nor TMPDIR can be written" in error
