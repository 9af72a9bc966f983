"""Fixtures shared by the tests of the C code that runs on boards."""

import ctypes

import pytest

from tests.support.onboard.executor import build_executor
from tests.support.onboard.kernels import KernelLibraries, openblas_on_one_thread


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The executor, compiled once."""
    return build_executor(tmp_path_factory.mktemp("executor"))


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> KernelLibraries:
    """Builds of the kernel library, each compiled once."""
    openblas_on_one_thread()
    return KernelLibraries(tmp_path_factory.mktemp)
