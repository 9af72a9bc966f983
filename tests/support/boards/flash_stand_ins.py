"""Stand-ins for flash controllers, register by register as in their manuals, with worn-out blocks.

They replace chips that the tests do not have; they do not model timing.
"""

from __future__ import annotations

import ctypes

from tests.support.boards.storage import Hardware

WORD = 4


class Flash(Hardware):
    """Flash memory: programming clears bits, erasing sets them all.

    A ``worn`` address keeps a bit set that programming should clear; a ``stuck`` one keeps a bit
    cleared that erasing should set.
    """

    def __init__(self, address: int, size_bytes: int) -> None:
        self.flash_address = address
        self.flash = bytearray(size_bytes)  # not erased
        self.worn: set[int] = set()
        self.stuck: set[int] = set()

    def _erase(self, address: int, size_bytes: int) -> None:
        begin = address - self.flash_address
        self.flash[begin : begin + size_bytes] = b"\xff" * size_bytes
        for place in self.stuck:
            if address <= place < address + size_bytes:
                self.flash[place - self.flash_address] = 0xFE

    def _program(self, address: int, word: int) -> None:
        assert address % WORD == 0, "flash is programmed by words"
        begin = address - self.flash_address
        for byte, wanted in enumerate(word.to_bytes(WORD, "little")):
            kept = 0x01 if address + byte in self.worn else 0
            self.flash[begin + byte] &= wanted | kept

    def _holds(self, address: int) -> bool:
        return self.flash_address <= address < self.flash_address + len(self.flash)


