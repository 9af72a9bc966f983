"""Checks that only tests marked ``emulated`` boot an emulated board: others find no emulator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_EMULATORS = ("qemu-system-aarch64", "qemu-system-arm")
_ASKED = "asked"
_STAND_IN = f"""#!/bin/sh
echo "$0" >> "${{0%/*}}/{_ASKED}"
echo "$0: only tests marked 'emulated' boot boards" >&2
exit 1
"""


class NoEmulators:
    """Programs that replace the emulators on PATH and record that one was started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in _EMULATORS:
            (directory / name).write_text(_STAND_IN)
            (directory / name).chmod(0o755)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Replace the emulators during the test and the fixtures of its module."""
        with pytest.MonkeyPatch.context() as patch:
            if item.get_closest_marker("emulated") is None:
                patch.setenv("PATH", str(self._directory), prepend=os.pathsep)
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        asked = self._directory / _ASKED
        if asked.exists():
            asked.unlink()
            pytest.fail("boots an emulated board but is not marked 'emulated'", pytrace=False)
        return result
