"""Transports: ways to run commands on a board."""

from __future__ import annotations

from devices import description as described
from devices.meters import feeds_board
from profiler.transports.base import Transport


def open_transport(description: described.DeviceDescription) -> Transport:
    """Make the transport that a Linux board's description asks for, not yet connected.

    A board that its meter feeds may only be starting: it is given time (``deadline_s``) for that.
    """
    match description.transport:
        case described.LocalTransport():
            from profiler.transports.local import LocalTransport

            return LocalTransport()
        case described.SshTransport() as reached:
            from profiler.transports.ssh import SshTransport

            return SshTransport(reached, may_be_starting=feeds_board(description.meter))
        case described.SerialTransport():
            raise ValueError("a serial line does not run commands: see profiler.boards")
