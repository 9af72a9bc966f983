"""Where tasks run beside each other: processes of loky on this machine, or a Dask cluster."""

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
    """A cluster that cannot be used; the message says how it could."""


@dataclass(frozen=True)
class Pool:
    """``width`` tells how many tasks run at once; on a cluster workers come and go."""

    executor: Executor
    width: Callable[[], int]


def open_pool(processes: int, scheduler: str | None) -> AbstractContextManager[Pool]:
    """The workers of the Dask cluster at ``scheduler``; without one, processes of this machine."""
    return local_pool(processes) if scheduler is None else cluster_pool(scheduler)


@contextmanager
def local_pool(processes: int) -> Iterator[Pool]:
    """Processes of loky that end with this context, whatever they are doing, or with the process
    that opened it."""
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
    """Processes that are started meanwhile look for no module in the working directory, where a
    user may have a ``queue.py``: loky starts its own with ``-m`` and ``-c``."""
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
    """Ctrl-C goes to the parent, which decides; and no parent, no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster_pool(scheduler: str) -> Iterator[Pool]:
    """The workers of the Dask scheduler at an address such as ``tcp://host:8786``, on which this
    project and its dependencies must be importable. A task that runs when the context is left goes
    on there until it is done, but nobody waits for it.

    Raises :class:`PoolError`.
    """
    try:
        from distributed import Client
    except ImportError:
        raise PoolError(
            "a Dask cluster needs a package that is missing: pip install 'distributed>=2025.1'"
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
