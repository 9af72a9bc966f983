"""Command ``flash``: put firmware on a microcontroller."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commands.arguments import add_device, add_json
from commands.command import Command
from commands.console import Console
from devices.documents.readable import size
from devices.errors import ExitCode
from devices.program import command_line

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from devices.profile import BoardIdentity
    from profiler.building.firmware_image import FirmwareImage
    from profiler.flashing.flashing import Flashing, Progress


@dataclass(frozen=True)
class FlashOptions:
    """Board to flash; with ``dry_run``, build only and touch no board."""

    device: str
    dry_run: bool

    @classmethod
    def of(cls, namespace: Namespace) -> FlashOptions:
        """Options as read from the command line."""
        return cls(namespace.device, namespace.dry_run)


def _add_options(parser: ArgumentParser) -> None:
    add_json(parser)
    add_device(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="build and print what would be done, without touching a board",
    )


def flash(options: FlashOptions, console: Console) -> int:
    """Build the firmware, put it on the board, and read the board's identity."""
    from devices.description import load_description
    from devices.documents.document import DocumentError
    from profiler.building.firmware_image import build_firmware
    from profiler.flashing.flashing import flashing_of, greet

    description = load_description(options.device)
    if description.firmware is None:
        raise DocumentError(
            f"{description.name} takes no firmware: its transport is {description.transport.kind};"
            " use profile or run, which build and start their own program"
        )
    image = build_firmware(description, console.say)
    is_emulated = description.emulator is not None
    flashing = None if is_emulated else flashing_of(description, image)
    words = _emulator_words(description, image) if flashing is None else flashing.words
    document = {
        "device": description.name,
        "firmware_sha256": image.firmware_sha256,
        "program": str(image.elf),
        "program_bytes": image.bin.stat().st_size,
        "does": words,
    }
    if options.dry_run:
        console.document(document)
        console.result(words)
        return ExitCode.DONE
    if flashing is None:
        from profiler.lab import bring_up

        console.say(words)
        description = bring_up(description, console.say).description
        identity = greet(description, image, console.say).identity
    else:
        identity = _flash(description, image, flashing, console.say)
    console.document(document | {"board": identity.model_dump(mode="json", exclude_none=True)})
    console.result(
        f"{description.name} runs firmware {image.firmware_sha256[:8]},"
        f" {size(image.bin.stat().st_size)}: {identity.cpu}"
        + ("" if identity.serial is None else f", serial number {identity.serial}")
    )
    return ExitCode.DONE


def _flash(
    description: DeviceDescription, image: FirmwareImage, flashing: Flashing, progress: Progress
) -> BoardIdentity:
    """Flash a board, which no other program uses meanwhile, and return its identity."""
    from profiler.flashing.flashing import greet, require_free
    from profiler.opening.boards import alone_with
    from profiler.opening.meters import powered

    with alone_with(description), powered(description):
        require_free(description)
        flashing.carry_out(progress)
        return greet(description, image, progress).identity


def _emulator_words(description: DeviceDescription, image: FirmwareImage) -> str:
    assert description.emulator is not None
    return (
        f"start {description.emulator.program} with {image.elf} and keep it running, as"
        f" {command_line('lab', 'up', '--device', description.reference)} does"
    )


FLASH = Command(_add_options, FlashOptions.of, flash)
