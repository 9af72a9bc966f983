"""The parent of an engine's process, as seen from there."""

from __future__ import annotations

import os
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

Order = TypeVar("Order")


class Parent(Generic[Order]):
    """What it orders comes through the pipe with file descriptor ``fd``. When it is gone, this
    process ends, in the middle of its work too. The terminal's Ctrl-C goes to the parent, which
    decides."""

    def __init__(self, fd: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._connection = Connection(fd)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, message: object) -> None:
        self._connection.send(message)

    def hear(self) -> Order:
        """The next order; waits for it."""
        return self._orders.get()

    def _listen(self) -> None:
        while True:
            try:
                self._orders.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)
