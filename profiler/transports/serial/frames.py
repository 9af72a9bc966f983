"""The frames of ``docs/serial-protocol.md``: how requests and answers look on the line."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from cobs import cobs

_HEADER = struct.Struct("<BHHHH")
_CRC = struct.Struct("<I")
_LONGEST_PAYLOAD = 0xFFFF
_LONGEST_ON_LINE = cobs.max_encoded_length(_HEADER.size + _LONGEST_PAYLOAD + _CRC.size)

SEQUENCES = 0x10000
"""Sequence numbers are counted modulo this."""

NOBODY = 0
"""The session in which a board says that it has started; those of this computer are above it."""


class Kind(IntEnum):
    HELLO = 0x01
    LINE = 0x02
    WRITE = 0x03
    READ = 0x04
    REST = 0x05
    RESTART = 0x06
    OK = 0x81
    STARTED = 0x82
    DONE = 0x83
    REFUSED = 0x84
    EXPECTED = 0x85
    STRANGER = 0x86


@dataclass(frozen=True)
class Frame:
    """``most`` is how many bytes of payload the answer to a request may have; 0 in an answer."""

    kind: Kind
    session: int
    sequence: int
    most: int = 0
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """With a zero byte before and behind it, so that it is found also in the middle of noise."""
    head = _HEADER.pack(frame.kind, frame.session, frame.sequence, frame.most, len(frame.payload))
    body = head + frame.payload
    return b"\0" + bytes(cobs.encode(body + _CRC.pack(zlib.crc32(body)))) + b"\0"


class Decoder:
    """Frames out of whatever comes from a line, in pieces of any size."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self.noise_bytes = 0
        """Those that were part of no frame."""

    def feed(self, received: bytes) -> list[Frame]:
        """The frames that end in ``received``; everything that is none is left out."""
        *ended, begun = received.split(b"\0")
        frames = []
        for stretch in ended:
            self._begun += stretch
            if self._begun:
                frame = _decode(bytes(self._begun))
                if frame is None:
                    self.noise_bytes += len(self._begun)
                else:
                    frames.append(frame)
                self._begun.clear()
        self._begun += begun
        if len(self._begun) > _LONGEST_ON_LINE:  # never to become a frame
            self.noise_bytes += len(self._begun)
            self._begun.clear()
        return frames

    def forget(self) -> None:
        """What has begun will not go on: the line was interrupted."""
        self._begun.clear()


def _decode(encoded: bytes) -> Frame | None:
    try:
        decoded = cobs.decode(encoded)
    except cobs.DecodeError:
        return None
    if len(decoded) < _HEADER.size + _CRC.size:
        return None
    body, crc = decoded[: -_CRC.size], decoded[-_CRC.size :]
    kind, session, sequence, most, length = _HEADER.unpack_from(body)
    payload = body[_HEADER.size :]
    if length != len(payload) or _CRC.unpack(crc) != (zlib.crc32(body),):
        return None
    try:
        return Frame(Kind(kind), session, sequence, most, payload)
    except ValueError:  # of a later version of the protocol
        return None
