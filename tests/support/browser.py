"""A real browser for the tests of HTML pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window. A test fails if it is missing."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.fail("Chromium is missing: sudo apt install chromium-headless-shell")
    with sync_playwright() as playwright:
        # Chromium's sandbox needs rights that containers lack.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
