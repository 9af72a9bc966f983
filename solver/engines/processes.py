"""Processes of engines, which can be kept for the next program.

Starting one takes a third of a second, mostly for loading libraries. A small program is solved in
milliseconds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeAlias

from devices.program import module_process
from solver.engines.messages import Forget

# The command of a process, and its environment.
_Origin: TypeAlias = tuple[tuple[str, ...], frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class WorkerProcess:
    """A process ``python -m MODULE ARGUMENTS... FD`` with a pipe to it, through which data pass."""

    origin: _Origin
    connection: Connection
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()
        self.connection.close()


# Idle processes; None unless they are kept.
_idle: ContextVar[dict[_Origin, WorkerProcess] | None] = ContextVar("idle", default=None)


@contextmanager
def kept_processes() -> Iterator[None]:
    """Keep idle processes for programs of this context, and end them with it or an outer one."""
    if _idle.get() is not None:
        yield
        return
    kept: dict[_Origin, WorkerProcess] = {}
    token = _idle.set(kept)
    try:
        yield
    finally:
        _idle.reset(token)
        for worker in kept.values():
            worker.end()


def started(module: str, *arguments: str) -> WorkerProcess:
    """A process without a program: an idle one of the same command and environment, or a new one.

    Only modules that know the message :class:`Forget` leave idle processes.
    """
    command, environment = module_process(module, *arguments)
    origin = tuple(command), frozenset(environment.items())
    idle = (_idle.get() or {}).pop(origin, None)
    if idle is not None:
        try:
            idle.connection.send(Forget())
        except OSError:  # it has been killed
            idle.end()
        else:
            return idle
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [*command, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    theirs.close()
    return WorkerProcess(origin, ours, process)


def leave_idle(worker: WorkerProcess) -> None:
    """Keep a process that has finished its runs, or end it."""
    kept = _idle.get()
    if kept is None or worker.origin in kept:
        worker.end()
    else:
        kept[worker.origin] = worker
