"""Places of a labgrid laboratory: acquired while a board has work, released when it has none.

labgrid's own client does both, as a program. What holds a place is a process that waits for the end
of its input, and then releases the place: also if the process of the board is killed, with all its
children, of which the holder therefore is none. The coordinator is that of the client
(``LG_COORDINATOR``).
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from devices.errors import BoardInUse, BoardUnreachable, InputError, SetupMissing

_CLIENT = "labgrid-client"
_PATIENCE_S = 60.0
_RELEASING_S, _POLL_S = 5.0, 0.5
_RELEASE = 'exec 3<&0; { cat <&3 > /dev/null; exec "$0" -p "$1" release; } &'
"""Shell script that leaves a holder behind, which has its output open until it ends."""

_UNKNOWN = "matches nothing"

_holders: dict[str, subprocess.Popen[bytes] | None] = {}
"""The process that began the holder of each place, and is the leader of its process group; None for
a place that its user had acquired before."""


def hold_place(place: str) -> None:
    """Acquire a place for this process, unless it holds it already.

    A place that the user has acquired is used as it is, and stays acquired.

    Raises:
        BoardInUse: Somebody else has the place.
        BoardUnreachable: The coordinator is not reached, or a resource of the place is missing.
        InputError: There is no such place.
        SetupMissing: labgrid's client is not installed.
    """
    if place in _holders:
        return
    deadline_s = time.monotonic() + _RELEASING_S
    while (said := _client(place, "acquire")).returncode != 0:
        owner = _owner(place)
        if owner is None:
            raise BoardUnreachable(
                f"the labgrid place {place} cannot be acquired: {_reason(said)}",
                remedy=f"see {_CLIENT} -p {place} show",
            )
        if owner != _this_user():
            raise BoardInUse(f"the labgrid place {place} is acquired by {owner}")
        if time.monotonic() > deadline_s:
            _holders[place] = None
            return
        time.sleep(_POLL_S)  # a process of the same board may have ended just now
    begun = subprocess.Popen(
        ["/bin/sh", "-c", _RELEASE, _CLIENT, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end it before the place is released
    )
    _holders[place] = begun
    begun.wait()  # until then the holder is a child's child, and killed with this process


def require_held(place: str) -> None:
    """Check that nobody has taken a place away that this process holds.

    Raises:
        BoardUnreachable: The place was released or taken, or the coordinator is not reached.
    """
    owner = _owner(place)
    if owner != _this_user():
        holder = _holders.pop(place, None)
        if holder is not None:
            with suppress(ProcessLookupError):
                os.killpg(holder.pid, signal.SIGKILL)
            holder.communicate()
        now = "nobody has it now" if owner is None else f"{owner} has it now"
        raise BoardUnreachable(
            f"the labgrid place {place} was taken away while its board was measured: {now}"
        )


def release_places() -> None:
    """Release all places that this process has acquired."""
    while _holders:
        _, holder = _holders.popitem()
        if holder is not None:
            holder.communicate()


@contextmanager
def at_place(place: str | None) -> Iterator[None]:
    """Hold a place while its board is used, and check in the end that it still is; None for none.

    The place stays acquired for what is done next.

    Raises:
        JoulewrightError: As for :func:`hold_place` and :func:`require_held`.
    """
    if place is None:
        yield
        return
    hold_place(place)
    yield
    require_held(place)


def _owner(place: str) -> str | None:
    """Who has acquired a place, as ``HOST/USER``; None if nobody has."""
    said = _client(place, "show")
    if said.returncode != 0:
        if _UNKNOWN in said.stderr:
            raise InputError(
                f"labgrid has no place {place}", remedy=f"{_CLIENT} places lists its places"
            )
        raise BoardUnreachable(
            f"labgrid does not tell who has the place {place}: {_reason(said)}",
            remedy="check LG_COORDINATOR",
        )
    for line in said.stdout.splitlines():
        key, _, value = line.strip().partition(":")
        if key == "acquired":
            return value.strip() if value.strip() not in {"", "None"} else None
    return None


def _client(place: str, command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(_CLIENT) is None:
        raise SetupMissing(
            f"{_CLIENT} is not installed, which acquires the place {place}",
            remedy="install it (pip install labgrid), or leave the place out of the campaign",
        )
    try:
        return subprocess.run(
            [_CLIENT, "-p", place, command],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BoardUnreachable(
            f"{_CLIENT} -p {place} {command} did not end within {_PATIENCE_S:.0f} s",
            remedy="check LG_COORDINATOR",
        ) from None


def _this_user() -> str:
    """This user, as labgrid's client names him."""
    host = os.environ.get("LG_HOSTNAME") or socket.gethostname()
    return f"{host}/{os.environ.get('LG_USERNAME') or getpass.getuser()}"


def _reason(said: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in said.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"it ended with exit code {said.returncode}"
