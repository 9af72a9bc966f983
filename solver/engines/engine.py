"""``Engine``: HiGHS, CBC or Gurobi through python-mip, in a separate process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from signal import Signals
from types import TracebackType
from typing import Self

from devices.errors import EngineFailed, EngineUnavailable
from solver.engines.messages import (
    Bound,
    EngineMessage,
    Finished,
    Growth,
    Incumbent,
    Ready,
    Run,
    Silence,
)
from solver.engines.processes import leave_idle, started
from solver.engines.program import Program
from solver.options import EngineName

_POLL_S = 0.2
# A process with a program of more columns is not kept, since it may hold on to much memory.
_KEPT_COLUMNS = 10_000
# Longest wait for the end of a run whose results suffice: a new process takes far longer.
_MOMENT_S = 0.05


class EngineProcess:
    """A separate process for an engine, ``python -m MODULE ARGUMENTS... FD``, with a pipe to it.

    It is a context manager: leaving the context kills the process. Plain data pass through the
    pipe. ``version`` is complete after the first message of the process.
    """

    def __init__(self, name: str, module: str, *arguments: str) -> None:
        self.version = name
        self._name = name
        self._is_ready = False
        self._worker = started(module, *arguments)
        self._connection, self._process = self._worker.connection, self._worker.process

    def send(self, message: object) -> None:
        """Send a message. Raises :class:`EngineFailed` if the process has ended."""
        try:
            self._connection.send(message)
        except OSError:
            raise self._failure() from None

    def messages(self, deadline: float) -> Iterator[object]:
        """Yield messages of the process until it has finished or ``deadline`` has passed.

        ``deadline`` is on ``time.monotonic``. The last message is always a :class:`Finished`.

        Raises :class:`EngineFailed` if the process ends early or the engine reports an error.
        """
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                yield Finished("stopped")
                return
            if not self._connection.poll(min(remaining, _POLL_S)):
                yield Silence()
                continue
            message = self._receive()
            if isinstance(message, Ready):
                self.version, self._is_ready = message.version, True
                continue
            if isinstance(message, Finished) and message.outcome == "failed":
                raise EngineFailed(f"{self._name}: {message.reason}")
            yield message
            if isinstance(message, Finished):
                return

    def _receive(self) -> object:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._failure() from None

    def _failure(self) -> EngineFailed:
        code = self._process.wait()
        if code < 0:  # the output of a crashed C library is not a useful message
            return EngineFailed(f"the {self._name} process was killed by {Signals(-code).name}")
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        reason = f": {last[0]}" if last else ""
        kind = EngineFailed if self._is_ready else EngineUnavailable
        return kind(f"the {self._name} process ended with code {code}{reason}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.end()


class Engine(EngineProcess):
    """An engine that solves one program, which may grow between runs."""

    def __init__(self, name: EngineName) -> None:
        super().__init__(name, "solver.engines.worker", name)
        self._sent_columns = 0
        self._sent_rows = 0
        self._is_running = False
        # Claims of the engine that its own solutions refuted or that it did not confirm; they were
        # corrected.
        self.faults: list[str] = []

    def minimise(
        self,
        program: Program,
        *,
        absolute_gap: float,
        threads: int,
        start: list[float] | None,
        deadline: float,
        relax: bool = False,
        presolve: bool = True,
    ) -> Iterator[EngineMessage]:
        """Minimise ``program`` and yield the engine's messages until it has finished.

        The last message is always a :class:`Finished`, at ``deadline`` (on ``time.monotonic``) at
        the latest. ``absolute_gap`` is in units of the objective; ``start`` is a solution to begin
        with. With ``relax`` integrality is dropped and the only incumbent is the optimum. Without
        ``presolve`` the engine searches the program as it is.

        Raises :class:`EngineFailed` if the process ends early or the engine reports an error.
        """
        if time.monotonic() >= deadline:
            yield Finished("stopped")
            return
        self.send(Run(self._growth(program), relax, absolute_gap, threads, start, presolve))
        self._is_running = True
        for message in self.messages(deadline):
            assert isinstance(message, Incumbent | Bound | Finished | Silence)
            if isinstance(message, Finished):
                self._is_running = message.outcome == "stopped"
            if isinstance(message, Finished) and message.reason:
                self.faults.append(message.reason)
            yield message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        is_kept = False
        try:
            # Whoever reads an iterator of messages no further leaves it with GeneratorExit.
            has_failed = kind not in (None, GeneratorExit)
            is_small = self._sent_columns <= _KEPT_COLUMNS
            is_kept = is_small and not has_failed and self._has_ended()
        finally:
            if is_kept:
                leave_idle(self._worker)
            else:
                self._worker.end()

    def _has_ended(self) -> bool:
        """Whether the run has ended, or ends in a moment after a result that was enough."""
        try:
            if self._is_running:
                *_, last = self.messages(time.monotonic() + _MOMENT_S)
                self._is_running = last == Finished("stopped")
        except EngineFailed:
            return False
        return not self._is_running

    def _growth(self, program: Program) -> Growth:
        columns, rows = self._sent_columns, self._sent_rows
        self._sent_columns, self._sent_rows = len(program.cost), len(program.rows)
        return Growth(
            program.lower[columns:],
            program.upper[columns:],
            program.cost[columns:],
            program.integer[columns:],
            program.rows[rows:],
        )
