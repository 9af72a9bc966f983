"""Pools for parallel tasks: loky processes on this machine, or a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from devices.errors import EngineFailed, InputError
from devices.program import STOPS, installing, leave_stopping_to_parent, stops_put_off

CLUSTER_LIMIT_S = 15.0
"""Longest wait for a Dask scheduler, and again for its first worker."""

_SAFE_PATH = "PYTHONSAFEPATH"

_SENDER_LIMIT_S = 2.0


class PoolError(InputError):
    """A cluster cannot be used; the message says how to make it usable."""


Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class Pool:
    """An executor. ``width`` returns how many tasks run at once, which changes on a cluster."""

    executor: Executor
    width: Callable[[], int]

    def submit(
        self,
        task: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Future[Result]:
        """Begin a task, and the workers if this is the first one.

        Ctrl-C waits until that is done: a worker that the executor does not know yet would never be
        ended.

        Raises:
            EngineFailed: A worker has died, and with it the pool.
        """
        with _stops_blocked():
            try:
                return self.executor.submit(task, *arguments, **named)
            except BrokenExecutor as error:
                raise _worker_failed(error) from None


def outcome_of(future: Future[Result]) -> Result:
    """Result of a task.

    Raises:
        EngineFailed: The worker failed, not its task.
        Exception: What the task raised.
    """
    try:
        return future.result()
    except (BrokenExecutor, CancelledError) as error:
        raise _worker_failed(error) from None
    except ModuleNotFoundError as error:
        raise EngineFailed(f"a worker lacks a module of this project: {error}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "distributed":  # such as its KilledWorker
            raise EngineFailed(f"the Dask cluster failed: {error}") from None
        raise


def _worker_failed(error: Exception) -> EngineFailed:
    return EngineFailed(f"a worker ended before its task was finished: {error}")


def open_pool(processes: int, scheduler: str | None) -> AbstractContextManager[Pool]:
    """Open a pool.

    Args:
        processes: Number of processes on this machine; ignored with a ``scheduler``.
        scheduler: Address of a Dask scheduler, such as ``tcp://host:8786``; None for processes on
            this machine.

    Returns:
        A context manager; leaving it ends the pool.

    Raises:
        PoolError: The cluster cannot be used (on entering the context).
    """
    return local_pool(processes) if scheduler is None else cluster_pool(scheduler)


@contextmanager
def local_pool(processes: int) -> Iterator[Pool]:
    """A pool of loky processes, which are killed when the context or this process ends."""
    with _safe_path():
        executor = _local_executor(processes)
        try:
            yield Pool(executor, lambda: processes)
        finally:
            _kill(executor)


class LastingPool:
    """Processes on this machine that are replaced after one of them has died.

    What ran or waited in them then fails with :class:`~concurrent.futures.BrokenExecutor`; what is
    submitted later runs. The processes are killed when the context or this process ends.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._executor: Executor | None = None

    def submit(
        self,
        task: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Future[Result]:
        """Begin a task, and the processes if they are missing."""
        with _stops_blocked():
            if self._executor is not None:
                try:
                    return self._executor.submit(task, *arguments, **named)
                except BrokenExecutor:
                    self.close()
            self._executor = _local_executor(self._processes)
            return self._executor.submit(task, *arguments, **named)

    def close(self) -> None:
        """Kill the processes."""
        if self._executor is not None:
            _kill(self._executor)
            self._executor = None


@contextmanager
def lasting_pools() -> Iterator[Callable[[int], LastingPool]]:
    """A function that opens a :class:`LastingPool`; all of them end with the context."""
    opened: list[LastingPool] = []

    def open_one(processes: int) -> LastingPool:
        opened.append(LastingPool(processes))
        return opened[-1]

    with _safe_path():
        try:
            yield open_one
        finally:
            for pool in opened:
                pool.close()


def _kill(executor: Any) -> None:
    # A thread that sends tasks may be the last one that holds a semaphore. Where this process ended
    # while the thread removed it, loky would report that it leaked.
    sender = getattr(executor._call_queue, "_thread", None)
    executor.shutdown(wait=True, kill_workers=True)
    if sender is not None:
        sender.join(_SENDER_LIMIT_S)  # it never ends if it waits for a killed worker to read


def _local_executor(processes: int) -> Executor:
    from loky import ProcessPoolExecutor

    # A worker that has grown is replaced between two tasks, which no caller notices.
    warnings.filterwarnings("ignore", message="A worker was restarted while some jobs")
    _start_resource_trackers()
    with _stops_blocked():  # a semaphore that is only half registered would be left behind
        executor: Executor = ProcessPoolExecutor(
            processes, initializer=_tie_to_parent, initargs=(os.getpid(),)
        )
    return executor


def _start_resource_trackers() -> None:
    """Start the resource trackers of loky and of ``multiprocessing``.

    They outlive this process to remove what was left behind, and ignore Ctrl-C and SIGTERM only:
    SIGHUP is blocked in them. Whoever starts that of ``multiprocessing`` unblocks these two
    signals; loky would do so just before it starts a worker, which would inherit it.
    """
    from multiprocessing import resource_tracker as of_multiprocessing

    from loky.backend import resource_tracker as of_loky

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # processes inherit it
    try:
        of_loky.ensure_running()
        of_multiprocessing.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _stops_blocked() -> Iterator[None]:
    """Put off what Ctrl-C, SIGTERM and SIGHUP do until the context ends, here and in new processes.

    These inherit that the signals are blocked, and ignore them as soon as they have imported their
    modules.
    """
    with stops_put_off():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep new Python processes from importing modules of the working directory.

    A user may have a ``queue.py`` there, and loky starts its processes with ``-m`` and ``-c``.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _tie_to_parent(parent: int) -> None:
    """Leave it to the parent to end this process, and exit when the parent is gone."""
    leave_stopping_to_parent()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def waiting_for(scheduler: str) -> str:
    """Sentence for a user who is about to wait for :func:`cluster_pool`."""
    return f"waiting up to {CLUSTER_LIMIT_S:g} s for the Dask scheduler at {scheduler}"


@contextmanager
def cluster_pool(scheduler: str) -> Iterator[Pool]:
    """A pool of the workers of the Dask scheduler at an address such as ``tcp://host:8786``.

    This project and its dependencies must be importable on the workers. A task that is running when
    the context is left continues there, but its result is dropped.

    Raises :class:`PoolError`, as the pool's ``width`` does once the scheduler is lost.
    """
    try:
        from distributed import Client
    except ImportError:
        raise PoolError(
            "a Dask cluster needs the package 'distributed', which is not installed:"
            f" {installing('distributed>=2025.1')}"
        ) from None
    import asyncio  # takes a part of a second, which only commands with a cluster need

    try:
        asyncio.run(_greet(scheduler))
        client = Client(  # type: ignore[no-untyped-call]
            scheduler, timeout=CLUSTER_LIMIT_S, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise PoolError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CLUSTER_LIMIT_S)
        except TimeoutError:
            raise PoolError(f"the Dask scheduler at {scheduler!r} has no workers") from None
        executor = client.get_executor(pure=False)  # type: ignore[no-untyped-call]

        def threads() -> int:
            try:
                return sum(client.nthreads().values())  # type: ignore[no-untyped-call]
            except (OSError, RuntimeError, AttributeError):  # a closed client has no scheduler
                raise PoolError(
                    f"the Dask scheduler at {scheduler!r} does not answer any more",
                    remedy="start it again, and then the same command",
                ) from None

        try:
            yield Pool(executor, threads)
        finally:
            if client.status != "closed":  # as after a lost scheduler: nothing can be cancelled
                executor.shutdown(wait=False)


async def _greet(scheduler: str) -> None:
    """Shake hands with whatever is at the address of a scheduler, retrying until it answers.

    A ``Client`` that cannot do so hangs for another 30 s when it is discarded.

    Raises :class:`OSError` or :class:`ValueError`.
    """
    from distributed.comm.core import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    try:
        comm = await connect(  # type: ignore[no-untyped-call]
            scheduler, timeout=CLUSTER_LIMIT_S, **arguments
        )
    except MemoryError:  # it read the length of a message from the words of another protocol
        raise ValueError("what answers there is not a Dask scheduler") from None
    await comm.close()
