"""``Guard``: what every request must be, and what every response says, whatever it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_CHANGING = {"POST", "PUT", "PATCH", "DELETE"}


class Guard:
    """Refuses requests that a page of somebody else makes in a browser on this computer.

    A server on loopback is reached by every page that the browser shows: by a name of its own that
    resolves to 127.0.0.1 (refused by the ``Host``), or by a form that it sends elsewhere (refused
    by ``Sec-Fetch-Site``, which every browser sends and no page can change).

    Args:
        app: The application.
        hosts: Names by which the server may be called, without port; None allows all.
    """

    def __init__(self, app: App, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _name_of(host) not in self._hosts:
            await _refuse(send_with_headers, 421, "this server is not called by that name")
            return
        site = headers.get(b"sec-fetch-site", b"none")
        if scope["method"] in _CHANGING and site not in {b"none", b"same-origin"}:
            await _refuse(send_with_headers, 403, "the request is one of another site's page")
            return
        await self._app(scope, receive, send_with_headers)


def _name_of(host: str) -> str:
    """The name in ``name:port`` or ``[address]:port``."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0].lower()


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = f'{{"error":"{sentence}","exit_code":2}}'.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
