"""Write programs into the flash of microcontrollers, by the description's tool or boot loader."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from devices.description import DeviceDescription, SerialTransport
from devices.documents.document import DocumentError
from devices.errors import (
    BoardInUse,
    BoardUnreachable,
    BuildFailed,
    FirmwareMismatch,
    OtherFirmware,
)
from devices.firmware import (
    BossacFlasher,
    CopyFlasher,
    NrfjprogFlasher,
    OpenocdFlasher,
    PyocdFlasher,
)
from devices.meters import feeds_board
from devices.plan import ExecutionPlan
from devices.program import ended_in_any_case
from profiler.boards.base import BoardFacts
from profiler.building.firmware_image import FirmwareImage, build_firmware, firmware_identity
from profiler.flashing.uf2 import uf2_file
from profiler.transports.deadline import Deadline

Progress: TypeAlias = Callable[[str], None]

TOOL_LIMIT_S = 120.0
"""Time limit of a tool. The largest of these programs is written in a few seconds."""

DISK_LIMIT_S = 60.0
"""Time for the user to put the board into its boot loader."""

_ANSWER_LIMIT_S = 3.0  # for a board that may have no program that answers
_PORT_LIMIT_S = 10.0  # for the boot loader's port to appear after the touch
_START_LIMIT_S = 10.0  # for the boot loader to end, and the program's own port to appear
_END_LIMIT_S = 3.0  # for a tool to release its probe after SIGTERM
_POLL_S = 0.05


class Flashing(Protocol):
    """Way to write one program into one board."""

    @property
    def words(self) -> str:
        """Description of what will be done, as a command line or a manual step."""
        ...

    def carry_out(self, progress: Progress) -> None:
        """Write the program. Raises :class:`~devices.errors.BuildFailed` if the tool is not
        installed, and :class:`~devices.errors.BoardUnreachable` if it fails."""
        ...


def flashing_of(description: DeviceDescription, image: FirmwareImage) -> Flashing:
    """Choose the way to flash a board, without touching it.

    Args:
        description: The board.
        image: Its firmware.

    Raises:
        DocumentError: The description names no way.
    """
    board = description.name
    firmware = description.firmware
    if firmware is None:
        raise DocumentError(f"{board}: only boards with firmware are flashed; it has none")
    match firmware.flasher:
        case OpenocdFlasher(config=config):
            files = [word for name in config for word in ("-f", name)]
            # Braces make one Tcl word of any path.
            program = f"program {{{image.elf}}} verify reset exit"
            return ToolFlashing(
                board, ("openocd", *files, "-c", program), "sudo apt install openocd"
            )
        case PyocdFlasher(target=target, probe=probe):
            choice = () if probe is None else ("--probe", probe)
            return ToolFlashing(
                board,
                ("pyocd", "flash", "--no-wait", "--target", target, *choice, str(image.elf)),
                f"pip install pyocd, then: pyocd pack install {shlex.quote(target)}",
            )
        case NrfjprogFlasher(serial=serial):
            choice = () if serial is None else ("--snr", serial)
            words = ("--program", str(image.hex), "--sectorerase", "--verify", "--reset")
            return ToolFlashing(
                board, ("nrfjprog", *words, *choice), "Nordic's nRF Command Line Tools"
            )
        case BossacFlasher(port=port, offset=offset):
            boot_limit_s = _START_LIMIT_S if feeds_board(description.meter) else 0.0
            return BossacFlashing(board, port, offset, image.bin, boot_limit_s=boot_limit_s)
        case CopyFlasher(directory=directory, format="uf2", uf2_family=int(family)):
            content = uf2_file(image.bin.read_bytes(), firmware.flash_address, family)
            return CopyFlashing(board, directory.expanduser(), f"{image.bin.stem}.uf2", content)
        case CopyFlasher(directory=directory, format=kind):
            source = image.hex if kind == "hex" else image.bin
            return CopyFlashing(board, directory.expanduser(), source.name, source.read_bytes())
    raise DocumentError(
        f"{board}: its description does not state how to flash it",
        remedy="add firmware.flasher, of kind openocd, pyocd, nrfjprog, bossac or copy",
    )


def ensure_flashed(
    description: DeviceDescription, plans: Sequence[ExecutionPlan], progress: Progress
) -> None:
    """Write the firmware with ``plans`` to the board, unless it already runs there.

    The caller has the board to itself (:func:`~profiler.opening.boards.alone_with`).
    Only other firmware of this project for the same board is overwritten; with plans, also what
    does not answer.

    Args:
        description: A board with a flasher, or with plans.
        plans: Execution plans that the firmware can replay; none for measuring operations.
        progress: Called with each step.

    Raises:
        BoardInUse: Another program uses the board.
        BoardUnreachable: The board does not answer, or its tool fails.
        FirmwareMismatch: The firmware of another board answers, or one of another protocol.
        JoulewrightError: The firmware cannot be built or written.
    """
    if _runs(description, plans, progress):
        return
    image = build_firmware(description, progress, plans)
    flashing = flashing_of(description, image)
    require_free(description)  # building may have taken minutes
    progress(
        f"writing the firmware{' with the plan' if plans else ''} to {description.name}:"
        f" {flashing.words}; it stays there until a command needs another one"
    )
    flashing.carry_out(progress)
    greet(description, image, progress)


def _runs(
    description: DeviceDescription, plans: Sequence[ExecutionPlan], progress: Progress
) -> bool:
    """Whether the firmware with ``plans`` runs on the board.

    Raises an error where another one must not be written.
    """
    from profiler.boards.serial import SerialBoard

    transport = description.transport
    assert isinstance(transport, SerialTransport)
    if plans:
        limit_s = min(transport.deadline_s, _ANSWER_LIMIT_S)
        transport = transport.model_copy(update={"deadline_s": limit_s})
    asked = description.model_copy(update={"transport": transport})
    try:
        with SerialBoard(asked, firmware_identity(description, plans)) as board:
            board.prepare(progress)
    except OtherFirmware:
        return False
    except BoardInUse:
        raise
    except BoardUnreachable:
        if not plans:
            raise
        return False
    return True


def require_free(description: DeviceDescription) -> None:
    """Raise :class:`~devices.errors.BoardInUse` if another program has the board's port open.

    A board whose program does not run may have no port, and can be flashed.
    """
    from profiler.transports.serial.line import Line

    transport = description.transport
    assert isinstance(transport, SerialTransport), "boards with firmware have a serial port"
    assert transport.port is not None, "only an emulated board gets its port when it starts"
    with closing(Line(transport.port, transport.baud)) as line:
        try:
            line.open()
        except BoardInUse:
            raise
        except BoardUnreachable:
            return


def greet(description: DeviceDescription, image: FirmwareImage, progress: Progress) -> BoardFacts:
    """Connect to a program that was just written and return its facts.

    Args:
        description: The board.
        image: The program that must answer.
        progress: Called with each step.

    Raises:
        BoardUnreachable: It does not answer.
        FirmwareMismatch: Another program answers.
    """
    from profiler.boards.serial import SerialBoard

    deadline = Deadline(_START_LIMIT_S)
    while True:
        try:
            with SerialBoard(description, image.identity) as board:
                board.prepare(progress)
                return board.facts
        except FirmwareMismatch as error:
            if deadline.expired:
                raise FirmwareMismatch(
                    f"the program was written, but another program answers: {error}"
                ) from error
        except BoardUnreachable as error:
            if deadline.expired:
                raise BoardUnreachable(
                    f"the program was written, but it does not answer: {error}"
                ) from error
        time.sleep(_POLL_S)


@dataclass(frozen=True)
class ToolFlashing:
    """A tool with a debug probe. ``remedy`` says how to install the tool."""

    board: str
    argv: tuple[str, ...]
    remedy: str
    limit_s: float = TOOL_LIMIT_S

    @property
    def words(self) -> str:
        import shlex

        return shlex.join(self.argv)

    def carry_out(self, progress: Progress) -> None:
        tool = self.argv[0]
        progress(f"{tool} writes the program")
        with ended_in_any_case(self._started, _end) as process:
            try:
                output, _ = process.communicate(timeout=self.limit_s)
            except subprocess.TimeoutExpired:
                raise BoardUnreachable(
                    f"{self.board}: {tool} did not finish within {self.limit_s:g} s",
                    remedy="check that the board is powered and that its probe is free",
                ) from None
        if process.returncode != 0:
            raise BoardUnreachable(
                f"{self.board}: {tool} failed: {_complaint(output, process.returncode)}"
            )

    def _started(self) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,  # it must not prompt
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches only this process, which ends the tool
            )
        except OSError as error:
            raise BuildFailed(
                f"{self.board}: cannot run {self.argv[0]} ({error.strerror})",
                remedy=f"install it with: {self.remedy}",
            ) from error


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with all its children. SIGTERM comes first, since an interrupted probe may need
    to be replugged."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_LIMIT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


_ERROR_LINE = re.compile(r"(?:error\b:?|\d+ [CE] )\s*(?P<words>.*?)(?: \[\w+\])?$", re.IGNORECASE)
"""Matches ``Error: …`` of OpenOCD and nrfjprog, and ``0000390 E … [load_cmd]`` of pyOCD."""


def _complaint(output: str, exit_code: int) -> str:
    """The last line that is marked as an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [match["words"] for line in lines if (match := _ERROR_LINE.match(line))]
    return (marked or lines or [f"no output, exit code {exit_code}"])[-1]


