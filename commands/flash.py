"""``flash``: put the firmware on a microcontroller."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from commands.console import Console, size
from devices.errors import ExitCode

if TYPE_CHECKING:
    from devices.description import DeviceDescription
    from profiler.building.firmware_image import FirmwareImage


def flash(arguments: Namespace, console: Console) -> int:
    from devices.description import load_description
    from devices.documents.document import DocumentError
    from profiler.building.firmware_image import build_firmware
    from profiler.flashing.flashing import flashing_of, greet

    description = load_description(arguments.device)
    if description.firmware is None:
        raise DocumentError(
            f"{description.name} has no firmware to be flashed: it is reached by"
            f" {description.transport.kind}, and profile brings its program along"
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
    if arguments.dry_run:
        console.document(document)
        console.result(words)
        return ExitCode.DONE
    if flashing is None:
        from profiler.lab import bring_up

        console.say(words)
        description = bring_up(description, console.say).description
    else:
        flashing.carry_out(console.say)
    identity = greet(description, image, console.say).identity
    console.document(document | {"board": identity.model_dump(mode="json", exclude_none=True)})
    console.result(
        f"{description.name} runs firmware {image.firmware_sha256[:8]},"
        f" {size(image.bin.stat().st_size)}: {identity.cpu}"
        + ("" if identity.serial is None else f", serial number {identity.serial}")
    )
    return ExitCode.DONE


def _emulator_words(description: DeviceDescription, image: FirmwareImage) -> str:
    assert description.emulator is not None
    return (
        f"start {description.emulator.program} with {image.elf}, which keeps running as after:"
        f" lab up --device {description.name}"
    )
