"""Fixtures that several test modules use."""

pytest_plugins = ["tests.emulated_support", "tests.measuring_support", "tests.sshd_support"]