@dataclass(frozen=True)
class BossacFlashing:
    """Flashing with bossac. Opening the port at 1200 baud starts the boot loader, whose port may
    have another number, another name, or the same name as before.

    The program's port may appear up to ``boot_limit_s`` after the board gets its power.
    """

    board: str
    port: str
    offset: int
    binary: Path
    limit_s: float = TOOL_LIMIT_S
    port_limit_s: float = _PORT_LIMIT_S
    boot_limit_s: float = 0.0

    @property
    def words(self) -> str:
        return f"{self._tool(self.port).words}  (after opening {self.port} at 1200 baud)"

    def carry_out(self, progress: Progress) -> None:
        self._await_port()
        progress(f"opening {self.port} at 1200 baud, for the boot loader")
        before = _serial_ports(self.port)
        self._touch()
        self._tool(self._boot_loader(before)).carry_out(progress)

    def _tool(self, port: str) -> ToolFlashing:
        options = (f"--port={port}", f"--offset={self.offset:#x}")
        actions = ("--erase", "--write", "--verify", "--reset")
        argv = ("bossac", *options, *actions, str(self.binary))
        return ToolFlashing(self.board, argv, "sudo apt install bossa-cli", self.limit_s)

    def _await_port(self) -> None:
        deadline = Deadline(self.boot_limit_s)
        while not (os.access(self.port, os.R_OK | os.W_OK) or deadline.expired):
            time.sleep(_POLL_S)

    def _touch(self) -> None:
        import serial

        try:
            with serial.Serial(self.port, baudrate=1200) as port, contextlib.suppress(OSError):
                port.dtr = False
        except serial.SerialException as error:
            raise BoardUnreachable(
                f"{self.board}: cannot open {self.port} ({error})",
                remedy="check that the board is plugged in, that its program has a USB port (else"
                " press reset twice, for the boot loader's), and that you may use the port (group"
                " dialout)",
            ) from error

    def _boot_loader(self, known: set[str]) -> str:
        """The first port that appears. A board that was already in its boot loader keeps its
        port."""
        deadline = Deadline(self.port_limit_s)
        while not deadline.expired:
            time.sleep(_POLL_S)
            ports = _serial_ports(self.port)
            ready = [name for name in ports - known if os.access(name, os.R_OK | os.W_OK)]
            if ready:
                return self.port if self.port in ready else min(ready)
            known &= ports  # a port that disappeared may come back
        if self.port in known:
            return self.port
        raise BoardUnreachable(
            f"{self.board}: no port appeared within {self.port_limit_s:g} s of the touch at 1200"
            " baud",
            remedy="press the board's reset button twice, name the boot loader's port and try"
            " again",
        )


