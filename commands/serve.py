"""Command ``serve``: the solver behind a page and JSON."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from commands.arguments import add_json, add_results, count, positive
from commands.command import Command
from commands.console import Console
from devices.errors import ExitCode, InputError
from devices.quantities import MOST_BYTES
from devices.results import Results
from server.limits import Limits

_HOST, _PORT = "127.0.0.1", 8000
_MOST_PORT = 65535


@dataclass(frozen=True)
class ServeOptions:
    """Where to listen, whose profiles to offer, and what jobs may use."""

    host: str
    port: int
    results: Results
    limits: Limits

    @classmethod
    def of(cls, namespace: Namespace) -> ServeOptions:
        """Read the options.

        Raises:
            InputError: A size cannot be parsed.
        """
        return cls(
            host=namespace.host,
            port=namespace.port,
            results=namespace.results,
            limits=Limits(
                upload_bytes=_bytes("--most-upload", namespace.most_upload),
                solve_s=namespace.time_limit,
                running=namespace.jobs,
                waiting=namespace.queue,
                memory_bytes=_bytes("--memory", namespace.memory),
                keep_s=60 * namespace.keep,
            ),
        )


def _bytes(option: str, text: str) -> int:
    from solver.problem.quantities import parse_bytes

    found = parse_bytes(text)
    if found is None or not 1 <= found <= MOST_BYTES:
        raise InputError(f"{option}: {text!r} is not a size such as 64MiB")
    return int(found)


def _port(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isdecimal() or len(text) > 5 or int(text) > _MOST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a number of a port, from 0 to {_MOST_PORT}")
    return int(text)


def _add_options(parser: ArgumentParser) -> None:
    default = Limits()
    add_json(parser)
    add_results(parser)
    parser.add_argument(
        "--host",
        default=_HOST,
        help=f"address to listen at ({_HOST}, which other computers cannot reach)",
    )
    parser.add_argument(
        "--port", type=_port, default=_PORT, help=f"port; 0 for a free one ({_PORT})"
    )
    parser.add_argument(
        "--time-limit",
        type=positive,
        default=default.solve_s,
        metavar="SECONDS",
        help=f"longest search of a job ({default.solve_s:g})",
    )
    parser.add_argument(
        "--jobs", type=count, default=default.running, help=f"jobs at once ({default.running})"
    )
    parser.add_argument(
        "--queue",
        type=count,
        default=default.waiting,
        metavar="N",
        help=f"jobs that may wait ({default.waiting})",
    )
    parser.add_argument(
        "--most-upload",
        default="64MiB",
        metavar="SIZE",
        help="largest request, with all its files (64MiB)",
    )
    parser.add_argument(
        "--memory",
        default="4GiB",
        metavar="SIZE",
        help="most memory of each process of a job (4GiB)",
    )
    parser.add_argument(
        "--keep",
        type=positive,
        default=default.keep_s / 60,
        metavar="MINUTES",
        help=f"how long answers are kept ({default.keep_s / 60:g})",
    )


def serve(options: ServeOptions, console: Console) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    from server.serving import serve as serve_until_stopped

    def announce(address: str) -> None:
        console.document({"address": address})
        console.result(f"page      {address}\nscripts   {address}openapi.json")
        console.say("Ctrl-C ends the server and all its jobs")

    serve_until_stopped(options.host, options.port, options.results.root, options.limits, announce)
    return ExitCode.DONE


SERVE = Command(_add_options, ServeOptions.of, serve)
