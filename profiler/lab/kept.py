"""Boards that ``lab up`` keeps running until ``lab down``, one per name."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from devices.description import DeviceDescription
from devices.documents.document import StrictModel, read_json, write_atomically
from devices.errors import BoardCommandFailed
from devices.program import command_line
from profiler.building.programs import require_programs
from profiler.lab.directories import boards_directory, boards_lock
from profiler.lab.process import Process
from profiler.lab.qemu import Guest, Progress, make_guest
from profiler.lab.running import PATIENCE_S, RunningBoard, prepare, reached, wait_until_up

State: TypeAlias = Literal["up", "starting", "dead"]


class Record(StrictModel):
    """Record of a kept board. ``guest`` is the fingerprint of what was started; ``port`` is set
    once the board is up."""

    schema_: Annotated[Literal["kept-board/1"], Field(alias="schema")] = "kept-board/1"
    name: str
    pid: int
    start_ticks: int
    boot_id: str
    guest: str
    port: int | None = None

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start_ticks, self.boot_id)

    @property
    def directory(self) -> Path:
        return _kept() / self.name


@dataclass(frozen=True)
class KeptBoard:
    """State of a kept board. ``port`` is None until it is up; ``uptime_s`` is None if it has
    ended."""

    name: str
    state: State
    pid: int
    port: int | None
    uptime_s: float | None


def bring_up(description: DeviceDescription, progress: Progress) -> RunningBoard:
    """Start a board that keeps running, or join the running one.

    A running board with another firmware, image or description is restarted.

    Args:
        description: An emulated board.
        progress: Called with each step.

    Raises:
        BuildFailed: A program is missing, or a build fails.
        BoardUnreachable: The board does not start.
    """
    require_programs(description)
    guest = make_guest(description, progress)
    record, begun = _begin(guest, progress)
    try:
        port = wait_until_up(guest, record.process, record.directory)
    except BaseException:
        if begun:
            _take_back(record)
        raise
    with boards_lock():
        if _read(record.name) == record:
            _write(record.model_copy(update={"port": port}))
    return _board(guest, record, port)


def join(guest: Guest, progress: Progress) -> RunningBoard | None:
    """The board that is kept running, if it exists and equals ``guest``; None otherwise."""
    record = _read(guest.description.name)
    if record is None or not record.process.is_alive:
        return None
    if record.guest != guest.fingerprint():
        again = command_line("lab", "up", "--device", guest.description.reference)
        progress(
            f"{record.name} is kept running with another firmware or description, and not used;"
            f" restart it with: {again}"
        )
        return None
    progress(f"using {record.name}, which is kept running")
    port = record.port or wait_until_up(guest, record.process, record.directory)
    return _board(guest, record, port)


def kept_boards() -> list[KeptBoard]:
    """All boards that ``lab up`` has started and ``lab down`` has not removed."""
    boards = []
    for record in _records():
        is_alive = record.process.is_alive
        state: State = "dead" if not is_alive else "starting" if record.port is None else "up"
        uptime_s = record.process.age_s if is_alive else None
        boards.append(KeptBoard(record.name, state, record.pid, record.port, uptime_s))
    return boards


def take_down(names: Sequence[str]) -> dict[str, bool]:
    """Stop kept boards and remove their records.

    Args:
        names: Names of boards; unknown ones are ignored.

    Returns:
        For each board that existed: whether it was still running.

    Raises:
        BoardCommandFailed: A board cannot be stopped.
    """
    stopped = {}
    with boards_lock():
        for name in names:
            record = _read(name)
            if record is not None:
                stopped[name] = record.process.is_alive
                _remove(record)
    return stopped


def _begin(guest: Guest, progress: Progress) -> tuple[Record, bool]:
    """The board's record, and whether this call started the board."""
    name, fingerprint = guest.description.name, guest.fingerprint()
    with boards_lock():
        record = _read(name)
        if record is not None:
            is_alive = record.process.is_alive
            if is_alive and record.guest == fingerprint:
                progress(f"{name} is running already")
                return record, False
            progress(
                f"{name} runs another firmware or description: restarting it"
                if is_alive
                else f"{name} was kept running, but has ended: restarting it"
            )
            _remove(record)
        else:
            progress(f"starting {name}")
        directory = _kept() / name
        shutil.rmtree(directory, ignore_errors=True)  # left by a failed start
        directory.mkdir(mode=0o700, parents=True)
        with prepare(guest, directory, keep=True) as launch:
            process = launch.process
            record = Record(
                name=name,
                pid=process.pid,
                start_ticks=process.start_ticks,
                boot_id=process.boot_id,
                guest=fingerprint,
            )
            _write(record)
            launch.go()
    return record, True


def _take_back(record: Record) -> None:
    """Remove the board, unless another process has ended it meanwhile."""
    with boards_lock():
        if _read(record.name) == record:
            _remove(record)


def _remove(record: Record) -> None:
    if not record.process.end(patience_s=PATIENCE_S):
        raise BoardCommandFailed(
            f"{record.name}: its emulator (process {record.pid}) does not end, even when killed",
            remedy="try again when this computer is less busy",
        )
    shutil.rmtree(record.directory, ignore_errors=True)


def _board(guest: Guest, record: Record, port: int) -> RunningBoard:
    description = reached(guest, record.directory, port)
    return RunningBoard(description, record.process, record.directory, None)


def _kept() -> Path:
    return boards_directory() / "kept"


def _records() -> list[Record]:
    paths = sorted(_kept().glob("*/board.json"))
    return [record for path in paths if (record := _read(path.parent.name)) is not None]


def _read(name: str) -> Record | None:
    """Read the record of a board; None without one. Raises
    :class:`~devices.documents.document.DocumentError` for a damaged record."""
    path = _kept() / name / "board.json"
    return read_json(path, Record) if path.exists() else None


def _write(record: Record) -> None:
    text = record.model_dump_json(by_alias=True, exclude_none=True)
    write_atomically(record.directory / "board.json", text)
