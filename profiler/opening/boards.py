"""Open the board of a description: started, flashed and connected as it needs."""

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
    """The board of a description, connected, with ``plans`` in its program. An emulated one is
    started, and stopped in the end unless it was running already. On a microcontroller that is
    none, the firmware that has the plans is written first, and stays."""
    with ExitStack() as stack:
        if description.emulator is not None:
            from profiler import lab

            running = stack.enter_context(lab.start(description, progress, plans))
            description = running.description
        elif plans and description.firmware is not None:
            from profiler.building.firmware_image import build_firmware
            from profiler.flashing.flashing import put_on

            put_on(description, build_firmware(description, progress, plans), progress)
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