class Nrf51(Flash):
    """nRF51 Series Reference Manual, chapter 6; READY is 0 for a read or two."""

    PAGE = 1024
    READ, WRITE, ERASE = range(3)

    def __init__(self) -> None:
        super().__init__(0, 256 * self.PAGE)
        self.config = self.READ
        self._busy = 0

    def get(self, address: int) -> int:
        match address:
            case 0x10000010:
                return self.PAGE
            case 0x10000014:
                return len(self.flash) // self.PAGE
            case 0x10000060:
                return 0x89ABCDEF
            case 0x10000064:
                return 0x01234567
            case 0x4001E400:
                self._busy -= 1
                return int(self._busy < 0)
        return super().get(address)

    def set(self, address: int, value: int) -> None:
        if address == 0x4001E504:
            assert self._busy <= 0, "the controller is not ready"
            self.config = value
        elif address == 0x4001E508:
            assert self.config == self.ERASE, "erasing is not enabled"
            self._erase(value // self.PAGE * self.PAGE, self.PAGE)
            self._busy = 2
        elif self._holds(address):
            assert self.config == self.WRITE, "writing is not enabled"
            self._program(address, value)
            self._busy = 2
        else:
            super().set(address, value)


class Stm32f4(Flash):
    """RM0090, section 3.9: FLASH_ACR, KEYR, SR and CR."""

    KEYS = (0x45670123, 0xCDEF89AB)
    SECTORS_KIB = (16, 16, 16, 16, 64, *(128,) * 7)

    def __init__(self) -> None:
        super().__init__(0x08000000, 1 << 20)
        self.control = 1 << 31
        self.status = 0
        self.access = 1 << 10 | 1 << 9 | 5
        self.protected: set[int] = set()
        self.cache_resets = 0
        self._keys: list[int] = []
        self._busy = 0

    @property
    def is_locked(self) -> bool:
        return bool(self.control >> 31)

    def get(self, address: int) -> int:
        match address:
            case 0x40023C00:
                return self.access
            case 0x40023C0C:
                self._busy -= 1
                return self.status | (self._busy >= 0) << 16
            case 0x40023C10:
                return self.control
            case 0x1FFF7A20:
                return len(self.flash) // 1024 << 16 | 0xFFFF
            case 0x1FFF7A10 | 0x1FFF7A14 | 0x1FFF7A18:
                return address
        return super().get(address)

    def set(self, address: int, value: int) -> None:
        match address:
            case 0x40023C00:
                if value >> 12 & 1:
                    assert not self.access >> 10 & 1, "the data cache is emptied while it is on"
                    self.cache_resets += 1
                self.access = value
            case 0x40023C04:
                self._keys.append(value)
                if tuple(self._keys) == self.KEYS:
                    self.control &= ~(1 << 31)
                    self._keys.clear()
            case 0x40023C0C:
                self.status &= ~value
            case 0x40023C10:
                self._control(value)
            case _ if self._holds(address):
                assert self.control & 1, "PG is not set"
                assert self.control >> 8 & 3 == 2, "words take a parallelism of 32 bits"
                if self._sector(address) in self.protected:
                    self.status |= 1 << 4
                else:
                    self._program(address, value)
                self._busy = 1
            case _:
                super().set(address, value)

    def _control(self, value: int) -> None:
        assert not self.is_locked or value >> 31, "the control register is locked"
        self.control = value
        if value >> 16 & 1:
            assert value >> 1 & 1, "SER is not set"
            sector = value >> 3 & 15
            begin = sum(self.SECTORS_KIB[:sector]) << 10
            self._erase(self.flash_address + begin, self.SECTORS_KIB[sector] << 10)
            self._busy = 3
            self.control &= ~(1 << 16)

    def _sector(self, address: int) -> int:
        offset = address - self.flash_address
        sector = 0
        while offset >= self.SECTORS_KIB[sector] << 10:
            offset -= self.SECTORS_KIB[sector] << 10
            sector += 1
        return sector


class Qspi(Flash):
    """The QSPI peripheral of nRF52840 (Product Specification, "QSPI") with Macronix's MX25R6435F.

    Instructions, write enable, status and security register follow the flash's data sheet. The
    flash is not memory-mapped.
    """

    QUAD, PROGRAM_FAILED, ERASE_FAILED = 0x40, 0x20, 0x40

    def __init__(self) -> None:
        super().__init__(0, 8 << 20)
        self.registers: dict[int, int] = {}
        self.identity = bytes.fromhex("c22817")
        self.status = 0
        self.security = 0
        self.asleep = True
        self._busy = 0
        self._ready = False

    def get(self, address: int) -> int:
        if address - 0x40029000 == 0x100:
            return int(self._ready)
        return self.registers[address - 0x40029000]

    def set(self, address: int, value: int) -> None:
        register = address - 0x40029000
        self.registers[register] = value
        if register == 0x100:
            self._ready = bool(value)
        elif register == 0x634:
            self._instruct(value)
        elif register in {0x000, 0x004, 0x008, 0x00C} and value:
            assert self.registers.get(0x500) == 1, "the peripheral is not enabled"
            self._task(register)

    def _instruct(self, config: int) -> None:
        opcode, length, writes = config & 0xFF, config >> 8 & 15, config >> 15 & 1
        data = b""
        if opcode == 0xAB:
            self.asleep = False
        elif not self.asleep:
            match opcode:
                case 0x9F:
                    data = self.identity
                case 0x05:
                    self._busy -= 1
                    data = bytes([self.status | (self._busy >= 0)])
                case 0x2B:
                    data = bytes([self.security])
                case 0x01:
                    assert writes, "writing is not enabled"
                    self.status = self.registers[0x638] & 0xFC
                    self._busy = 2
                case _:
                    raise AssertionError(f"instruction {opcode:#x}")
        self.registers[0x638] = int.from_bytes(data[: length - 1], "little")
        self._ready = True

    def _task(self, register: int) -> None:
        read = self.registers.get
        assert self._busy <= 0 or register == 0, "the flash is busy"
        match register:
            case 0x004:
                source, count = read(0x504, 0), read(0x50C, 0)
                self._quad_word(source, read(0x508, 0), count)
                ctypes.memmove(
                    self.high_bits | read(0x508, 0),
                    bytes(self.flash[source : source + count]),
                    count,
                )
            case 0x008:
                target, count = read(0x510, 0), read(0x518, 0)
                self._quad_word(target, read(0x514, 0), count)
                data = ctypes.string_at(self.high_bits | read(0x514, 0), count)
                self.security = 0
                if self.worn & set(range(target, target + count)):
                    self.security = self.PROGRAM_FAILED
                for place in range(0, count, WORD):
                    word = int.from_bytes(data[place : place + WORD], "little")
                    self._program(target + place, word)
                self._busy = 2
            case 0x00C:
                assert read(0x520) == 0, "more than 4 KiB are erased"
                begin = read(0x51C, 0)
                assert begin % 4096 == 0, "the erased range begins at no sector"
                self.security = self.ERASE_FAILED if begin in self.stuck else 0
                self._erase(begin, 4096)
                self._busy = 3
        self._ready = True

    def _quad_word(self, *values: int) -> None:
        assert self.status & self.QUAD, "two lines still serve hold and protection (QE is 0)"
        assert not any(value % WORD for value in values), "EasyDMA needs whole words"
