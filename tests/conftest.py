"""Fixtures that several test modules use."""

pytest_plugins = ["tests.measuring_support", "tests.sshd_support"]
