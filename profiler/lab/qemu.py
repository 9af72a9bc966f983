"""QEMU's command line for a described board, and how the board is reached."""

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from devices.description import DeviceDescription, SerialTransport, SshTransport
from devices.documents.document import DocumentError, write_atomically
from devices.errors import BuildFailed
from devices.firmware import EmulatedCard, Emulator
from devices.plan import ExecutionPlan
from profiler.building.programs import program_path
from profiler.lab.monitor import Monitor
from profiler.lab.wiring import card_wiring

if TYPE_CHECKING:
    from profiler.building.firmware_image import FirmwareImage
    from profiler.lab.image import LinuxImage

Progress: TypeAlias = Callable[[str], None]

HOST = "127.0.0.1"
_CARD = "card.img"
_CONSOLE = "console"
_KNOWN_HOSTS = "known_hosts"

# Otherwise the board's kernel would still initialise a new file system during measurements.
_NOT_LATER = "lazy_itable_init=0,lazy_journal_init=0"

_GUEST_ADDRESS = "10.0.2.15"  # of a single guest in QEMU's user network
_BANNER_LIMIT_S = 1.0


@dataclass(frozen=True)
class Guest(ABC):
    """A board that an emulator can run, in a directory made for one start."""

    description: DeviceDescription
    emulator: Emulator

    @property
    @abstractmethod
    def contents(self) -> dict[str, Path]:
        """Files that it runs, by the emulator's options for them."""

    @abstractmethod
    def make_media(self, directory: Path) -> None:
        """Make the board's card. Raises :class:`~devices.errors.BuildFailed`."""

    @abstractmethod
    def open_line(self) -> socket.socket | None:
        """Socket that the emulator inherits for reaching the board; None if the emulator opens its
        own."""

    @abstractmethod
    def words(self, line: int | None) -> list[str]:
        """The emulator's options, without those that all boards share. ``line`` is the handle of
        :meth:`open_line`."""

    @abstractmethod
    def port(self, monitor: Monitor) -> int:
        """Port on this computer by which the board is reached."""

    @abstractmethod
    def answers(self, port: int) -> bool:
        """Whether the board answers yet."""

    @abstractmethod
    def transport(self, directory: Path, port: int) -> SerialTransport | SshTransport:
        """The description's transport, completed with what the start determined."""

    def command(self, line: int | None, monitor: int) -> list[str]:
        """Command to run in the directory. ``monitor`` is the handle of a listening socket."""
        emulator = self.emulator
        return [
            *(emulator.program, "-no-user-config", "-nodefaults", "-display", "none"),
            *("-machine", emulator.machine),
            *(() if emulator.cpu is None else ("-cpu", emulator.cpu)),
            *("-chardev", f"socket,id=monitor,fd={monitor},server=on,wait=off"),
            *("-mon", "chardev=monitor,mode=control"),
            *self.words(line),
            *(word for option, path in self.contents.items() for word in (option, str(path))),
        ]

    def fingerprint(self) -> str:
        """Digest of everything that determines the running board."""
        digest = hashlib.sha256(self.emulator.model_dump_json().encode())
        digest.update("\0".join(self.words(None)).encode())
        for path in self.contents.values():
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    def last_words(self, directory: Path) -> str | None:
        """Last line on its console, preferably not a kernel message, which starts with a time."""
        return last_line(directory / _CONSOLE, r"(?!\[ *\d+\.\d+\])")


@dataclass(frozen=True)
class Microcontroller(Guest):
    """A microcontroller. Its UART is a TCP port for one client at a time; output of the firmware
    without a client is lost."""

    firmware: FirmwareImage
    wiring: Path | None
    """Plugin that wires the card, on a machine without a slot."""

    @property
    def contents(self) -> dict[str, Path]:
        return {"-kernel": self.firmware.elf.resolve()}

    def make_media(self, directory: Path) -> None:
        if self.emulator.card is not None:
            _make_card(directory / _CARD, self.emulator.card)

    def open_line(self) -> socket.socket:
        line = socket.create_server((HOST, 0), backlog=1)
        # Accepted connections inherit this option (tcp(7)).
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line

    def words(self, line: int | None) -> list[str]:
        words = ["-chardev", f"socket,id=line,fd={line},server=on,wait=off"]
        words += ["-serial", "chardev:line"]
        if self.emulator.icount_shift is not None:
            words += ["-icount", f"shift={self.emulator.icount_shift},sleep=off"]
        if (card := self.emulator.card) is not None and self.wiring is not None:
            words += ["-drive", f"if=none,id=card,{_drive(card)}"]
            plugin = str(self.wiring).replace(",", ",,")
            words += ["-plugin", f"{plugin},port={card.spi_port:#x}"]
        elif card is not None:
            words += ["-drive", f"if=sd,{_drive(card)}"]
        return words

    def port(self, monitor: Monitor) -> int:
        devices = {
            device["label"]: device["filename"] for device in monitor.execute("query-chardev")
        }
        found = re.search(r"tcp:[^,]*:(\d+),server", devices["line"])
        assert found is not None, devices
        return int(found[1])

    def answers(self, _port: int) -> bool:
        return True  # its socket listens before the start

    def transport(self, _directory: Path, port: int) -> SerialTransport:
        described = self.description.transport
        assert isinstance(described, SerialTransport)
        return described.model_copy(update={"port": f"socket://{HOST}:{port}"})


