"""The protocol of a connection, which ends one that nobody uses."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def connections(head_s: float) -> type[H11Protocol]:
    """The protocol of connections that are closed if the head of a request takes too long.

    uvicorn limits the time between two requests as long as nothing at all arrives; a client that
    sends a byte now and then could hold its connections for ever, and so could one that never reads
    its answer.

    Args:
        head_s: Longest time without a request whose head has arrived, and longest time in which a
            client takes nothing of what is sent to it.
    """

    class Connection(H11Protocol):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._idle_since = self.loop.time()
            self._check: asyncio.TimerHandle | None = None
            self._unsent_bytes = 0
            self._taken_at = self._idle_since

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._idle_since = self.loop.time()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._check is not None:
                self._check.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            self._idle_since = self.loop.time()
            super().on_response_complete()

        def _watch(self) -> None:
            now = self.loop.time()
            unsent_bytes = self.transport.get_write_buffer_size()
            if unsent_bytes != self._unsent_bytes or not unsent_bytes:
                self._unsent_bytes, self._taken_at = unsent_bytes, now
            if now - self._taken_at > head_s:
                self.transport.abort()
                return
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and now - self._idle_since > head_s:
                self.transport.close()  # once what is unsent has been taken
            self._check = self.loop.call_later(head_s / 3, self._watch)

    return Connection
