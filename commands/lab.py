"""``lab``: emulated boards that keep running."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from commands.console import Console
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.description import DeviceDescription


def lab(arguments: Namespace, console: Console) -> int:
    match arguments.action:
        case "up":
            return _up(arguments, console)
        case "down":
            return _down(arguments, console)
    return _status(console)


def _up(arguments: Namespace, console: Console) -> int:
    from profiler.lab import bring_up

    for description in _described(arguments.device):
        bring_up(description, console.say)
    return _status(console)


def _status(console: Console) -> int:
    from profiler.lab import kept_boards

    boards = kept_boards()
    console.document({"boards": [asdict(board) for board in boards]})
    if not boards:
        console.result("no board is kept running")
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


def _down(arguments: Namespace, console: Console) -> int:
    from profiler.lab import kept_boards, take_down

    names = arguments.name or [board.name for board in kept_boards()]
    was_alive = take_down(names)
    for name in names:
        if name not in was_alive:
            _require_known(name)
            console.result(f"{name} was not running")
        elif was_alive[name]:
            console.result(f"{name} is stopped")
        else:
            console.result(f"{name} had ended by itself; its files are removed")
    if not names:
        console.result("no board is kept running")
    stopped = {name: was_alive.get(name, False) for name in names}
    console.document({"stopped": [name for name, alive in stopped.items() if alive]})
    return ExitCode.DONE


def _described(names: list[str] | None) -> list[DeviceDescription]:
    """Those named, or all emulated boards of the catalogue."""
    from devices.description import catalog_names, load_description

    if names:
        return [load_description(name) for name in names]
    catalog = [load_description(name) for name in catalog_names()]
    return [description for description in catalog if description.emulator is not None]


def _require_known(name: str) -> None:
    """Raises ``DocumentError`` for what no board of the catalogue is called,
    with the near name for a typo."""
    from devices.description import load_description

    load_description(name)
