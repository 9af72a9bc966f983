"""Ways to reach a board."""

from __future__ import annotations

from devices.description import DeviceDescription, LocalTransport, SerialTransport, SshTransport
from profiler.errors import BoardUnreachable
from profiler.transports.base import Transport


def open_transport(description: DeviceDescription) -> Transport:
    """The transport that a board's description asks for, not yet connected."""
    match description.transport:
        case LocalTransport():
            from profiler.transports import local

            return local.LocalTransport()
        case SshTransport() as reached:
            from profiler.transports import ssh

            return ssh.SshTransport(reached)
        case SerialTransport(port=port):
            raise BoardUnreachable(
                f"{description.name}: boards on a serial line ({port}) cannot be profiled;"
                " describe a transport of kind local or ssh"
            )
