"""``Parent``: an engine process's connection to the process that started it."""

from __future__ import annotations

import os
import queue
import threading
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from devices.program import leave_stopping_to_parent

Order = TypeVar("Order")


class Parent(Generic[Order]):
    """Connection to the parent through the pipe with file descriptor ``fd``.

    This process exits when the parent is gone, even during a run. It ignores the signals that
    :func:`devices.program.leave_stopping_to_parent` names.
    """

    def __init__(self, fd: int) -> None:
        leave_stopping_to_parent()
        self._connection = Connection(fd)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: object) -> None:
        self._connection.send(message)

    def receive(self) -> Order:
        """Wait for the next order and return it."""
        return self._orders.get()

    def _listen(self) -> None:
        while True:
            try:
                self._orders.put(self._connection.recv())
            except (EOFError, OSError):
                os._exit(0)
