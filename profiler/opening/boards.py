"""Open the board of a description: start, flash and connect it as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from devices.description import DeviceDescription, SerialTransport
from devices.plan import ExecutionPlan
from profiler.boards.base import Board
from profiler.transports import open_transport


@contextmanager
def open_board(
    description: DeviceDescription,
    poll_interval_s: float,
    progress: Callable[[str], None],
    plans: Sequence[ExecutionPlan] = (),
) -> Iterator[Board]:
    """Open the board of a description, connected, with ``plans`` in its program.

    An emulated board is started, and stopped in the end unless it was already running. On a real
    microcontroller, firmware with the plans is written first, and stays.

    Args:
        description: The board.
        poll_interval_s: Time between two polls of a board that is measuring.
        progress: Called with each step.
        plans: Execution plans that the board can replay.

    Yields:
        The board, before :meth:`~profiler.boards.base.Board.prepare`.
    """
    with ExitStack() as stack:
        if description.emulator is not None:
            from profiler import lab

            running = stack.enter_context(lab.start(description, progress, plans))
            description = running.description
        elif plans and description.firmware is not None:
            from profiler.building.firmware_image import build_firmware
            from profiler.flashing.flashing import ensure_flashed

            ensure_flashed(description, build_firmware(description, progress, plans), progress)
        yield stack.enter_context(_connected(description, poll_interval_s, plans))


def _connected(
    description: DeviceDescription, poll_interval_s: float, plans: Sequence[ExecutionPlan]
) -> Board:
    if isinstance(description.transport, SerialTransport):
        from profiler.boards.serial import SerialBoard
        from profiler.building.firmware_image import firmware_identity

        return SerialBoard(description, firmware_identity(description, plans))
    from profiler.boards.posix import PosixBoard

    return PosixBoard(description, open_transport(description), poll_interval_s, plans)
