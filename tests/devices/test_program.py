"""Processes that the program starts, and the place of what it keeps."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.errors import SetupMissing
from devices.program import (
    COMMAND,
    command_line,
    done_in_any_case,
    ended_in_any_case,
    installing_extra,
)
from devices.user_cache import user_cache
from tests.support.paths import ROOT


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()


@pytest.fixture
def begun() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test has started; those that still run are ended."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        with process:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_process_is_ended_if_a_stop_comes_while_it_starts(
    stop: signal.Signals, begun: list[subprocess.Popen[bytes]]
) -> None:
    """Nothing but the signal's handler knows of the process then."""
    before = signal.signal(stop, signal.default_int_handler)

    def start() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        begun.append(subprocess.Popen(words, start_new_session=True))
        os.kill(os.getpid(), stop)
        return begun[0]

    try:
        with pytest.raises(KeyboardInterrupt), ended_in_any_case(start, killed):
            pytest.fail("the signal should have come before")
        assert begun[0].returncode == -signal.SIGKILL
        assert signal.getsignal(stop) is signal.default_int_handler
    finally:
        signal.signal(stop, before)


def test_signals_do_not_take_the_result_of_what_is_done_in_any_case() -> None:
    called = []

    def handler(number: int, _frame: FrameType | None) -> None:
        called.append(number)
        raise KeyboardInterrupt

    def work() -> str:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return "result"

    before = signal.signal(signal.SIGINT, handler)
    try:
        assert done_in_any_case(work) == "result"
        assert called == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_is_ended_with_its_context(begun: list[subprocess.Popen[bytes]]) -> None:
    def start() -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(["sleep", "600"]))
        return begun[0]

    with ended_in_any_case(start, killed) as process:
        assert process.poll() is None
    assert begun[0].returncode == -signal.SIGKILL


@given(st.lists(st.text().filter(lambda word: "\0" not in word), max_size=4))
def test_a_command_to_paste_has_the_words_that_it_was_made_of(words: list[str]) -> None:
    assert shlex.split(command_line(*words)) == [*COMMAND.split(), *words]


def test_a_command_of_a_checkout_runs_where_it_is_pasted() -> None:
    assert subprocess.run(command_line("devices"), shell=True, cwd=ROOT, capture_output=True).stdout


def test_an_extra_is_installed_from_the_checkout_into_the_environment_in_use() -> None:
    python, *words = shlex.split(installing_extra("serve"))
    assert python == sys.executable
    assert words == ["-m", "pip", "install", f"{ROOT}[serve]"]


def test_without_a_home_directory_a_sentence_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(SetupMissing, match=r"no home directory.*; set HOME or XDG_CACHE_HOME"):
        user_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", "/kept")
    assert user_cache() == Path("/kept/joulewright")
