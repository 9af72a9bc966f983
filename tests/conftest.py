"""Fixtures that several test modules use, and the guard of the mark ``emulated``."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.boards.unmarked import NoEmulators

pytest_plugins = [
    "tests.support.boards.emulated",
    "tests.support.boards.measuring",
    "tests.support.boards.sshd",
]


def pytest_configure(config: pytest.Config) -> None:
    directory = TemporaryDirectory(prefix="joulewright-no-emulators-")
    config.add_cleanup(directory.cleanup)
    config.pluginmanager.register(NoEmulators(Path(directory.name)))
