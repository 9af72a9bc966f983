"""Ways to reach a board."""

from __future__ import annotations

from devices import description as described
from profiler.errors import BoardUnreachable
from profiler.transports.base import Transport


def open_transport(description: described.DeviceDescription) -> Transport:
    """The transport that a board's description asks for, not yet connected.

    Raises :class:`~profiler.errors.BoardUnreachable` for a kind that has none.
    """
    match description.transport:
        case described.LocalTransport():
            from profiler.transports.local import LocalTransport

            return LocalTransport()
        case described.SshTransport() as reached:
            from profiler.transports.ssh import SshTransport

            return SshTransport(reached)
        case described.SerialTransport(port=port):
            raise BoardUnreachable(
                f"{description.name}: boards on a serial line ({port}) cannot be reached;"
                " describe a transport of kind local or ssh"
            )
