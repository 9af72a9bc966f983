"""A serial port that may go away and come back: a device node, a pseudo-terminal or a socket."""

from __future__ import annotations

import contextlib
import errno
import grp
import re
import select
import shlex
import termios
from collections.abc import Sequence
from pathlib import Path

import serial
from serial.tools import list_ports

from devices.claims.claim import Claim, HeldError, claim_by_name
from devices.claims.owner import Owner, users_of
from devices.errors import BoardInUse, BoardUnreachable

_ERRORS = (OSError, termios.error, ValueError)  # includes pyserial's SerialException, an OSError
_CHUNK_BYTES = 4096
_IN_USE = {errno.EBUSY, errno.EAGAIN, errno.EWOULDBLOCK}


class LineDownError(ConnectionError):
    """The port failed during use: a cable was unplugged, or an emulator ended."""


class Line:
    """Bytes to and from a port. Two programs of this computer that claim a port this way exclude
    each other."""

    def __init__(self, port: str, baud: int) -> None:
        self.port = port
        self.baud = baud
        self._serial: serial.SerialBase | None = None
        self._outgoing = bytearray()
        self._claim: Claim | None = None

    def open(self) -> None:
        """Open the port; does nothing if it is open. Bytes that were waiting in it are dropped.

        Raises :class:`~devices.errors.BoardUnreachable` with the remedy.
        """
        self._disconnect()
        is_first = self._claim is None
        if self._is_socket and is_first:
            self._claim = _claim(self.port)
        try:
            self._serial = serial.serial_for_url(
                self.port, self.baud, timeout=0, write_timeout=0, exclusive=True
            )
        except _ERRORS as error:
            if is_first:
                self._let_go()
            number = error.errno if isinstance(error, OSError) else None
            kind = BoardInUse if number in _IN_USE else BoardUnreachable
            raise kind(f"{self.port}: {_explain(self.port, error)}") from error

    def send(self, data: bytes) -> None:
        """Queue data for sending. What the port cannot take now is sent while :meth:`receive`
        waits."""
        self._outgoing += data
        self._pump(0.0)

    @property
    def is_sending(self) -> bool:
        """Whether queued data are still unsent."""
        return bool(self._outgoing)

    def receive(self, timeout_s: float) -> bytes:
        """Received bytes, as soon as there are any; none after ``timeout_s``. Raises
        :class:`LineDownError`."""
        return self._pump(timeout_s, wants_input=True)

    def close(self) -> None:
        """Close the port. Never raises; may be called twice."""
        self._disconnect()
        self._let_go()

    @property
    def remedy(self) -> str:
        """Advice for the case that the board sends nothing meaningful."""
        if self._is_socket:
            return (
                "Check that its firmware is on it and that no other program is connected to that"
                " socket"
            )
        return (
            "Check that it is powered, that its firmware is on it, and that its baud rate is"
            f" {self.baud}"
        )

    @property
    def _is_socket(self) -> bool:
        return "://" in self.port

    def _let_go(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _disconnect(self) -> None:
        self._outgoing.clear()
        port, self._serial = self._serial, None
        if port is None:
            return
        # pyserial 3.5 leaves the socket of a connection open that the other side has closed.
        left = getattr(port, "_socket", None)
        with contextlib.suppress(*_ERRORS):
            port.close()
        if left is not None:
            left.close()

    def _pump(self, timeout_s: float, *, wants_input: bool = False) -> bytes:
        """Send and receive at once: a board that is busy answering accepts nothing until its answer
        is read."""
        port = self._serial
        if port is None:
            raise LineDownError(f"{self.port} is not open")
        try:
            handle = port.fileno()
            readers = [handle] if wants_input else []
            writers = [handle] if self._outgoing else []
            readable, writable, _ = select.select(readers, writers, [], timeout_s)
            if writable:
                del self._outgoing[: port.write(bytes(self._outgoing[:_CHUNK_BYTES]))]
            return bytes(port.read(_CHUNK_BYTES)) if readable else b""
        except _ERRORS as error:
            self._disconnect()
            raise LineDownError(str(error)) from error


def _claim(port: str) -> Claim:
    """Lock a socket's address for this process; unlike a device node, a socket has no lock of its
    own."""
    try:
        return claim_by_name("ports", port)
    except HeldError as held:
        owners = [] if held.owner is None else [held.owner]
        raise BoardInUse(f"{port}: {_in_use(port, owners)}") from None
    except OSError as error:
        raise BoardUnreachable(f"{port}: {_explain(port, error)}") from error


def _explain(port: str, error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number in _IN_USE:
        return _in_use(port, users_of(Path(port)))
    if number == errno.ENOENT:
        return (
            f"the port does not exist; {_existing_ports()}. Check that the board is plugged in and"
            " that its description names the right port"
        )
    if number in {errno.EACCES, errno.EPERM}:
        return (
            "this user may not open the port; join the group that may, and log in again:"
            f" sudo usermod -aG {_group(port)} $USER"
        )
    if "://" in port:
        reason = re.sub(r"^.*?: (?=\[|\w)", "", str(error), count=1)
        return f"cannot connect ({reason}); check that the emulator or the server is running"
    return f"the port cannot be opened: {error}"


def _in_use(port: str, owners: Sequence[Owner]) -> str:
    if owners:
        return (
            f"another program uses this port: {'; '.join(map(str, owners))}. Wait until it has"
            " ended, or end it"
        )
    return (
        "another program uses this port, perhaps another profiler or a terminal; this user cannot"
        " see which one, since it belongs to another user or this system has no /proc. End it first"
        + ("" if "://" in port else f" (sudo fuser {shlex.quote(port)} shows it)")
    )


def _existing_ports() -> str:
    found = sorted(port.device for port in list_ports.comports())
    return f"existing ports: {', '.join(found)}" if found else "this computer has no ports"


def _group(port: str) -> str:
    try:
        return grp.getgrgid(Path(port).stat().st_gid).gr_name
    except (OSError, KeyError):
        return "dialout"
