"""A real browser for the tests of HTML pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE_MS = 120_000
"""Time for whatever a page is asked to do, on a busy computer."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window. A test fails if it is missing."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.fail("Chromium is missing: sudo apt install chromium-headless-shell")
    with sync_playwright() as playwright:
        # Chromium's sandbox needs rights that containers lack.
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        yield started
        started.close()


def processor_s() -> float:
    """Processor time so far of the processes that this one has started, and those below them.

    They are Chromium's and the one that drives it. Unlike other time, it hardly depends on what
    else the computer does.
    """
    ticks, processes = 0, [os.getpid()]
    while processes:
        process = Path(f"/proc/{processes.pop()}")
        with suppress(OSError):  # it has ended
            for thread in (process / "task").iterdir():
                processes += map(int, (thread / "children").read_text().split())
            if process.name != str(os.getpid()):
                user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
                ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")
