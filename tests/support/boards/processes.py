"""The processes that a piece of work has started, found by a mark in their environment."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

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


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails if it does not come true in a time that is ample."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
