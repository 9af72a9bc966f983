"""``serve``: the server from its socket to its end."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from devices.errors import InputError
from devices.program import installing_extra
from server.limits import Limits

if TYPE_CHECKING:
    import uvicorn

_CLOSING_S = 3


class AddressInUse(InputError):
    """The server cannot listen at the address that was asked for."""


def serve(
    host: str,
    port: int,
    results: Path,
    limits: Limits,
    announce: Callable[[str], None] = lambda _address: None,
) -> None:
    """Serve until a signal ends it. All jobs and their files end with the server.

    Args:
        host: Address to listen at. Names of other computers are refused at a loopback address.
        port: Port; 0 for a free one.
        results: Directory of results, whose profiles jobs may name.
        limits: Limits on requests and jobs.
        announce: Called with the address of the page, once the socket listens.

    Raises:
        AddressInUse: The address cannot be listened at.
        InputError: The packages of the extra ``serve`` are missing.
        KeyboardInterrupt: A signal ended the server.
    """
    try:
        import python_multipart  # noqa: F401  FastAPI's forms need it
        import uvicorn

        from server.app import Service, application
        from server.connections import connections
        from server.jobs import Jobs
    except ModuleNotFoundError as error:
        raise InputError(
            f"the server needs the package {error.name}: {installing_extra('serve')}"
        ) from None
    listening = _listening(host, port)
    with (
        listening,
        tempfile.TemporaryDirectory(
            prefix="joulewright-serve-", ignore_cleanup_errors=True
        ) as directory,
    ):
        jobs = Jobs(Path(directory), results, limits)
        server: uvicorn.Server

        def is_closing() -> bool:
            return server.should_exit

        loopback = {"localhost", "127.0.0.1", "::1", host} if _is_loopback(host) else None
        service = Service(jobs, limits, results, loopback, is_closing)
        config = uvicorn.Config(
            application(service),
            http=connections(limits.head_s),
            ws="none",
            log_config=None,
            proxy_headers=False,
            access_log=False,  # the address of a job is its key
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_CLOSING_S,
        )
        server = uvicorn.Server(config)
        for name in ("python_multipart", "uvicorn.error"):
            # Warnings are about requests that are no HTTP or no form: anybody could fill the log.
            logging.getLogger(name).setLevel(logging.ERROR)
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{listening.getsockname()[1]}/")
        try:
            with _ended_by_hangup(server):
                server.run(sockets=[listening])
        finally:
            jobs.kill()  # what a second Ctrl-C has left


@contextmanager
def _ended_by_hangup(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGHUP end the server in order, as uvicorn does for SIGINT and SIGTERM.

    An exception that a signal raises anywhere in an event loop can be lost, or leave threads behind
    that are waited for. The signal is raised again in the end, for the program's own handler.
    """
    before = signal.getsignal(signal.SIGHUP)
    if before == signal.SIG_IGN:  # as under nohup
        yield
        return
    arrived = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = server.should_exit = True

    signal.signal(signal.SIGHUP, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
    if arrived:
        signal.raise_signal(signal.SIGHUP)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen()
        except OSError:
            opened.close()
            raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise AddressInUse(
            f"{host}, port {port}: {reason}", remedy="name others with --host and --port"
        ) from None
    return opened


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
