"""Boards that another program uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from devices.description import DeviceDescription
from profiler.opening import boards


@contextmanager
def used_by_another(description: DeviceDescription) -> Iterator[None]:
    """Claim a board as another program does: this one does not know that it has the claim."""
    with boards.alone_with(description), patch.dict(boards._opened, clear=True):
        yield
