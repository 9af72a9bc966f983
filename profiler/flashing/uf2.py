"""USB Flashing Format (Microsoft, https://github.com/microsoft/uf2).

A program as blocks of 512 bytes, each with its own address, so that a boot loader accepts them in
any order in which a file system writes them.
"""

from __future__ import annotations

import struct

_PAYLOAD_BYTES = 256  # accepted by every boot loader, of at most 476
_ROOM_BYTES = 476
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_FAMILY_PRESENT = 0x00002000


def uf2_file(program: bytes, address: int, family: int) -> bytes:
    """Encode a program for flash from ``address`` on; its last block is padded with zeros. A boot
    loader ignores blocks of a ``family`` other than its chip's."""
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
            piece,  # struct pads with zeros
            _MAGIC_END,
        )
        for number, piece in enumerate(pieces)
    )
