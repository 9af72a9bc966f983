"""USB Flashing Format (Microsoft, https://github.com/microsoft/uf2): a program as blocks of 512
bytes, each with its own address, so that a boot loader can take them in whatever order the
computer's file system happens to write them."""

from __future__ import annotations

import struct

_PAYLOAD_BYTES = 256  # what every boot loader takes, of the 476 that there is room for
_ROOM_BYTES = 476
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_FAMILY_PRESENT = 0x00002000


def uf2_file(program: bytes, address: int, family: int) -> bytes:
    """The program for flash from ``address`` on; its last block is padded with zeros. A boot
    loader ignores blocks of another ``family`` than its chip's."""
    pieces = [
        program[start : start + _PAYLOAD_BYTES] for start in range(0, len(program), _PAYLOAD_BYTES)
    ]
    return b"".join(
        struct.pack(
            f"<8I{_ROOM_BYTES}sI",
            *_MAGIC,
            _FAMILY_PRESENT,
            address + number * _PAYLOAD_BYTES,
            _PAYLOAD_BYTES,
            number,
            len(pieces),
            family,
            piece,  # struct fills the room up with zeros
            _MAGIC_END,
        )
        for number, piece in enumerate(pieces)
    )
