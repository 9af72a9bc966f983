"""Boards with the harness on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from devices.description import DeviceDescription, SerialTransport
from profiler.boards.base import Board
from profiler.transports import open_transport


@contextmanager
def open_board(
    description: DeviceDescription, poll_interval_s: float, progress: Callable[[str], None]
) -> Iterator[Board]:
    """The board of a description, connected. An emulated one is started, and stopped in the end
    unless it was running already."""
    if description.emulator is None:
        with _connected(description, poll_interval_s) as board:
            yield board
        return
    from profiler import lab

    with (
        lab.start(description, progress) as running,
        _connected(running.description, poll_interval_s) as board,
    ):
        yield board


def _connected(description: DeviceDescription, poll_interval_s: float) -> Board:
    if isinstance(description.transport, SerialTransport):
        from profiler.boards.serial import SerialBoard

        return SerialBoard(description)
    from profiler.boards.posix import PosixBoard

    return PosixBoard(description, open_transport(description), poll_interval_s)