def _serial_ports(named: str) -> set[str]:
    from serial.tools import list_ports

    present = {port.device for port in list_ports.comports()}
    return present | ({named} if Path(named).exists() else set())


@dataclass(frozen=True)
class CopyFlashing:
    """A boot loader that appears as a disk and writes the file that is copied there."""

    board: str
    directory: Path
    name: str
    content: bytes
    limit_s: float = DISK_LIMIT_S

    @property
    def words(self) -> str:
        return f"copy {self.name} ({len(self.content)} bytes) to {self.directory}"

    def carry_out(self, progress: Progress) -> None:
        if not self._is_mounted():
            progress(f"waiting for the disk {self.directory}: put the board into its boot loader")
            self._await_disk()
        progress(f"copying {self.name} to {self.directory}")
        try:
            with (self.directory / self.name).open("wb") as file:
                file.write(self.content)
                file.flush()
                self._sync(file.fileno())
        except OSError as error:
            raise BoardUnreachable(
                f"{self.board}: cannot write {self.name} to {self.directory}: {error.strerror}"
            ) from error

    def _await_disk(self) -> None:
        deadline = Deadline(self.limit_s)
        while not self._is_mounted():
            if deadline.expired:
                raise BoardUnreachable(
                    f"{self.board}: no disk appeared at {self.directory} within {self.limit_s:g} s",
                    remedy="put the board into its boot loader (often: press reset twice) and"
                    " mount it",
                )
            time.sleep(_POLL_S)

    def _is_mounted(self) -> bool:
        """Whether the disk is mounted. An empty directory is only a mount point: every boot loader
        has files."""
        try:
            return any(self.directory.iterdir())
        except OSError:  # not mounted, or the boot loader is just starting
            return False

    def _sync(self, descriptor: int) -> None:
        """Flush the file. A boot loader that has the last block starts the program at once, and its
        disk disappears before the file is closed."""
        try:
            os.fsync(descriptor)
        except OSError:
            if self._is_mounted():
                raise
