"""Pools for parallel tasks: loky processes on this machine, or a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from devices.errors import InputError

_PATIENCE_S = 15.0
_SAFE_PATH = "PYTHONSAFEPATH"


class PoolError(InputError):
    """A cluster cannot be used; the message says how to make it usable."""


@dataclass(frozen=True)
class Pool:
    """An executor. ``width`` returns how many tasks run at once, which changes on a cluster."""

    executor: Executor
    width: Callable[[], int]


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
    from loky import ProcessPoolExecutor

    with _safe_path():
        executor = ProcessPoolExecutor(
            processes, initializer=_tie_to_parent, initargs=(os.getpid(),)
        )
        try:
            yield Pool(executor, lambda: processes)
        finally:
            executor.shutdown(wait=True, kill_workers=True)


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
    """Ignore Ctrl-C, which the parent handles, and exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster_pool(scheduler: str) -> Iterator[Pool]:
    """A pool of the workers of the Dask scheduler at an address such as ``tcp://host:8786``.

    This project and its dependencies must be importable on the workers. A task that is running when
    the context is left continues there, but its result is dropped.

    Raises :class:`PoolError`.
    """
    try:
        from distributed import Client
    except ImportError:
        raise PoolError(
            "a Dask cluster needs the package 'distributed', which is not installed:"
            " pip install 'distributed>=2025.1'"
        ) from None
    try:
        client = Client(  # type: ignore[no-untyped-call]
            scheduler, timeout=_PATIENCE_S, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise PoolError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE_S)
        except TimeoutError:
            raise PoolError(f"the Dask scheduler at {scheduler!r} has no workers") from None
        executor = client.get_executor(pure=False)  # type: ignore[no-untyped-call]

        def threads() -> int:
            return sum(client.nthreads().values())  # type: ignore[no-untyped-call]

        try:
            yield Pool(executor, threads)
        finally:
            executor.shutdown(wait=False)
