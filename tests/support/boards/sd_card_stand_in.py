"""A stand-in for an SD card, with the faults of real ones.

It follows the Physical Layer Simplified Specification, chapter 7, and is written independently of
the driver. The tests have no real card, and QEMU's card never refuses a block.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tests.support.boards.storage import Hardware

BLOCK = 512
Kind: TypeAlias = Literal["sdhc", "sdsc", "version-1", "mmc"]
Bus: TypeAlias = Generator[int, int, None]

_ILLEGAL, _CRC_ERROR, _ADDRESS = 0x04, 0x08, 0x20


def crc7(message: bytes) -> int:
    """CRC by long division modulo x^7 + x^3 + 1."""
    rest = int.from_bytes(message) << 7
    for bit in range(rest.bit_length() - 1, 6, -1):
        if rest >> bit & 1:
            rest ^= 0b10001001 << (bit - 7)
    return rest


def crc16(message: bytes) -> bytes:
    """CRC-16 of a data block (CCITT polynomial)."""
    return binascii.crc_hqx(message, 0).to_bytes(2)


_CID = b"\x03SDSU08G" + bytes.fromhex("80 1a2b3c4d 0138")
"""Card identification (CID) of August 2019, before the last byte is added."""
_CID += bytes([crc7(_CID) << 1 | 1])


@dataclass
class Faults:
    """Faults of a card: by block number, or of the whole card."""

    data_response: dict[int, int] = field(default_factory=dict)
    data_error_token: dict[int, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    busy_for_good: set[int] = field(default_factory=set)
    status: int = 0
    """Status byte that the card returns about the last write."""
    write_protected: bool = False
    never_ready: bool = False
    pulled: bool = False


class SdCard(Hardware):
    """An SD card on an SPI bus, one byte per exchange."""

    def __init__(self, kind: Kind, blocks: int, faults: Faults | None = None) -> None:
        self.kind = kind
        self.blocks = bytearray(blocks * BLOCK)
        self.faults = faults or Faults()
        self.checks_crc = False
        self._idle = True
        self._tries_left = 3
        self._selected = False
        self._life = self._live()
        self._out = next(self._life)

    def select(self, selected: bool) -> None:
        self._selected = selected

    def exchange(self, byte: int) -> int:
        if not self._selected or self.faults.pulled:
            return 0xFF
        out = self._out
        self._out = self._life.send(byte)
        return out

    # --- bytes -----------------------------------------------------------------------------

    def _live(self) -> Bus:
        application = False
        received = yield 0xFF
        while True:
            if received & 0xC0 != 0x40:
                received = yield 0xFF
                continue
            frame = bytearray([received])
            for _ in range(5):
                frame.append((yield 0xFF))
            command, argument = frame[0] & 0x3F, int.from_bytes(frame[1:5])
            good = frame[5] == crc7(frame[:5]) << 1 | 1
            if (self.checks_crc or command in {0, 8}) and not good:
                yield from _send([0xFF, self._r1 | _CRC_ERROR])
            else:
                yield from self._answer(command, argument, application)
            application = command == 55
            received = yield 0xFF

    @property
    def _r1(self) -> int:
        return int(self._idle)

    def _answer(self, command: int, argument: int, application: bool) -> Bus:
        match command, application:
            case 0, _:
                self._idle, self._tries_left, self.checks_crc = True, 3, False
                yield from _send([0xFF, self._r1])
            case 8, _ if self.kind in {"sdhc", "sdsc"}:
                yield from _send([0xFF, self._r1, 0, 0, argument >> 8 & 0xF, argument & 0xFF])
            case 59, _:
                self.checks_crc = bool(argument & 1)
                yield from _send([0xFF, self._r1])
            case 55, _ if self.kind != "mmc":
                yield from _send([0xFF, self._r1])
            case 41, True:
                self._tries_left -= 1
                wants_high_capacity = bool(argument >> 30 & 1)
                can = self.kind != "sdhc" or wants_high_capacity
                self._idle = self._tries_left > 0 or not can or self.faults.never_ready
                yield from _send([0xFF, self._r1])
            case 58, _:
                ocr = 0x80FF8000 | (self.kind == "sdhc") << 30
                yield from _send([0xFF, self._r1, *ocr.to_bytes(4)])
            case _ if self._idle:
                yield from _send([0xFF, self._r1 | _ILLEGAL])
            case 16, _ if argument == BLOCK:
                yield from _send([0xFF, 0])
            case 9, _:
                yield from self._send_block(self._csd(), -1)
            case 10, _:
                yield from self._send_block(_CID, -1)
            case 13, _:
                yield from _send([0xFF, 0, self.faults.status])
            case 17, _:
                yield from self._read(argument, several=False)
            case 18, _:
                yield from self._read(argument, several=True)
            case 24, _:
                yield from self._write(argument, several=False)
            case 25, _:
                yield from self._write(argument, several=True)
            case 12, _:
                yield from _send([0xFF, 0xFF, 0])
            case _:
                yield from _send([0xFF, self._r1 | _ILLEGAL])

    # --- blocks ----------------------------------------------------------------------------

    def _first(self, argument: int) -> int | None:
        """Number of the block at this address; None for an invalid address."""
        if self.kind != "sdhc":
            if argument % BLOCK:
                return None
            argument //= BLOCK
        return argument if argument < len(self.blocks) // BLOCK else None

    def _send_block(self, content: bytes, block: int) -> Bus:
        yield from _send([0xFF, 0])
        yield from _send(self._framed(content, block))

    def _framed(self, content: bytes, block: int) -> bytes:
        if block in self.faults.silent:
            return b""
        if block in self.faults.data_error_token:
            return bytes([0xFF, self.faults.data_error_token[block]])
        crc = crc16(content)
        if block in self.faults.damaged:
            content = bytes([content[0] ^ 0x10]) + content[1:]
        return b"\xff\xff\xfe" + content + crc

    def _read(self, argument: int, *, several: bool) -> Bus:
        block = self._first(argument)
        if block is None:
            yield from _send([0xFF, _ADDRESS])
            return
        yield from _send([0xFF, 0])
        if not several:
            yield from _send(self._framed(self._content(block), block))
            return
        # A command may arrive at any time: every received byte is checked for it.
        while True:
            for byte in (*self._framed(self._content(block), block), 0xFF):
                if (yield byte) == 0x4C:
                    for _ in range(5):
                        yield 0x5A  # data that the host discards
                    yield from _send([0x5A, 0xFF, 0, 0, 0, 0xFF])  # a byte to skip, R1, busy
                    return
            if block not in self.faults.silent:
                block += 1

    def _content(self, block: int) -> bytes:
        return bytes(self.blocks[block * BLOCK : (block + 1) * BLOCK])

    def _write(self, argument: int, *, several: bool) -> Bus:
        block = self._first(argument)
        if block is None:
            yield from _send([0xFF, _ADDRESS])
            return
        received = yield from _send([0xFF, 0])
        start = 0xFC if several else 0xFE
        while True:
            while received == 0xFF:
                received = yield 0xFF
            if several and received == 0xFD:
                yield from _send([0xFF, 0, 0, 0, 0xFF])
                return
            if several and received == 0x4C:
                for _ in range(5):
                    yield 0xFF
                yield from _send([0xFF, 0xFF, 0, 0, 0xFF])
                return
            assert received == start, f"start token {received:#x}"
            content = bytearray()
            for _ in range(BLOCK + 2):
                content.append((yield 0xFF))
            good = not self.checks_crc or crc16(content[:BLOCK]) == content[BLOCK:]
            response = self.faults.data_response.get(block, 0x05 if good else 0x0B)
            if response == 0x05 and not self.faults.status:
                self.blocks[block * BLOCK : (block + 1) * BLOCK] = content[:BLOCK]
            yield 0xE0 | response
            while block in self.faults.busy_for_good:
                yield 0
            received = yield from _send([0, 0, 0])
            if not several:
                return
            block += 1

    def _csd(self) -> bytes:
        blocks = len(self.blocks) // BLOCK
        value = 0x0B << 96 | 9 << 80 | int(self.faults.write_protected) << 12
        if self.kind == "sdhc":
            value |= 1 << 126 | (blocks // 1024 - 1) << 48
        else:
            value |= (blocks // 512 - 1) << 62 | 7 << 47  # units of 2**(7 + 2) blocks
        content = value.to_bytes(16)
        return content[:15] + bytes([crc7(content[:15]) << 1 | 1])


def _send(answer: Iterable[int]) -> Generator[int, int, int]:
    """Send the bytes of an answer; returns the byte received with the last one."""
    received = 0xFF
    for byte in answer:
        received = yield byte
    return received
