"""Command ``lab``: start, show and stop emulated boards that keep running."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentError, ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from commands.arguments import add_json
from commands.command import Command
from commands.console import Console
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.description import DeviceDescription


@dataclass(frozen=True)
class Up:
    """Start these boards; if empty, all emulated boards of the catalogue."""

    devices: tuple[str, ...]


@dataclass(frozen=True)
class Down:
    """Stop these boards; if empty, all that run."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """Show which boards run."""


LabOptions: TypeAlias = Up | Down | Status


def _options_of(namespace: Namespace) -> LabOptions:
    match namespace.action:
        case "up":
            if namespace.name:
                names = " ".join(namespace.name)
                raise ArgumentError(
                    None, f"lab up names boards with --device: lab up --device {names}"
                )
            return Up(tuple(namespace.device or ()))
        case "down":
            return Down(tuple(namespace.name))
    return Status()


def _add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="up|status|down")
    up = actions.add_parser("up", help="start boards that keep running")
    add_json(up)
    up.add_argument(
        "--device",
        nargs="+",
        metavar="NAME",
        help="boards of the catalogue by name, or paths of device descriptions (all emulated boards"
        " of the catalogue)",
    )
    # Without this, argparse says "unrecognized arguments" for the way in which `lab down` is used.
    up.add_argument("name", nargs="*", help=SUPPRESS)
    add_json(actions.add_parser("status", help="list the running boards and their uptime"))
    down = actions.add_parser("down", help="stop boards")
    add_json(down)
    down.add_argument("name", nargs="*", metavar="NAME", help="boards to stop (all that run)")


def lab(options: LabOptions, console: Console) -> int:
    """Start, stop or list emulated boards."""
    match options:
        case Up():
            return _up(options, console)
        case Down():
            return _down(options, console)
        case Status():
            return _status(console)


def _up(options: Up, console: Console) -> int:
    from profiler.lab import bring_up

    for description in _described(options.devices):
        bring_up(description, console.say)
    return _status(console)


def _status(console: Console) -> int:
    from profiler.lab import kept_boards

    boards = kept_boards()
    console.document({"boards": [asdict(board) for board in boards]})
    if not boards:
        console.result("no emulated board is running")
        return ExitCode.DONE
    rows = [["device", "state", "uptime", "port", "process"]]
    rows += [
        [
            board.name,
            board.state,
            "–" if board.uptime_s is None else str(timedelta(seconds=int(board.uptime_s))),
            "–" if board.port is None else str(board.port),
            str(board.pid),
        ]
        for board in boards
    ]
    console.table(rows, right=(2, 3, 4))
    return ExitCode.DONE


def _down(options: Down, console: Console) -> int:
    from profiler.lab import kept_boards, take_down

    kept = [board.name for board in kept_boards()]
    names = options.names or kept
    for name in names:  # before any board is stopped
        if name not in kept:
            _require_known(name)
    was_alive = take_down(names)
    for name in names:
        if name not in was_alive:
            console.result(f"{name} was not running")
        elif was_alive[name]:
            console.result(f"{name} is stopped")
        else:
            console.result(f"{name} had already ended; its files are removed")
    if not names:
        console.result("no emulated board is running")
    stopped = {name: was_alive.get(name, False) for name in names}
    console.document({"stopped": [name for name, alive in stopped.items() if alive]})
    return ExitCode.DONE


def _described(names: tuple[str, ...]) -> list[DeviceDescription]:
    """Load the named descriptions, or those of all emulated boards of the catalogue."""
    from devices.description import catalog_names, load_description

    if names:
        return [load_description(name) for name in names]
    catalog = [load_description(name) for name in catalog_names()]
    return [description for description in catalog if description.emulator is not None]


def _require_known(name: str) -> None:
    """Raise ``DocumentError``, with the nearest name, if the catalogue has no board ``name``."""
    from devices.description import load_description

    load_description(name)


LAB = Command(_add_options, _options_of, lab)
