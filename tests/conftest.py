"""Fixtures that several test modules use."""

pytest_plugins = [
    "tests.support.boards.emulated",
    "tests.support.boards.measuring",
    "tests.support.boards.sshd",
]
