"""Frames of ``docs/serial-protocol.md``: the encoding of requests and answers on the line."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from cobs import cobs

_HEADER = struct.Struct("<BHHHH")
_CRC = struct.Struct("<I")
_LONGEST_PAYLOAD = 0xFFFF
_NUMBER_BYTES = 2
_LONGEST_ON_LINE = cobs.max_encoded_length(_HEADER.size + _LONGEST_PAYLOAD + _CRC.size)

SEQUENCES = 0x10000
"""Sequence numbers are counted modulo this."""

NOBODY = 0
"""Session number of the frame by which a board reports its start; sessions of this computer are
above it."""


class Kind(IntEnum):
    """Kinds of frames: requests below 0x80, answers above."""

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
    """One frame. ``most`` is the largest payload in bytes that the answer to a request may have; 0
    in an answer."""

    kind: Kind
    session: int
    sequence: int
    most: int = 0
    payload: bytes = b""

    @property
    def fits_its_kind(self) -> bool:
        """Whether an answer's payload has the numbers that every answer of its kind has."""
        match self.kind:
            case Kind.OK | Kind.DONE | Kind.REFUSED:
                return len(self.payload) >= _NUMBER_BYTES
            case Kind.EXPECTED:
                return len(self.payload) == _NUMBER_BYTES
        return True


def encode(frame: Frame) -> bytes:
    """Encode a frame between two zero bytes, so that it is found even in the middle of noise."""
    head = _HEADER.pack(frame.kind, frame.session, frame.sequence, frame.most, len(frame.payload))
    body = head + frame.payload
    return b"\0" + bytes(cobs.encode(body + _CRC.pack(zlib.crc32(body)))) + b"\0"


class Decoder:
    """Finds frames in bytes from a line, which come in pieces of any size."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self.noise_bytes = 0
        """Received bytes that belonged to no frame."""

    def feed(self, received: bytes) -> list[Frame]:
        """The frames that end in ``received``. Bytes that form no frame are dropped."""
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
        if len(self._begun) > _LONGEST_ON_LINE:  # too long for a frame
            self.noise_bytes += len(self._begun)
            self._begun.clear()
        return frames

    def forget(self) -> None:
        """Drop an incomplete frame, since the line was interrupted."""
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
    except ValueError:  # from a later version of the protocol
        return None
