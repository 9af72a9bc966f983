"""Open the board of a description: start, flash and connect it as needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from devices.claims.claim import Claim, HeldError, claim_by_name
from devices.description import DeviceDescription, SerialTransport, SshTransport
from devices.errors import BoardInUse
from devices.plan import ExecutionPlan
from profiler.boards.base import Board
from profiler.transports import open_transport


@contextmanager
def open_board(
    description: DeviceDescription,
    poll_interval_s: float,
    progress: Callable[[str], None],
    plans: Sequence[ExecutionPlan] = (),
    *,
    alone: bool = True,
) -> Iterator[Board]:
    """Open the board of a description, connected, with ``plans`` in its program.

    An emulated board is started, and stopped in the end unless it was already running. To a real
    microcontroller, the firmware with the plans, or the one without, is written first unless it
    runs there, and stays. Two processes cannot have the same board open: each would disturb what
    the other measures. Those of this user on this computer are kept out before a real board is
    touched; those of others by a claim on a Linux board, or by the lock on a port.

    Args:
        description: The board.
        poll_interval_s: Time between two polls of a board that is measuring.
        progress: Called with each step.
        plans: Execution plans that the board can replay.
        alone: False for a Linux board on which nothing is measured; others may use it too.

    Yields:
        The board, before :meth:`~profiler.boards.base.Board.prepare`.

    Raises:
        BoardInUse: Another program uses the board.
        BoardUnreachable: It cannot be reached.
        JoulewrightError: Its emulator or firmware cannot be built or started.
    """
    with ExitStack() as stack:
        if description.emulator is not None:
            from profiler import lab

            running = stack.enter_context(lab.start(description, progress, plans))
            description = running.description
        if alone:
            stack.enter_context(alone_with(description))
        firmware = description.firmware
        is_real = description.emulator is None
        if is_real and firmware is not None and (plans or firmware.flasher):
            from profiler.flashing.flashing import ensure_flashed

            ensure_flashed(description, plans, progress)
        yield stack.enter_context(_connected(description, poll_interval_s, plans, alone))


# Boards that this process has open: each with its lock, and how often it is open.
_opened: dict[str, tuple[Claim, int]] = {}
_opening = threading.Lock()


@contextmanager
def alone_with(description: DeviceDescription) -> Iterator[None]:
    """Keep other processes of this user from a board, which this one may open several times.

    Enter it before the board's meter is opened, which may switch the board off. An emulated
    microcontroller has no port before it is started, and is not claimed until then.

    Raises:
        BoardInUse: Another program uses the board.
    """
    where = _whereabouts(description)
    if where is None:
        yield
        return
    with _opening:
        claim, times = _opened.get(where) or (_claim(description.name, where), 0)
        _opened[where] = claim, times + 1
    try:
        yield
    finally:
        with _opening:
            claim, times = _opened.pop(where)
            if times > 1:
                _opened[where] = claim, times - 1
            else:
                claim.release()


def _claim(name: str, where: str) -> Claim:
    try:
        return claim_by_name("boards", where)
    except HeldError as held:
        raise BoardInUse(
            f"{name}: another program uses this board: {held.owner or 'an unknown one'}",
            remedy="wait until it has ended, or end it",
        ) from None


def _whereabouts(description: DeviceDescription) -> str | None:
    """What tells a board from others: this computer, the route to it, or its port; None if it has
    no port yet. Several users of a board use the same board."""
    transport = description.transport
    if isinstance(transport, SshTransport):
        return _route(transport)
    if isinstance(transport, SerialTransport):
        return None if transport.port is None else f"port {_resolved(transport.port)}"
    return "this computer"


def _route(reached: SshTransport) -> str:
    from profiler.transports.route import find_route

    board = find_route(reached)
    hops = [f"{hop.host}:{hop.port}" for hop in board.hops]
    return " ".join([*hops, *([] if board.proxy_command is None else [board.proxy_command])])


def _resolved(port: str) -> str:
    """A port by one name, whichever link leads to it."""
    return port if "://" in port else os.path.realpath(port)


def _connected(
    description: DeviceDescription,
    poll_interval_s: float,
    plans: Sequence[ExecutionPlan],
    alone: bool,
) -> Board:
    if isinstance(description.transport, SerialTransport):
        from profiler.boards.serial import SerialBoard
        from profiler.building.firmware_image import firmware_identity

        return SerialBoard(description, firmware_identity(description, plans))
    from profiler.boards.posix import PosixBoard

    transport = open_transport(description)
    return PosixBoard(description, transport, poll_interval_s, plans, alone=alone)
