"""A fixture of several test modules: processes of engines that serve many searches."""

from collections.abc import Iterator

import pytest

from solver.engines.processes import kept_processes


@pytest.fixture
def _kept_engines() -> Iterator[None]:
    """Keep idle engines: to start one takes far longer than most searches of a test that needs it.

    What a new process does is tested wherever this is not used.
    """
    with kept_processes():
        yield
