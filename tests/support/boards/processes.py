"""Processes that a test starts, found by a mark in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import AnyStr

from tests.support.paths import ROOT

VARIABLE = "JOULEWRIGHT_TEST_MARK"
SESSION_VARIABLE = "JOULEWRIGHT_TEST_SESSION"
"""Variables for the marks of one test and of a whole test run."""

_PATIENCE_S = 120.0


def new_mark() -> str:
    """A new unique mark."""
    return uuid.uuid4().hex


def marked(mark: str, variable: str = VARIABLE) -> set[int]:
    """Ids of living processes that have the mark in their environment, their own or inherited."""
    wanted = f"{variable}={mark}".encode()
    found = set()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            # The environment of a zombie is empty.
            environment = (directory / "environ").read_bytes()
        except OSError:  # the process has ended, or belongs to another user
            continue
        if wanted in environment.split(b"\0"):
            found.add(int(directory.name))
    return found - {os.getpid()}


def eventually(holds: Callable[[], bool], within_s: float = _PATIENCE_S) -> bool:
    """Whether the condition comes true within ``within_s``."""
    give_up = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Fail unless the condition comes true within an ample time."""
    assert eventually(condition), "the condition did not come true in time"


@contextmanager
def started_as_by_a_shell(*words: str, **pipes: int) -> Iterator[tuple[Popen[str], str]]:
    """Run Python in a process group of its own; yields it and the mark of all processes it starts.

    Its group is killed at the end, if a process of it still runs.
    """
    mark = new_mark()
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {VARIABLE: mark},
        text=True,
        start_new_session=True,
        **pipes,
    ) as process:
        try:
            yield process, mark
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def ended_in_any_case(*processes: Popen[AnyStr]) -> Iterator[tuple[Popen[AnyStr], ...]]:
    """Kill the processes that still run at the end, as they do after a failed test."""
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        yield processes
