"""Fixtures shared by the tests of the C code that runs on boards."""

import ctypes

import pytest

from tests.support.onboard.executor import build_executor


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The executor, compiled once."""
    return build_executor(tmp_path_factory.mktemp("executor"))
