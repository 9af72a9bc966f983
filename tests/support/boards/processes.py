"""The processes that a piece of work has started, found by a mark in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT

VARIABLE = "JOULEWRIGHT_TEST_MARK"
SESSION_VARIABLE = "JOULEWRIGHT_TEST_SESSION"
"""For marks of one test, and of all tests of a run."""

_PATIENCE_S = 30.0


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(mark: str, variable: str = VARIABLE) -> set[int]:
    """Ids of living processes that began with the mark in their environment, or inherited it."""
    wanted = f"{variable}={mark}".encode()
    found = set()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            # That of a process which has ended and was not waited for is empty.
            environment = (directory / "environ").read_bytes()
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if wanted in environment.split(b"\0"):
            found.add(int(directory.name))
    return found - {os.getpid()}


def eventually(holds: Callable[[], bool], within_s: float = _PATIENCE_S) -> bool:
    """Whether it comes true in time."""
    give_up = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails if it does not come true in a time that is ample."""
    assert eventually(condition), "it did not come true"


@contextmanager
def started_as_by_a_shell(*words: str, **pipes: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Python in a process group of its own, and the mark of all that it starts. It is killed at
    the end, if it still runs."""
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
            process.kill()
