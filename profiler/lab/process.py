"""Processes that outlive the program that started them, or surely end with it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _START_TIME = 0, 19  # fields of /proc/PID/stat after the name, proc(5)
_DEAD = {"Z", "X"}

OUTPUT = "output"

# The child waits for a line of input, and ends if its parent ends first.
_ON_ORDER = 'cd "$1" && shift && read -r _ && exec "$@" </dev/null'


@dataclass(frozen=True)
class Process:
    """One process, distinguished from later ones with the same number.

    ``start_ticks`` is its start, in the kernel's clock ticks since the boot named by ``boot_id``.
    """

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process with this number. Raises :class:`ProcessLookupError`."""
        return cls(pid, int(_stat(pid)[_START_TIME]), _BOOT_ID.read_text().strip())

    @property
    def is_alive(self) -> bool:
        try:
            stat = _stat(self.pid)
        except ProcessLookupError:
            return False
        is_same = int(stat[_START_TIME]) == self.start_ticks
        return (
            is_same and stat[_STATE] not in _DEAD and _BOOT_ID.read_text().strip() == self.boot_id
        )

    @property
    def age_s(self) -> float:
        began_s = self.start_ticks / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)

    def kill(self) -> None:
        """Kill it at once. Does nothing if it has ended."""
        self._signal((signal.SIGKILL,), patience_s=0.0)

    def end(self, *, patience_s: float) -> bool:
        """End it with SIGTERM, and with SIGKILL after ``patience_s``. Returns whether it has
        ended."""
        self._signal((signal.SIGTERM, signal.SIGKILL), patience_s=patience_s)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return not self.is_alive

    def wait(self, *, timeout_s: float) -> bool:
        """Wait for its end. Returns whether it has ended in time."""
        with self._handle() as handle:
            return handle is None or _ends(handle, timeout_s)

    def _signal(self, signals: Sequence[signal.Signals], *, patience_s: float) -> None:
        with self._handle() as handle:
            if handle is None:
                return
            for number in signals:
                signal.pidfd_send_signal(handle, number)
                if _ends(handle, patience_s):
                    return

    @contextmanager
    def _handle(self) -> Iterator[int | None]:
        """A handle of this process, even if its number is reused; None if it has ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # The handle always denotes the same process; check now that it is this one.
            yield handle if self.is_alive else None
        finally:
            os.close(handle)


class Launch:
    """A process that waits and becomes ``words`` once :meth:`go` is called.

    Until then, it ends with this process. It works in ``directory``; its output goes to the file
    ``OUTPUT`` there. It does not receive this terminal's Ctrl-C. With ``keep`` it outlives this
    program; without, it is killed as soon as the thread that launched it has ended, however that
    happens (PR_SET_PDEATHSIG, prctl(2)).
    """

    def __init__(
        self, words: Sequence[str], directory: Path, *, keep: bool, inherited: Sequence[int]
    ) -> None:
        order, self._order = os.pipe()
        log = os.open(
            directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        bound = () if keep else ("setpriv", "--pdeathsig", "KILL")
        command = (*bound, "sh", "-c", _ON_ORDER, "sh", str(directory), *words)
        try:
            pid = os.posix_spawnp(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, order, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    *((os.POSIX_SPAWN_DUP2, handle, handle) for handle in inherited),
                ],
                setsid=True,
                setsigdef=[signal.SIGINT, signal.SIGPIPE],
            )
            self.process = Process.of(pid)
        except BaseException:
            os.close(self._order)
            raise
        finally:
            os.close(order)
            os.close(log)

    def go(self) -> None:
        with suppress(BrokenPipeError):  # it has ended already
            os.write(self._order, b"go\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._order)


def _ends(handle: int, timeout_s: float) -> bool:
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    return bool(ended.poll(1000 * timeout_s))


def _stat(pid: int) -> list[str]:
    """Fields after the name, which may contain anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return text.rpartition(")")[2].split()
