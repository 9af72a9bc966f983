"""Fixtures that several test modules use."""

pytest_plugins = ["tests.sshd_support"]