@dataclass(frozen=True)
class LinuxBoard(Guest):
    """A Linux board. Its SSH server is reached through QEMU's user network, which has no other
    connection. That network accepts TCP connections before anything listens in the guest."""

    image: LinuxImage
    kernel_words: tuple[str, ...]

    @property
    def contents(self) -> dict[str, Path]:
        return {"-kernel": self.image.kernel.resolve(), "-initrd": self.image.initramfs.resolve()}

    def make_media(self, directory: Path) -> None:
        if self.emulator.card is not None:
            _make_card(directory / _CARD, self.emulator.card)
            _make_file_system(directory / _CARD)

    def open_line(self) -> None:
        return None

    def words(self, _line: int | None) -> list[str]:
        words = [
            *("-append", " ".join(self.kernel_words)),
            *("-serial", f"file:{_CONSOLE}"),
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:{HOST}:0-{_GUEST_ADDRESS}:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            *("-device", "virtio-rng-pci"),
        ]
        if self.description.memory is not None:
            words += ["-m", f"{self.description.memory.ram_bytes}B"]
        shift, processor = self.emulator.icount_shift, self.description.processor
        if shift is None:
            words += ["-smp", str(processor.cores if processor else 2)]
            words += ["-accel", "tcg,thread=multi"]
        else:  # instructions are counted in one thread
            words += ["-smp", str(processor.cores if processor else 1)]
            words += ["-accel", "tcg,thread=single", "-icount", f"shift={shift},sleep=on"]
        if self.emulator.card is not None:
            words += ["-drive", f"if=none,id=card,{_drive(self.emulator.card)}"]
            words += ["-device", "sdhci-pci", "-device", "sd-card,drive=card"]
        return words

    def port(self, monitor: Monitor) -> int:
        table = monitor.execute("human-monitor-command", **{"command-line": "info usernet"})
        found = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+\S+\s+(\d+)", table)
        assert found is not None, table
        return int(found[1])

    def answers(self, port: int) -> bool:
        try:
            with socket.create_connection((HOST, port), timeout=_BANNER_LIMIT_S) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def transport(self, directory: Path, port: int) -> SshTransport:
        described = self.description.transport
        assert isinstance(described, SshTransport)
        known_hosts = directory / _KNOWN_HOSTS
        write_atomically(known_hosts, f"[{HOST}]:{port} {self.image.host_key_line}\n")
        reached = {"host": HOST, "port": port, "key": self.image.private_key}
        return described.model_copy(update={**reached, "known_hosts": known_hosts})


def make_guest(
    description: DeviceDescription, progress: Progress, plans: Sequence[ExecutionPlan] = ()
) -> Guest:
    """Make the guest of a description. Its firmware (with the plans), or its kernel and root file
    system, are built unless cached.

    Raises ``BuildFailed``, and ``DocumentError`` for a description without an emulator.
    """
    emulator = description.emulator
    if emulator is None:
        raise DocumentError(f"{description.name} is not an emulated board: it has no emulator")
    if description.firmware is not None:
        from profiler.building.firmware_image import build_firmware

        firmware = build_firmware(description, progress, plans)
        is_wired = emulator.card is not None and emulator.card.spi_port is not None
        wiring = card_wiring(progress) if is_wired else None
        return Microcontroller(description, emulator, firmware, wiring)
    from profiler.lab.image import build_image, kernel_words

    image = build_image(progress)
    return LinuxBoard(description, emulator, image, tuple(kernel_words(emulator)))


def last_line(path: Path, wanted: str) -> str | None:
    """The last line that begins with the pattern ``wanted``, or else the last non-blank line."""
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return None
    last_first = [line for line in reversed(lines) if line]
    matching = (line for line in last_first if re.match(wanted, line))
    return next(matching, last_first[0] if last_first else None)


def _drive(card: EmulatedCard) -> str:
    """Options of a card. Its content is never flushed to disk, since it does not outlive its
    board."""
    options = f"file={_CARD},format=raw,cache=unsafe"
    if card.throttle is not None:
        options += f",throttling.iops-read={card.throttle.read_iops}"
        options += f",throttling.iops-write={card.throttle.write_iops}"
    return options


def _make_card(path: Path, card: EmulatedCard) -> None:
    """Make a sparse file, which takes no more space than is written to it."""
    with path.open("wb") as stream:
        stream.truncate(card.size_bytes)


def _make_file_system(card: Path) -> None:
    program = program_path("mke2fs")
    assert program is not None, "require_programs() comes first"
    try:
        subprocess.run(
            [program, "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-E", _NOT_LATER, card],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip()
        raise BuildFailed(
            f"mke2fs cannot make a file system on an emulated card: {reason}"
        ) from error
