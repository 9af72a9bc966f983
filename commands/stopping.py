"""Signals that end a command in an orderly way: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

The first one raises :class:`KeyboardInterrupt` in the main thread, whatever sent it: a person, a
batch system, a terminal that is closed. So everything that keeps results on Ctrl-C keeps them then,
too. A further Ctrl-C raises it again, in whatever the command does to end; one that comes in less
than half a second, from a key that is held or hit twice, does not. Further SIGTERM and SIGHUP are
ignored, because shells and service managers send both at the same time.

A signal that was already ignored when the program started, as ``nohup`` does, stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from signal import Signals
from types import FrameType, TracebackType
from typing import Any, Self

from devices.program import STOPS

# Convention of shells: a program that a signal ended has this exit code plus the signal's number.
_SIGNAL_EXIT_CODE = 128

# Least time from one interrupt to the next Ctrl-C that counts.
_AGAIN_S = 0.5

# The first stop signal of the command; signals belong to the process, and so does this.
_received: Signals | None = None


def stop_requested() -> bool:
    """Whether a stop signal has arrived: what the command could still begin is then left out."""
    return _received is not None


class StopSignals:
    """Handlers of the stop signals while the context is open.

    Without effect outside the main thread, which alone can handle signals.

    Args:
        ends_program: Whether the program ends after the context. Once a stop signal has arrived,
            further ones are then ignored to the end: one that meets the interpreter while it shuts
            down would replace the exit code.
    """

    def __init__(self, *, ends_program: bool = False) -> None:
        self._ends_program = ends_program
        self._before: dict[Signals, Any] = {}
        self._terminals: list[int] = []
        self._raised_at = 0.0

    @property
    def exit_code(self) -> int | None:
        """128 plus the number of the first signal; None if none has arrived."""
        return None if _received is None else _SIGNAL_EXIT_CODE + _received

    def __enter__(self) -> Self:
        global _received
        _received = None
        if threading.current_thread() is not threading.main_thread():
            return self
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        for number in STOPS:
            handler = signal.getsignal(number)
            if handler != signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ignores = self._ends_program and _received is not None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if ignores else handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        global _received
        if number == Signals.SIGHUP:
            self._drop_terminal()
        now = time.monotonic()
        if _received is None:
            _received = Signals(number)
        elif number != Signals.SIGINT or now < self._raised_at + _AGAIN_S:
            return
        self._raised_at = now
        raise KeyboardInterrupt

    def _drop_terminal(self) -> None:
        """Discard further output to the closed terminal, which would fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for terminal in self._terminals:
            os.dup2(nowhere, terminal)
        os.close(nowhere)
