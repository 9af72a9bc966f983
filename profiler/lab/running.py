"""Start, join and end emulated boards."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from devices.claims.scratch import ScratchDirectory
from devices.description import DeviceDescription
from devices.errors import BoardUnreachable
from profiler.lab.directories import run_directory
from profiler.lab.monitor import Monitor, MonitorError, listen
from profiler.lab.process import OUTPUT, Launch, Process
from profiler.lab.qemu import Guest, Progress, last_line
from profiler.transports.deadline import Deadline

_START_LIMIT_S = 30.0
_BOOT_LIMIT_S = 180.0
_MONITOR_LIMIT_S = 10.0
_POLL_S = 0.1
PATIENCE_S = 5.0
"""Time for an emulator to end after SIGTERM."""


class RunningBoard:
    """A running emulated board. ``description`` is the board's, completed with how to reach it."""

    def __init__(
        self,
        description: DeviceDescription,
        process: Process,
        directory: Path,
        own: ScratchDirectory | None,
    ) -> None:
        self.description = description
        self._process = process
        self._directory = directory
        self._own = own

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    def stop(self) -> None:
        """End the board and remove its files, unless ``lab up`` keeps it running. May be called
        twice."""
        if self._own is not None:
            self._process.end(patience_s=PATIENCE_S)
            self._own.remove()

    def kill(self) -> None:
        """Simulate a power cut."""
        self._process.kill()

    def reset(self) -> None:
        """Simulate the reset button. Raises :class:`~profiler.lab.monitor.MonitorError`."""
        with Monitor(self._directory, timeout_s=_MONITOR_LIMIT_S) as monitor:
            monitor.execute("system_reset")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start_own(guest: Guest, progress: Progress) -> RunningBoard:
    """Start a board that ends with the calling thread at the latest.

    Raises :class:`~devices.errors.BoardUnreachable` if it does not start.
    """
    name = guest.description.name
    progress(f"starting {name}")
    own = run_directory(name)
    process: Process | None = None
    try:
        with prepare(guest, own.path, keep=False) as launch:
            process = launch.process
            launch.go()
        port = wait_until_up(guest, process, own.path)
        description = reached(guest, own.path, port)
    except BaseException:
        if process is not None:
            process.end(patience_s=PATIENCE_S)
        own.remove()
        raise
    return RunningBoard(description, process, own.path, own)


def prepare(guest: Guest, directory: Path, *, keep: bool) -> Launch:
    """Prepare an emulator, which starts with :meth:`Launch.go`."""
    guest.make_media(directory)
    line = guest.open_line()
    try:
        with listen(directory) as monitor:
            handle = None if line is None else line.fileno()
            return Launch(
                guest.command(handle, monitor.fileno()),
                directory,
                keep=keep,
                inherited=[monitor.fileno(), *([] if handle is None else [handle])],
            )
    finally:
        if line is not None:
            line.close()


def wait_until_up(guest: Guest, process: Process, directory: Path) -> int:
    """Wait until the board answers, and return the port by which it is reached.

    Raises :class:`~devices.errors.BoardUnreachable`.
    """
    try:
        with Monitor(directory, timeout_s=_START_LIMIT_S) as monitor:
            port = guest.port(monitor)
    except MonitorError as error:
        process.wait(timeout_s=PATIENCE_S)  # the emulator closed the connection and is about to end
        raise _failed(guest, process, directory) from error
    deadline = Deadline(_BOOT_LIMIT_S)
    while not guest.answers(port):
        if not process.is_alive or deadline.expired:
            raise _failed(guest, process, directory)
        time.sleep(_POLL_S)
    return port


def reached(guest: Guest, directory: Path, port: int) -> DeviceDescription:
    return guest.description.model_copy(update={"transport": guest.transport(directory, port)})


def _failed(guest: Guest, process: Process, directory: Path) -> BoardUnreachable:
    name, program = guest.description.name, guest.emulator.program
    last_words = guest.last_words(directory)
    on_console = f"; on its console: {last_words}" if last_words else ""
    if process.is_alive:
        return BoardUnreachable(f"{name}: it did not start in {program}{on_console}")
    reason = last_line(directory / OUTPUT, re.escape(program)) or "no output"
    return BoardUnreachable(f"{name}: {program} ended while starting: {reason}{on_console}")
